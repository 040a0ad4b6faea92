package main

import (
	"bytes"
	"fmt"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// tracked lists the files that git knows, by their paths from root.
func tracked(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return slices.DeleteFunc(strings.Split(string(out), "\x00"), func(name string) bool { return name == "" }), nil
}

// names are those that stand at the root.
func names(files []string) []string {
	seen := map[string]bool{}
	for _, f := range files {
		first, _, _ := strings.Cut(f, "/")
		seen[first] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// lines are those of Go files.
type lines struct{ code, tests int }

func count(root string, files []string) (n lines, err error) {
	for _, f := range files {
		if !strings.HasSuffix(f, ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, f))
		if os.IsNotExist(err) {
			continue // removed, and git does not know yet
		}
		if err != nil {
			return n, err
		}
		if strings.HasSuffix(f, "_test.go") {
			n.tests += bytes.Count(text, []byte("\n"))
		} else {
			n.code += bytes.Count(text, []byte("\n"))
		}
	}
	return n, nil
}

// surface is what users can name, as the folder api has it.
type surface struct {
	packages, lines    int
	names, core        int // constants, variables, functions and types
	fields, coreFields int // of structs that are named Config or Options
	configs            []string
}

func readSurface(root string) (s surface, err error) {
	files, err := filepath.Glob(filepath.Join(root, "api/*.txt"))
	if err != nil {
		return s, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return s, err
		}
		names, fields := read(string(text))
		total := 0
		for _, n := range fields {
			total += n
		}
		s.packages++
		s.lines += strings.Count(string(text), "\n")
		s.names += names
		s.fields += total
		if filepath.Base(file) == "onceq.txt" {
			s.core, s.coreFields = names, total
			for _, name := range slices.Sorted(maps.Keys(fields)) {
				s.configs = append(s.configs, fmt.Sprintf("%s %d", name, fields[name]))
			}
		}
	}
	return s, nil
}

// read returns how many names a package's surface has, and the fields of each struct of settings.
func read(text string) (names int, fields map[string]int) {
	seen, fields := map[string]bool{}, map[string]int{}
	for line := range strings.Lines(text) {
		kind, rest, _ := strings.Cut(line, " ")
		if kind != "const" && kind != "var" && kind != "func" && kind != "type" {
			continue
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return !token.IsIdentifier("a" + string(r)) })
		name := rest[:max(end, 0)]
		seen[name] = true
		settings := strings.HasSuffix(name, "Config") || strings.HasSuffix(name, "Options")
		if _, field, ok := strings.Cut(rest, " struct, "); kind == "type" && ok && settings && !strings.HasPrefix(field, "with ") {
			fields[name]++
		}
	}
	return len(seen), fields
}
