// Package arch holds the project's walls: tests that read every Go file of the tree and
// fail on an import, a call or a missing comment that the tables in rules_test.go forbid.
// They read the source itself, whatever its build tags, and run with the other tests.
package arch
