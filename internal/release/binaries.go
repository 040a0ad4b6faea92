package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// This file makes the archives of the command that a release brings: for each system the binary,
// the licences and notices of what is in it, and a list of its modules. Whoever has the same Go
// gets the same bytes from the module proxy: nothing of this machine, and no time, is in them. main
// calls it in one goroutine, so nothing is locked.

// command is the command's module, under the library's path.
const command = "cmd/onceq"

// A target is a system that gets a binary.
type target struct{ os, arch string }

var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

// packedAt is the time of each file in an archive: no build is told from another by it.
var packedAt = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// binaries writes the archives of a version into dir, and their sums. env leads go to the version,
// and root is the tree at its tag, whose script prints the notices.
func binaries(ctx context.Context, root, library, version, dir string, env []string, all []target) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var sums strings.Builder
	for _, tg := range all {
		name, data, err := archive(ctx, root, library, version, env, tg)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", tg.os, tg.arch, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		fmt.Fprintf(&sums, "%s  %s\n", hex.EncodeToString(sum[:]), name)
		fmt.Printf("packed %s, %d MB\n", name, len(data)>>20)
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// archive builds the command for a system, and packs it.
func archive(ctx context.Context, root, library, version string, env []string, tg target) (name string, data []byte, err error) {
	temp, err := os.MkdirTemp("", "onceq-binary-")
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	env = append(slices.Clone(env), "GOOS="+tg.os, "GOARCH="+tg.arch, "CGO_ENABLED=0")
	program, err := install(ctx, temp, path.Join(library, command)+"@"+version, env, tg)
	if err != nil {
		return "", nil, err
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return "", nil, err
	}
	bill, err := bill(binary)
	if err != nil {
		return "", nil, err
	}
	notices, err := run(ctx, root, env, "bash", ".github/notices.sh")
	if err != nil {
		return "", nil, err
	}
	license, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return "", nil, err
	}
	files := []file{
		{filepath.Base(program), binary, 0o755},
		{"LICENSE", license, 0o644},
		{"THIRD-PARTY-NOTICES", []byte(notices + "\n"), 0o644},
		{"onceq.cdx.json", bill, 0o644},
	}
	name = fmt.Sprintf("onceq_%s_%s_%s", strings.TrimPrefix(version, "v"), tg.os, tg.arch)
	if tg.os == "windows" {
		data, err = zipped(files)
		return name + ".zip", data, err
	}
	data, err = tarred(files)
	return name + ".tar.gz", data, err
}

// install has go install make the binary. It refuses GOBIN for another system than its own, so it
// gets a GOPATH.
func install(ctx context.Context, temp, at string, env []string, tg target) (string, error) {
	cache, err := run(ctx, temp, env, "go", "env", "GOMODCACHE")
	if err != nil {
		return "", err
	}
	own := append(env, "GOPATH="+temp, "GOMODCACHE="+cache, "GOFLAGS=-modcacherw")
	if _, err := run(ctx, temp, own, "go", "install", "-trimpath", "-ldflags=-s -w -buildid=", at); err != nil {
		return "", err
	}
	program := path.Base(command)
	if tg.os == "windows" {
		program += ".exe"
	}
	for _, name := range []string{filepath.Join(temp, "bin", program), filepath.Join(temp, "bin", tg.os+"_"+tg.arch, program)} {
		if _, err := os.Stat(name); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("go install made no %s", program)
}

// bill is a binary's list of modules, in the form of CycloneDX 1.5. It says what the binary itself
// says, so that it cannot differ from what was compiled.
func bill(binary []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}
	type component struct {
		Type       string              `json:"type"`
		Name       string              `json:"name"`
		Version    string              `json:"version"`
		PURL       string              `json:"purl"`
		Properties []map[string]string `json:"properties,omitempty"`
	}
	of := func(kind, name, version, sum string) component {
		c := component{Type: kind, Name: name, Version: version, PURL: "pkg:golang/" + name + "@" + version}
		if sum != "" {
			c.Properties = []map[string]string{{"name": "go:sum", "value": sum}}
		}
		return c
	}
	components := []component{of("library", "stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, d := range info.Deps {
		components = append(components, of("library", d.Path, d.Version, d.Sum))
	}
	b, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata":   map[string]any{"component": of("application", info.Main.Path, info.Main.Version, info.Main.Sum)},
		"components": components,
	}, "", "  ")
	return append(b, '\n'), err
}

// A file is one of an archive's.
type file struct {
	name string
	data []byte
	mode int64
}

func tarred(files []file) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: packedAt, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := errors.Join(t.Close(), z.Close())
	return b.Bytes(), err
}

func zipped(files []file) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: packedAt})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}

// unpack writes the first file of an archive, the binary, to a folder.
func unpack(name, dir string) (string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	t := tar.NewReader(z)
	h, err := t.Next()
	if err != nil {
		return "", err
	}
	binary, err := io.ReadAll(t)
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, h.Name)
	return program, os.WriteFile(program, binary, 0o755)
}
