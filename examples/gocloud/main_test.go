package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// As it was, the program ships what was sent twice twice, and again what took too long.
func TestBefore(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, true))
	require.Contains(t, out.String(), "shipped: A-1 ")
	require.NotContains(t, out.String(), "shipped: A-1 1,")
	require.NotContains(t, out.String(), "slow-3 1\n")
}

// With onceq it ships each order once.
func TestAfter(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, false))
	require.Contains(t, out.String(), "shipped: A-1 1, B-2 1, slow-3 1\n")
}
