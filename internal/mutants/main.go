// Mutants breaks the code on purpose, one place at a time, and sees that a test turns red:
//
//	go run ./internal/mutants              all of them
//	go run ./internal/mutants core clouds  those of some areas
//	go run ./internal/mutants settle.go    those whose file, test or reason holds a text
//
// The tree is not touched: go test takes the broken file as an overlay. A mutant that survives,
// that does not build, or whose text is gone from its file ends the run with exit code 1.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// This file owns a run: which rows it plays, how each is built, and what became of it. main calls
// it, one row after another in one goroutine, and nothing is locked. The tables have a file each.

// The tables by area, one file each.
var tables = map[string][]mutant{
	"bridges":   bridges,
	"cancel":    cancels,
	"clouds":    clouds,
	"core":      core,
	"databases": databases,
	"delays":    delays,
	"engine":    engine,
	"fan":       fanned,
	"operators": operators,
	"page":      page,
	"schedules": schedules,
	"security":  security,
	"limits":    limited,
	"steps":     stepped,
	"web":       web,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(words []string) error {
	dir, err := os.MkdirTemp("", "onceq-mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	killed, failed := 0, 0
	for _, area := range slices.Sorted(maps.Keys(tables)) {
		for _, m := range tables[area] {
			if !asked(words, area, m) {
				continue
			}
			began := time.Now()
			err := kill(dir, m)
			verdict := "killed"
			if err != nil {
				verdict = err.Error()
				failed++
			} else {
				killed++
			}
			fmt.Printf("%-9s %s: %q by %s %s: %s (%.1f s)\n",
				area, m.File, short(m.Text), m.Package, m.Test, verdict, time.Since(began).Seconds())
		}
	}
	fmt.Printf("%d killed, %d failed\n", killed, failed)
	if failed > 0 {
		return errors.New("a break that no test notices is a test that is missing")
	}
	if killed == 0 {
		return errors.New("no mutant fits")
	}
	return nil
}

// asked reports whether one of the words names the mutant; without words all are asked for.
func asked(words []string, area string, m mutant) bool {
	return len(words) == 0 || slices.ContainsFunc(words, func(w string) bool {
		return w == area || strings.Contains(m.File, w) || strings.Contains(m.Test, w) || strings.Contains(m.Why, w)
	})
}

// kill returns nil if the test turns red by the mutant.
func kill(dir string, m mutant) error {
	broken, err := m.apply(".")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "broken.go")
	if err := os.WriteFile(file, broken, 0o600); err != nil {
		return err
	}
	original, err := filepath.Abs(m.File)
	if err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: file}})
	if err != nil {
		return err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-overlay", list, "-vet=off", "-count=1", "-timeout", "5m", "-v", "-run", pattern(m.Test), "./"+m.Package)
	out, err := cmd.CombinedOutput()
	switch {
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return fmt.Errorf("DOES NOT BUILD\n%s", out)
	case err == nil && !bytes.Contains(out, []byte("--- PASS")):
		return fmt.Errorf("NOT PLAYED, no such test ran or it was skipped\n%s", out)
	case err == nil:
		return errors.New("SURVIVES")
	}
	return nil
}

// apply returns the file with the break in it. The file is looked for below root.
func (m mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.Text)); n != 1 {
		return nil, fmt.Errorf("STALE: the text stands %d times in the file, not once", n)
	}
	return bytes.Replace(text, []byte(m.Text), []byte(m.With), 1), nil
}

// pattern has each part of a test's name match that name alone.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + p + "$"
	}
	return strings.Join(parts, "/")
}

// short is the first line of a text, cut for a line of the report.
func short(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line[:min(len(line), 60)]
}
