package rundir

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Say adds a line to those that the runner prints at the end: go test shows nothing of what a
// package that passes has to tell.
func (r Run) Say(line string) error { return r.add("lines", line) }

// Said returns the lines, sorted, each of them once.
func (r Run) Said() ([]string, error) {
	b, err := os.ReadFile(r.path("lines"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	slices.Sort(lines)
	return slices.Compact(lines), nil
}
