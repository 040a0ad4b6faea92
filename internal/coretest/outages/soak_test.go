package outages

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/internal/coretest/worlds"
	"github.com/onceq/onceq/internal/proof"
)

// TestSoak lets workers, functions and relays run, fail, drain and crash. Their queues and their
// store fail in every way. At the end it checks that no job was lost or done twice. What goes wrong
// is drawn from the seed.
func TestSoak(t *testing.T) {
	seeds := []uint64{1, 2}
	if testing.Short() {
		seeds = seeds[:1]
	}
	for _, seed := range append(seeds, proof.Seeds(t)...) {
		p := membroker.Preset((seed - 1) % 4)
		t.Run(fmt.Sprintf("%v/%d", p, seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { worlds.Play(t, seed, worlds.Memory(p)) })
		})
	}
}
