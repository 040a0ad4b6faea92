package sqlitewriter

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// mattnError is what github.com/mattn/go-sqlite3 returns: its code is a field.
type mattnError struct {
	Code int
	text string
}

func (e mattnError) Error() string { return e.text }

// codeError is what modernc.org/sqlite returns.
type codeError struct {
	code int
	text string
}

func (e *codeError) Error() string { return e.text }
func (e *codeError) Code() int     { return e.code }

func TestIsBusy(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("boom"), false},
		{context.Canceled, false},
		{&codeError{5, "x"}, true},
		{&codeError{5 | 2<<8, "x"}, true}, // SQLITE_BUSY_SNAPSHOT
		{&codeError{6, "x"}, true},
		{fmt.Errorf("wrapped: %w", &codeError{5, "x"}), true},
		{&codeError{1, "UNIQUE constraint failed: database is locked"}, false},
		{mattnError{5, "database is locked"}, true},
		{mattnError{6, "database table is locked"}, true},
		{errors.New("sqlite3: database is locked"), true},
		{errors.New("busy (SQLITE_BUSY)"), true},
		{mattnError{13, "database or disk is full"}, false},
	} {
		if got := IsBusy(c.err); got != c.want {
			t.Errorf("IsBusy(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}
