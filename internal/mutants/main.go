// Mutants breaks the code on purpose, one place at a time, and sees that a test turns red:
//
//	go run ./internal/mutants              all that need no server
//	go run ./internal/mutants all          all of them
//	go run ./internal/mutants server       those that need one
//	go run ./internal/mutants core clouds  those of some areas
//	go run ./internal/mutants settle.go    those whose file, package, test, rule or reason holds it
//	go run ./internal/mutants -list        the table, without playing it
//
// The tree is not touched: go test takes the broken file as an overlay. A mutant that survives,
// that does not build, or whose text is gone from its file ends the run with exit code 1. So does a
// broken driver or store that brokertest or dedupetest lets pass.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// This file owns a run: which rows it plays, in which order, and what it prints. play.go plays one
// row. Two rows are played at a time (-p), each in a goroutine of its own. What became of them
// comes to run through a channel, so nothing is locked.

// processors is the machine that the estimate at the end of a run is for.
const processors = 2

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	beside := flags.Int("p", processors, "how many are played at once")
	list := flags.Bool("list", false, "print the rows, and play none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rows, left := chosen(flags.Args())
	suites := slices.DeleteFunc(slices.Clone(families), func(f family) bool { return !askedFamily(flags.Args(), f) })
	if len(rows)+len(suites) == 0 {
		return errors.New("no mutant fits")
	}
	if *list {
		for _, r := range rows {
			fmt.Println(r)
		}
		for _, f := range suites {
			fmt.Printf("%-9s each part of %s %s\n", f.Area, f.Package, f.Test)
		}
		fmt.Printf("%d mutants, and those of %d suites\n", len(rows), len(suites))
		return nil
	}
	dir, err := os.MkdirTemp("", "onceq-mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	killed, failed, spent := 0, 0, time.Duration(0)
	for r := range play(rows, max(1, *beside), dir) {
		verdict := r.how
		if r.err != nil {
			verdict = r.err.Error()
			failed++
		} else {
			killed++
		}
		spent += r.cpu
		fmt.Printf("%v: %s (%.1f s, %.1f s of processor)\n", r.row, verdict, r.took.Seconds(), r.cpu.Seconds())
	}
	refused := 0
	for _, f := range suites {
		good, bad, cpu := playFamily(f)
		refused, failed, spent = refused+good, failed+bad, spent+cpu
	}
	if len(suites) == len(families) {
		for _, e := range equivalents {
			fmt.Printf("not counted, %s: %q for %q changes nothing: %s\n", e.File, short(e.With), short(e.Text), e.Why)
		}
	}
	fmt.Printf("%d killed, %d refused by suites, %d failed; %.0f s, %.0f s of processor: %.1f minutes on %d processors\n", killed, refused, failed,
		time.Since(began).Seconds(), spent.Seconds(), spent.Minutes()/processors, processors)
	if left > 0 {
		fmt.Printf("%d left out, which need a server: make mutants ARGS=all, or make proof\n", left)
	}
	if failed > 0 {
		return errors.New("a break that no test notices is a test that is missing")
	}
	return nil
}

// chosen returns the rows that the words name, those of one test package together, because they are
// built of the same parts. left is how many were left out for their server: without words, all that
// need one.
func chosen(words []string) (rows []row, left int) {
	all, server := slices.Contains(words, "all"), slices.Contains(words, "server")
	for _, area := range slices.Sorted(maps.Keys(tables)) {
		for _, m := range tables[area] {
			switch {
			case all || server && m.Server || !server && asked(words, area, m):
				rows = append(rows, row{area, m})
			case len(words) == 0 && m.Server:
				left++
			case len(words) == 0:
				rows = append(rows, row{area, m})
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.File, b.File))
	})
	return rows, left
}

// asked reports whether one of the words names the mutant.
func asked(words []string, area string, m mutant) bool {
	return slices.ContainsFunc(words, func(w string) bool {
		return w == area || slices.ContainsFunc([]string{m.File, m.Package, m.Test, m.Rule, m.Why}, func(s string) bool {
			return strings.Contains(s, w)
		})
	})
}

// askedFamily reports whether a suite is played: with all that need no server, or where one of the
// words names it.
func askedFamily(words []string, f family) bool {
	return len(words) == 0 || slices.Contains(words, "all") || slices.ContainsFunc(words, func(w string) bool {
		return w == f.Area || strings.Contains(f.Package, w) || strings.Contains(f.Test, w)
	})
}
