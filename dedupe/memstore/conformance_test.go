package memstore_test

import (
	"testing"

	"github.com/onceq/onceq/dedupe/dedupetest"
	"github.com/onceq/onceq/dedupe/memstore"
)

func TestConformance(t *testing.T) {
	dedupetest.Run(t, dedupetest.Harness{
		Virtual: true,
		Open: func(t testing.TB) dedupetest.Subject {
			s, err := memstore.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			return dedupetest.Subject{Store: s}
		},
	})
}
