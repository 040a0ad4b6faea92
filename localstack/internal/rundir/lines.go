package rundir

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Say adds a line to those that the runner prints at the end: go test shows nothing of what a package that passes has
// to tell.
func (r Run) Say(line string) error {
	f, err := os.OpenFile(r.path("lines"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// one short write in append mode: processes do not tear each other's lines
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// Said returns the lines, sorted.
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
	return lines, nil
}
