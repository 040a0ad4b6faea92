package shop

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write orders.csv anew")

// TestOrdersFile holds orders.csv and corrections.csv to their generator: go test
// ./examples/internal/shop -run OrdersFile -update
func TestOrdersFile(t *testing.T) {
	orders, corrections := Generate(2000)
	for name, want := range map[string][]byte{"orders.csv": orders, "corrections.csv": corrections} {
		if *update {
			require.NoError(t, os.WriteFile(name, want, 0o644))
		}
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%s is not what the generator makes; run with -update", name)
	}
}
