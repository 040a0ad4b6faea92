package main

import (
	"fmt"
	"strings"
)

// A mutant is one deliberate break of the product, and the test that notices it.
type mutant struct {
	// File is the path from the repository's root, and Text stands in it exactly once.
	File, Text string
	// With takes Text's place. The package must still build.
	With string
	// Package is the folder of the test that must turn red, from the root; Test is its name,
	// which may have the form "TestA/case".
	Package, Test string
	// Why says what a user would lose by the break.
	Why string
	// Rule names what the break leaves out: "claim: NAME", "renew: NAME" or "settle: NAME" for a
	// row of dedupe/machine, or a page of docs and a text that stands in one of its rules alone,
	// such as "protocol: settle failed". Empty where no page has such a rule.
	Rule string
	// Server says that the test needs a back end that runs. Such a row is played where it is asked
	// for.
	Server bool
}

// A family is a test whose parts are broken things, each of which the test must refuse. Each part
// is a row of the report, counted beside the mutants.
type family struct {
	// Area is what is broken: drivers, stores.
	Area string
	// Package and Test are as in a mutant. Each part of the test is named by what is broken.
	Package, Test string
}

// An equivalent is a change that no test can notice, because nobody can. It is listed, so that it
// is not found again, and not counted.
type equivalent struct {
	File, Text, With string
	// Why says why nothing changes.
	Why string
}

// row is a mutant in its table.
type row struct {
	area string
	mutant
}

func (r row) String() string {
	s := fmt.Sprintf("%-9s %s: %q by %s %s", r.area, r.File, short(r.Text), r.Package, r.Test)
	if r.Rule != "" {
		s += " [" + r.Rule + "]"
	}
	return s
}

// short is the first line of a text, cut for a line of the report.
func short(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line[:min(len(line), 60)]
}
