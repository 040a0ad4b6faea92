package arch

import (
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mostLines is how many lines of Go the tree has at most, tests and all; make weight counts them.
// Raise it with a reason, for something that users asked for. The last: it fell by 1,500, because
// tests make what they need in a line (internal/must), and share more of it.
const mostLines = 309_100

var update = flag.Bool("update", false, "write ratchets.txt and intake.txt as the code is now")

// ratchetsText has the ratchets: numbers that may only fall. A review sees what -update changes.
//
//go:embed ratchets.txt
var ratchetsText string

// largestCycle is how many files of a package may know each other in a circle; a package that is
// not listed has no circle. twoMeanings are the methods of one name on two types of a package, with
// different meanings.
var largestCycle, twoMeanings = readRatchets(ratchetsText)

func readRatchets(text string) (cycles map[string]int, methods map[string][]string) {
	cycles, methods = map[string]int{}, map[string][]string{}
	for line := range strings.Lines(text) {
		switch w := strings.Fields(line); {
		case len(w) == 3 && w[0] == "cycle":
			cycles[w[1]], _ = strconv.Atoi(w[2])
		case len(w) > 2 && w[0] == "methods":
			methods[w[1]] = w[2:]
		}
	}
	return cycles, methods
}

// ratchetsOf is the text of the ratchets as the tree is.
func ratchetsOf(tr *tree) string {
	var b strings.Builder
	b.WriteString("# Numbers that may only fall: a review asks why one has risen. go test ./internal/arch -update\n# writes them as the code is.\n")
	circles, doubles := tr.circles(), tr.doubles()
	for _, dir := range slices.Sorted(maps.Keys(circles)) {
		if n := len(circles[dir]); n > 1 {
			fmt.Fprintf(&b, "cycle %s %d\n", dir, n)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(doubles)) {
		if len(doubles[dir]) > 0 {
			fmt.Fprintf(&b, "methods %s %s\n", dir, strings.Join(slices.Sorted(maps.Keys(doubles[dir])), " "))
		}
	}
	return b.String()
}

// TestRatchets: with -update it writes the ratchets before the other tests look at them.
func TestRatchets(t *testing.T) {
	if *update {
		text := ratchetsOf(ours(t))
		if err := os.WriteFile("ratchets.txt", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		largestCycle, twoMeanings = readRatchets(text)
	}
	if got := ratchetsOf(ours(t)); got != ratchetsText && !*update {
		t.Error("ratchets.txt is not as the code is: go test ./internal/arch -update writes it")
	}
}

// stdMethods are asked for by interfaces of the standard library, and of what our packages extend.
var stdMethods = []string{
	"Error", "Unwrap", "Is", "As", "String", "GoString", "Format", "LogValue",
	"Enabled", "WithAttrs", "WithGroup",
	"Read", "Write", "Close", "Seek", "ServeHTTP", "RoundTrip", "Flush",
	"Len", "Less", "Swap", "Push", "Pop", "Lock", "Unlock",
	"MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText", "Scan", "Value",
	"Deadline", "Done", "Err", "Import", "Set", "Errorf",
}
