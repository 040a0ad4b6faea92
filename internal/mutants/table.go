package main

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
}
