package controlstore_test

import (
	"errors"
	"testing"

	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
)

func newStore(tb testing.TB) *memstore.Store {
	return must.Get(memstore.New(nil))
}

var errCut = errors.New("the store does not answer")
