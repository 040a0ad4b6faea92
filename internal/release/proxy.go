package main

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// publish puts a module of the tree, as it is now, into the proxy.
func (t *tree) publish(m *module) error {
	at := filepath.Join(t.proxy, filepath.FromSlash(m.path), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": t.version, "Time": time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(t.root, m.dir, "go.mod"))
	if err != nil {
		return err
	}
	file := func(suffix string, data []byte) error {
		return os.WriteFile(filepath.Join(at, t.version+suffix), data, 0o644)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(at, "list"), []byte(t.version+"\n"), 0o644),
		file(".info", info), file(".mod", mod), t.zip(m, filepath.Join(at, t.version+".zip")),
	)
}

// zip writes the module's files as Go takes them from a repository: without those of modules
// below it, and with the repository's license where it has none. So its sum is that of the tag.
func (t *tree) zip(m *module, name string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z := zip.NewWriter(f)
	add := func(name, source string) error {
		data, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		w, err := z.Create(m.path + "@" + t.version + "/" + name)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	license := false
	top := filepath.Join(t.root, m.dir)
	err = filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(file, "go.mod"))
			if name != "." && (nested == nil || d.Name() == "vendor" || name == ".git") {
				return fs.SkipDir
			}
			return nil
		}
		if !t.tracked[path.Join(m.dir, name)] {
			return nil
		}
		license = license || name == "LICENSE"
		return add(name, file)
	})
	if err == nil && !license {
		err = add("LICENSE", filepath.Join(t.root, "LICENSE"))
	}
	return errors.Join(err, z.Close())
}
