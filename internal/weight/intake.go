package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const library = "github.com/onceq/onceq"

// intake prints, for the core and for each driver and store, how many modules of others Go looks at
// where a program imports it. internal/arch's TestIntake holds the numbers of some.
func intake(w io.Writer, root string, files []string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	var mods []string
	for _, f := range files {
		if path.Base(f) == "go.mod" {
			mods = append(mods, path.Dir(f))
		}
	}
	type row struct {
		name string
		n    int
		err  error
	}
	rows := []row{{name: "the core"}}
	for _, f := range files {
		dir := path.Dir(f)
		parent := path.Dir(dir)
		if path.Base(f) == "doc.go" && (parent == "adapters" || parent == "dedupe" && strings.HasSuffix(dir, "store")) {
			rows = append(rows, row{name: dir})
		}
	}
	var wg sync.WaitGroup
	turns := make(chan struct{}, 3) // go mod tidy computes as well as it waits
	for i := range rows {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			rows[i].n, rows[i].err = seen(root, mods, rows[i].name)
		})
	}
	wg.Wait()
	var errs []error
	for _, r := range rows {
		errs = append(errs, r.err)
		fmt.Fprintf(w, "    %-25s %7d\n", r.name, r.n)
	}
	return errors.Join(errs...)
}

// seen counts the modules of others that Go looks at for a program that imports the core, and the
// package in a folder of the tree.
func seen(root string, mods []string, folder string) (int, error) {
	dir, err := os.MkdirTemp("", "onceq-weight-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	imports := []string{library, library + "/adapters/membroker", library + "/dedupe/memstore"}
	if path.Dir(folder) != "." {
		imports = append(imports, library+"/"+folder)
	}
	var mod strings.Builder
	mod.WriteString("module user.test/program\n\ngo 1.26.0\n")
	for _, m := range mods {
		// A replacement of what nobody requires has no effect.
		fmt.Fprintf(&mod, "\nreplace %s => %s\n", path.Join(library, m), filepath.Join(root, m))
	}
	var program strings.Builder
	program.WriteString("package main\n\nimport (\n")
	for _, i := range slices.Compact(slices.Sorted(slices.Values(imports))) {
		fmt.Fprintf(&program, "\t_ %q\n", i)
	}
	for name, text := range map[string]string{"go.mod": mod.String(), "main.go": program.String() + ")\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return 0, err
		}
	}
	if _, err := goIn(dir, "mod", "tidy"); err != nil {
		return 0, err
	}
	all, err := goIn(dir, "list", "-m", "all")
	n := 0
	for m := range strings.Lines(all) {
		if !strings.HasPrefix(m, library) && !strings.HasPrefix(m, "user.test/") {
			n++
		}
	}
	return n, err
}

// goIn runs the go command in a module of its own.
func goIn(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "PWD="+dir)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return string(out), nil
}
