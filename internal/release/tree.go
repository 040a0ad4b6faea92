package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// This file owns the working copy: which modules it has, in which order they are released, and
// which environment leads go to what is released so far. main and take make a tree of it, each for
// itself. Nothing is locked, because no two goroutines call it.

// A module is one of the repository's with code of ours.
type module struct {
	path, dir string // the folder as a path from the root: "." is the library
	uses      []string
	replaced  []replacement
}

// A replacement leads from a module's path to its folder in the tree.
type replacement struct{ path, to string }

// released reports whether users take the module. What stands under internal is ours alone.
func (m *module) released() bool { return !slices.Contains(strings.Split(m.dir, "/"), "internal") }

// tag is the name under which Go looks for the module's version.
func (m *module) tag(version string) string { return path.Join(m.dir, version) }

// A tree is a working copy that is made ready for a version.
type tree struct {
	root, version string
	modules       []*module       // each after those that it uses
	tracked       map[string]bool // the files that git has
	proxy         string          // a folder: what is released so far, as a module proxy has it
	cache         string          // Go's own
}

// newTree reads the modules of a working copy.
func newTree(ctx context.Context, root, version string) (*tree, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, version: version}
	if t.proxy, err = os.MkdirTemp("", "onceq-proxy-"); err != nil {
		return nil, err
	}
	if t.cache, err = run(ctx, root, nil, "go", "env", "GOMODCACHE"); err != nil {
		return nil, err
	}
	files, err := run(ctx, root, nil, "git", "ls-files")
	if err != nil {
		return nil, err
	}
	t.tracked = map[string]bool{}
	var all []*module
	for file := range strings.SplitSeq(files, "\n") {
		t.tracked[file] = true
		if dir := path.Dir(file); path.Base(file) == "go.mod" && !strings.HasPrefix(dir, "internal/tools") {
			m := &module{dir: dir}
			if err := m.read(ctx, root); err != nil {
				return nil, err
			}
			all = append(all, m)
		}
	}
	ours := func(p string) bool { return slices.ContainsFunc(all, func(m *module) bool { return m.path == p }) }
	for _, m := range all {
		m.uses = slices.DeleteFunc(m.uses, func(p string) bool { return !ours(p) })
	}
	for len(all) > 0 {
		i := slices.IndexFunc(all, func(m *module) bool {
			return !slices.ContainsFunc(m.uses, func(p string) bool {
				return slices.ContainsFunc(all, func(m *module) bool { return m.path == p })
			})
		})
		if i < 0 {
			return nil, errors.New("the modules use each other in a circle")
		}
		t.modules = append(t.modules, all[i])
		all = slices.Delete(all, i, i+1)
	}
	return t, nil
}

// read reads the module's go.mod.
func (m *module) read(ctx context.Context, root string) error {
	text, err := run(ctx, filepath.Join(root, m.dir), []string{"GOWORK=off"}, "go", "mod", "edit", "-json")
	if err != nil {
		return err
	}
	var mod struct {
		Module  struct{ Path string }
		Require []struct{ Path string }
		Replace []struct{ Old, New struct{ Path string } }
	}
	if err := json.Unmarshal([]byte(text), &mod); err != nil {
		return err
	}
	m.path = mod.Module.Path
	for _, r := range mod.Require {
		m.uses = append(m.uses, r.Path)
	}
	for _, r := range mod.Replace {
		m.replaced = append(m.replaced, replacement{r.Old.Path, r.New.Path})
	}
	return nil
}

// goEnv has go take what is released so far from our proxy, and the rest from where it always does.
func (t *tree) goEnv() []string {
	sources := os.Getenv("GOPROXY")
	if sources == "" {
		sources = "https://proxy.golang.org,direct"
	}
	// the library's module is the first
	ours := t.modules[0].path
	return []string{
		"GOWORK=off", "GOPROXY=file://" + filepath.ToSlash(t.proxy) + "," + sources, "GONOSUMDB=" + ours,
		// so that forget can remove it
		"GOFLAGS=-mod=mod -modcacherw",
	}
}

// forget removes the proxy. It also removes what Go's cache has of a version that only we have,
// because a later one of the same name must not meet it.
func (t *tree) forget() {
	_ = os.RemoveAll(t.proxy)
	for _, m := range t.modules {
		_ = os.RemoveAll(filepath.Join(t.cache, m.path+"@"+t.version))
		names, _ := filepath.Glob(filepath.Join(t.cache, "cache", "download", m.path, "@v", t.version+".*"))
		for _, name := range names {
			_ = os.Remove(name)
		}
	}
}

// copyTree copies the files that git knows, or would.
func copyTree(ctx context.Context, from, to string) error {
	list, err := run(ctx, from, nil, "git", "ls-files", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(list, "\n") {
		source, target := filepath.Join(from, name), filepath.Join(to, name)
		info, err := os.Lstat(source)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not committed yet
		}
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no ordinary file", name)
		}
		data, err := os.ReadFile(source)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(target), 0o755)
		}
		if err == nil {
			err = os.WriteFile(target, data, info.Mode().Perm())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
