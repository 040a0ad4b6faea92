package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// This file owns the playing of a row: the broken file, the overlay that puts it in its place, and
// what go test's answer means. Each player has a folder of its own, and no state beside it.

// limit bounds a test of which nobody knows how long it takes.
const limit = 2 * time.Minute

// played is what became of a row.
type played struct {
	row
	how       string // in which way it was killed
	err       error  // nil = killed
	took, cpu time.Duration
}

// play plays rows, those of one test package together and some packages beside each other, and
// yields them as they end.
func play(rows []row, beside int, dir string) <-chan played {
	next, done := make(chan []row), make(chan played)
	go func() {
		defer close(next)
		for len(rows) > 0 {
			n := slices.IndexFunc(rows, func(r row) bool { return r.Package != rows[0].Package })
			if n < 0 {
				n = len(rows)
			}
			next <- rows[:n]
			rows = rows[n:]
		}
	}()
	var players sync.WaitGroup
	for i := range beside {
		players.Go(func() {
			for group := range next {
				playGroup(filepath.Join(dir, fmt.Sprint(i)), group, func(p played) { done <- p })
			}
		})
	}
	go func() {
		players.Wait()
		close(done)
	}()
	return done
}

// kill returns nil if the test turns red by the mutant. dir is for the broken file; cpu is what the
// build and the test took.
func kill(dir string, m mutant) (how string, cpu time.Duration, err error) {
	broken, err := apply(".", m.File, m.Text, m.With)
	if err != nil {
		return "", 0, err
	}
	original, err := filepath.Abs(m.File)
	if err != nil {
		return "", 0, err
	}
	file, list := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: file}})
	if err = errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(file, broken, 0o600), os.WriteFile(list, overlay, 0o600)); err != nil {
		return "", 0, err
	}
	out, cpu, err := test(m.Package, m.Test, "-overlay", list)
	how, err = verdictOf(out, err)
	return how, cpu, err
}

// verdictOf is what a test's output says of the break.
func verdictOf(out []byte, err error) (how string, why error) {
	switch {
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return "", fmt.Errorf("DOES NOT BUILD\n%s", out)
	case err == nil && !bytes.Contains(out, []byte("--- PASS")):
		return "", fmt.Errorf("NOT PLAYED, no such test ran or it was skipped\n%s", out)
	case err == nil:
		return "", errors.New("SURVIVES")
	case bytes.Contains(out, []byte("panic: test timed out")):
		return "killed by its time limit", nil
	case !bytes.Contains(out, []byte("--- FAIL")) && !bytes.Contains(out, []byte("FAIL\t")) && !bytes.Contains(out, []byte("panic: ")) && !bytes.Contains(out, []byte("fatal error: ")):
		return "", fmt.Errorf("NOT PLAYED: %w\n%s", err, out)
	}
	return "killed", nil
}

// test plays a test, without what a mutant does not need: vet and the cache of results.
func test(pkg, name string, flags ...string) (out []byte, cpu time.Duration, err error) {
	args := slices.Concat([]string{"test"}, flags, []string{"-vet=off", "-count=1", "-timeout", limit.String(), "-v", "-run", pattern(name), "./" + pkg})
	cmd := exec.Command("go", args...)
	out, err = cmd.CombinedOutput()
	if s := cmd.ProcessState; s != nil {
		cpu = s.UserTime() + s.SystemTime()
	}
	return out, cpu, err
}

// playFamily plays a suite on what is broken, and prints a row for each thing. It returns how many
// were refused, and how many not.
func playFamily(f family) (refused, failed int, cpu time.Duration) {
	out, cpu, err := test(f.Package, f.Test)
	good, bad := parts(string(out), f.Test)
	for _, name := range good {
		fmt.Printf("%-9s %s by %s %s: refused\n", f.Area, name, f.Package, f.Test)
	}
	for _, name := range bad {
		fmt.Printf("%-9s %s by %s %s: SURVIVES\n", f.Area, name, f.Package, f.Test)
	}
	failed = len(bad)
	if err != nil && len(bad) == 0 || len(good) == 0 {
		fmt.Printf("%-9s %s %s: NOT PLAYED: %v\n%s\n", f.Area, f.Package, f.Test, err, out)
		failed++
	}
	fmt.Printf("%-9s %d refused by %s %s (%.1f s of processor)\n", f.Area, len(good), f.Package, f.Test, cpu.Seconds())
	return len(good), failed, cpu
}

// parts returns the names of a test's parts in the output of go test -v, each once: those of which
// all has passed, and those of which something failed.
func parts(out, test string) (good, bad []string) {
	passed := map[string]bool{}
	for line := range strings.Lines(out) {
		result, rest, found := strings.Cut(strings.TrimSpace(line), ": "+test+"/")
		if !found || result != "--- PASS" && result != "--- FAIL" {
			continue
		}
		name, _, _ := strings.Cut(strings.Fields(rest)[0], "/")
		was, known := passed[name]
		passed[name] = result == "--- PASS" && (was || !known)
	}
	for name, ok := range passed {
		if ok {
			good = append(good, name)
		} else {
			bad = append(bad, name)
		}
	}
	slices.Sort(good)
	slices.Sort(bad)
	return good, bad
}

// apply returns a file with a break in it. The file is looked for below root.
func apply(root, file, text, with string) ([]byte, error) {
	have, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(have, []byte(text)); n != 1 {
		return nil, fmt.Errorf("STALE: the text stands %d times in the file, not once", n)
	}
	return bytes.Replace(have, []byte(text), []byte(with), 1), nil
}

// pattern has each part of a test's name match that name alone.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + p + "$"
	}
	return strings.Join(parts, "/")
}
