// Speeds runs the tests at one of three speeds:
//
//	go run ./internal/speeds quick     what needs no server, without the race detector: within a minute
//	go run ./internal/speeds test      every test, with all back ends
//	go run ./internal/speeds proof     every test at its full length, under the race detector
//
// What follows the speed goes to go test. With -pkgs, those packages alone are tested, in one list
// under the race detector. The make targets of these names run it, test and proof through
// localstack/internal/testrun, which has the back ends.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/internal/weight/clock"
)

// This file owns a run: which lists of packages there are, and what is told at the end. list.go
// owns the tables, leg.go one go test.

func main() {
	pkgs := flag.String("pkgs", "", "the packages to test, and what shall follow them; empty = all")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: speeds [-pkgs PACKAGES] quick|test|proof [FLAGS OF GO TEST]")
		os.Exit(2)
	}
	// The signals of a terminal are for go test, which is in our group: we wait for its end.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	code, err := run(flag.Arg(0), strings.Fields(*pkgs), flag.Args()[1:], stop)
	if err != nil {
		fmt.Fprintln(os.Stderr, "speeds:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run runs the tests at a speed. flags go to go test.
func run(speed string, pkgs, flags []string, stop <-chan os.Signal) (code int, err error) {
	legs, err := plan(speed, pkgs)
	if err != nil {
		return 2, err
	}
	seed := os.Getenv(proof.SeedEnv)
	if seed == "" {
		seed = strconv.FormatUint(proof.Draw(), 10)
	}
	env := append(os.Environ(), proof.SeedEnv+"="+seed)
	if speed == "proof" {
		env = append(env, proof.Env+"=1")
	}
	// Each of fifty test programs would wait a second at its end for a late race.
	env = append(env, "GORACE="+cmp.Or(os.Getenv("GORACE"), "atexit_sleep_ms=50"))
	// Memory is not what a test run lacks: a tenth of its processor time went into collecting it.
	env = append(env, "GOGC="+cmp.Or(os.Getenv("GOGC"), "400"))
	if slices.ContainsFunc(legs, func(l leg) bool { return l.raced }) {
		why, noC := raceless()
		if why != "" {
			fmt.Printf("make %s: the race detector is off: %s\n", speed, why)
			for i := range legs {
				legs[i].raced = false
			}
		}
		if noC {
			env = append(env, "CGO_ENABLED=0")
		}
	}
	begun := time.Now()
	results, err := all(legs, env, flags, stop)
	took := time.Since(begun)
	if err != nil {
		return 1, err
	}
	fmt.Print(results.tell(speed, seed, took))
	if results.code == 0 && len(pkgs) == 0 {
		err = clock.Keep(".", speed, took)
	}
	return results.code, err
}

// plan is the lists of packages that a speed tests, beside each other.
func plan(speed string, pkgs []string) ([]leg, error) {
	switch speed {
	case "quick":
		if len(pkgs) > 0 {
			return []leg{{flags: []string{"-short"}, pkgs: pkgs}}, nil
		}
		pkgs, err := serverless()
		return []leg{{flags: []string{"-short"}, pkgs: pkgs}}, err
	case "test", "proof":
		shuffled := []string{"-shuffle=on", "-timeout=30m"}
		if len(pkgs) > 0 {
			return []leg{{raced: true, flags: shuffled, pkgs: pkgs}}, nil
		}
		all, err := list("-f", "{{.Dir}}", "work")
		if err != nil {
			return nil, err
		}
		if all, err = relative(all); err != nil {
			return nil, err
		}
		if speed == "proof" {
			return []leg{{raced: true, flags: append(shuffled, "-p=3"), pkgs: ordered(all, slices.Concat([]string{matrix}, patterns(), first))}}, nil
		}
		plain, raced := split(all)
		from := func(first string) int {
			return slices.IndexFunc(plain, func(p string) bool { return rank(patterns(), p) >= rank(patterns(), first) })
		}
		servers, aside, late := plain[:from(firstAside)], plain[from(firstAside):from(firstLate)], plain[from(firstLate):]
		one, two := append(slices.Clip(shuffled), "-p=1"), append(slices.Clip(shuffled), "-p=2")
		return []leg{
			{env: partEnv + "=rest", flags: two, pkgs: append([]string{"./" + matrix}, servers...)},
			// What computes leaves the processors to what waits. So servers answer in time, and
			// nothing waits alone at the end.
			{env: partEnv + "=raced", raced: true, yields: true, flags: two, pkgs: raced, then: &leg{yields: true, flags: two, pkgs: late}},
			{flags: one, pkgs: aside},
		}, nil
	}
	return nil, fmt.Errorf("no such speed: %q", speed)
}

// patterns are the packages that make test plays without the race detector.
func patterns() (ps []string) {
	for _, u := range unraced {
		ps = append(ps, u.pattern)
	}
	return ps
}

// split divides packages into those that are played without the race detector and with it.
func split(pkgs []string) (plain, raced []string) {
	for _, p := range pkgs {
		if rank(patterns(), p) < len(unraced) {
			plain = append(plain, p)
		} else {
			raced = append(raced, p)
		}
	}
	return ordered(plain, patterns()), ordered(raced, first)
}

// ordered sorts packages by the first pattern that names them; the others stay behind.
func ordered(pkgs, patterns []string) []string {
	return slices.SortedStableFunc(slices.Values(pkgs), func(a, b string) int { return cmp.Compare(rank(patterns, a), rank(patterns, b)) })
}

// rank is the place of the first pattern that names a package, or the length.
func rank(patterns []string, pkg string) int {
	pkg = strings.TrimPrefix(pkg, "./")
	for i, p := range patterns {
		below, ok := strings.CutSuffix(p, "/...")
		if pkg == p || ok && (pkg == below || strings.HasPrefix(pkg, below+"/")) {
			return i
		}
	}
	return len(patterns)
}

// serverless lists the root module's packages whose tests ask for no server.
func serverless() ([]string, error) {
	lines, err := list("-f", "{{.Dir}} {{.TestImports}} {{.XTestImports}}", "./...")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, line := range lines {
		if !strings.Contains(line, module+"/internal/testserver") {
			dir, _, _ := strings.Cut(line, " [")
			dirs = append(dirs, dir)
		}
	}
	dirs, err = relative(dirs)
	return ordered(dirs, first), err
}

// list asks go list, and returns its lines.
func list(args ...string) ([]string, error) {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.Split(strings.TrimSpace(string(out)), "\n"), err
}

// relative makes folders what go test takes for packages of the tree.
func relative(dirs []string) ([]string, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for i, d := range dirs {
		rel, err := filepath.Rel(root, d)
		if err != nil {
			return nil, err
		}
		dirs[i] = "./" + filepath.ToSlash(rel)
		if rel == "." {
			dirs[i] = "."
		}
	}
	return dirs, nil
}

// raceless is why there is no race detector; empty = there is one. The trial build is the question
// itself: it fails where cgo is off, where no C compiler is found, and where the C library's
// headers are missing. Without the race detector, Go still asks for the compiler that CC names; noC
// tells that there is none, and the tests are to be built without cgo.
func raceless() (why string, noC bool) {
	out, err := exec.Command("go", "build", "-race", "runtime/cgo").CombinedOutput()
	if err == nil {
		return "", false
	}
	why = err.Error()
	for line := range bytes.Lines(out) {
		if line[0] != '#' {
			why = string(bytes.TrimSpace(line))
			break
		}
	}
	return why, errors.As(exec.Command("go", "build", "runtime/cgo").Run(), new(*exec.ExitError))
}
