// Weight prints what the tree weighs for who enters it, and for who imports it: make weight. It
// changes nothing.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/onceq/onceq/internal/weight/clock"
)

func main() {
	if err := run(os.Stdout, "."); err != nil {
		fmt.Fprintln(os.Stderr, "weight:", err)
		os.Exit(1)
	}
}

// run weighs the tree at root.
func run(w io.Writer, root string) error {
	files, err := tracked(root)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "names at the root             %7d\n", len(names(files)))
	lines, err := count(root, files)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "lines of Go, code             %7d\n", lines.code)
	fmt.Fprintf(w, "lines of Go, tests            %7d\n", lines.tests)
	surface, err := readSurface(root)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "packages that users import    %7d\n", surface.packages)
	fmt.Fprintf(w, "exported names in them        %7d, %d of them in onceq\n", surface.names, surface.core)
	fmt.Fprintf(w, "lines of the whole surface    %7d\n", surface.lines)
	fmt.Fprintf(w, "config fields in them         %7d, %d of them in onceq (%s)\n", surface.fields, surface.coreFields, strings.Join(surface.configs, ", "))
	runs, err := clock.Runs(root)
	if err != nil {
		return err
	}
	for _, speed := range []string{"quick", "test", "proof"} {
		if r, ok := runs[speed]; ok {
			fmt.Fprintf(w, "seconds of make %-13s %7.0f, on %s\n", speed, r.Seconds, r.Ended.Format("2006-01-02 15:04"))
		} else {
			fmt.Fprintf(w, "seconds of make %-13s       –, not run yet\n", speed)
		}
	}
	fmt.Fprintln(w, "modules of others that Go looks at for who imports")
	return intake(w, root, files)
}
