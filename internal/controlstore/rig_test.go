package controlstore_test

import (
	"errors"
	"testing"

	"github.com/onceq/onceq/dedupe/memstore"
)

func newStore(tb testing.TB) *memstore.Store {
	tb.Helper()
	s, err := memstore.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

var errCut = errors.New("the store does not answer")
