//go:build !unix

// Compat runs the tests of pgstore and pgbroker on each version of PostgreSQL; on this system it
// cannot.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "compat: needs a Unix system")
	os.Exit(1)
}
