package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write api/*.txt as the code is now")

const (
	root = "../.."
	how  = "go test ./internal/api -update"
)

// TestSurface compares each public package with its file in the folder api.
func TestSurface(t *testing.T) {
	watch(t)
	folder := filepath.Join(root, "api")
	got := map[string]string{}
	for _, module := range modules(t) {
		load(t, module, got)
	}
	if len(got) == 0 {
		t.Fatal("no public package found")
	}
	if *update {
		write(t, folder, got)
		return
	}
	for name, text := range got {
		want, err := os.ReadFile(filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("api/%s is missing: a public package is new. If it should be, run\n\t%s", name, how)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := differ(string(want), text); diff != "" {
			t.Errorf("the public surface differs from api/%s. If it should, run\n\t%s\n%s", name, how, diff)
		}
	}
	for _, name := range files(t, folder) {
		if _, ok := got[name]; !ok {
			t.Errorf("api/%s is of no public package. If it is right that the package is gone, run\n\t%s", name, how)
		}
	}
}

// differ lists the lines that only one text has.
func differ(want, got string) string {
	var text strings.Builder
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, line := range w {
		if !slices.Contains(g, line) {
			fmt.Fprintf(&text, "\t- %s\n", line)
		}
	}
	for _, line := range g {
		if !slices.Contains(w, line) {
			fmt.Fprintf(&text, "\t+ %s\n", line)
		}
	}
	if text.Len() == 0 && want != got {
		return "\tthe same lines, in another order or number\n"
	}
	return text.String()
}

// write makes the folder say what got says, and nothing else.
func write(t *testing.T, folder string, got map[string]string) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range files(t, folder) {
		if _, ok := got[name]; !ok {
			t.Logf("api/%s goes", name)
			if err := os.Remove(filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, text := range got {
		file := filepath.Join(folder, name)
		if old, err := os.ReadFile(file); err == nil && string(old) == text {
			continue
		}
		t.Logf("api/%s is written", name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func files(t *testing.T, folder string) []string {
	list, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i] = filepath.Base(list[i])
	}
	return list
}

// watch reads what the go command will read: go test keeps a result until a file changes that the
// test itself has opened.
func watch(t *testing.T) {
	walk(t, func(name string, d fs.DirEntry) {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			if _, err := os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// modules lists the folders whose packages users import: the root's, and those of the modules
// below it that are not helpers, tests or examples.
func modules(t *testing.T) []string {
	var dirs []string
	walk(t, func(name string, d fs.DirEntry) {
		if d.Name() == "go.mod" {
			dirs = append(dirs, filepath.Dir(name))
		}
	})
	return dirs
}

func walk(t *testing.T, visit func(name string, d fs.DirEntry)) {
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() && name != root && (strings.HasPrefix(base, ".") || !public(base) || base == "testdata") {
			return fs.SkipDir
		}
		visit(name, d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// public reports whether the packages at an import path, or in a folder, are meant for users.
func public(path string) bool {
	return !slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool {
		return part == "internal" || part == "examples" || part == "cmd"
	})
}

// load prints the public packages of the module in dir into got, by the names of their files. The
// compiler's export data says what they declare, so that no dependency is read as source.
func load(t *testing.T, dir string, got map[string]string) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Name,Export,Module,DepOnly", "./...")
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list in %s: %v\n%s", dir, err, errs.Bytes())
	}
	exports := map[string]string{}
	type listed struct {
		ImportPath, Name, Export string
		DepOnly                  bool
		Module                   *struct{ Path string }
	}
	var own []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && p.Name != "main" && public(p.ImportPath) {
			own = append(own, p)
		}
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(exports[path])
	})
	for _, p := range own {
		pkg, err := imp.Import(p.ImportPath)
		if err != nil {
			t.Fatal(err)
		}
		if text := surface(pkg); text != "" {
			got[fileOf(p.ImportPath)] = text
		}
	}
}

// fileOf names a package's file: its folders, joined by dots.
func fileOf(path string) string {
	const module = "github.com/onceq/onceq"
	short := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	if short == "" {
		short = "onceq"
	}
	return strings.ReplaceAll(short, "/", ".") + ".txt"
}
