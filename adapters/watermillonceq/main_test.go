package watermillonceq_test

import (
	"testing"

	"github.com/onceq/onceq/internal/testserver"
)

// TestMain lets more tests wait at a time than there are processors: Watermill's suites wait for
// polls of a second, in real time.
func TestMain(m *testing.M) {
	if err := testserver.Together(16); err != nil {
		panic(err)
	}
	m.Run()
}
