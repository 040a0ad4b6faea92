package sqlitewriter

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrClosed: nothing was written, because the writer is closed.
	ErrClosed = errors.New("the store is closed")
	// ErrLocked: nothing was written, because others held the file's lock for too long.
	ErrLocked = errors.New("another transaction holds the file's write lock")
)

// The primary result codes of SQLite that mean: somebody else holds a lock.
const (
	codeBusy   = 5
	codeLocked = 6 // the same between connections that share a cache
)

// IsBusy knows a refused lock without knowing the driver: by the code, where the error tells
// it (modernc.org/sqlite), else by SQLite's own text.
func IsBusy(err error) bool {
	if err == nil {
		return false
	}
	if c := interface{ Code() int }(nil); errors.As(err, &c) {
		primary := c.Code() & 0xff
		return primary == codeBusy || primary == codeLocked
	}
	text := err.Error()
	return strings.Contains(text, "database is locked") || strings.Contains(text, "SQLITE_BUSY") ||
		strings.Contains(text, "database table is locked")
}

// codeFull: there is no room on the disk, or in the limit on the file's size.
const codeFull = 13

// isFull knows a full disk. A COMMIT that fails with it has not written its last page, so it is
// undone.
func isFull(err error) bool {
	if c := interface{ Code() int }(nil); errors.As(err, &c) {
		return c.Code()&0xff == codeFull
	}
	return strings.Contains(err.Error(), "database or disk is full")
}

// Explain says what was being done, in a form that errors.Is sees through: a refused lock is
// ErrLocked.
func Explain(what string, err error) error {
	switch {
	case IsBusy(err):
		return fmt.Errorf("%s: %w: %w", what, ErrLocked, err)
	case IsMissing(err):
		return fmt.Errorf("%s: %w (has Migrate been run?)", what, err)
	case strings.Contains(err.Error(), "no such column"), strings.Contains(err.Error(), "has no column named"), strings.Contains(err.Error(), "no such index"):
		return fmt.Errorf("%s: %w (is something missing, or the table of an older version? Run this version's Migrate on the file)", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// IsMissing reports whether there is no such table.
func IsMissing(err error) bool { return err != nil && strings.Contains(err.Error(), "no such table") }
