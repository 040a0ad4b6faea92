package pgbroker

import (
	"testing"

	"github.com/onceq/onceq/internal/testserver"
)

// TestMain lets more tests wait at a time than there are processors: in real time they wait for
// timeouts.
func TestMain(m *testing.M) {
	if err := testserver.Together(16); err != nil {
		panic(err)
	}
	m.Run()
}
