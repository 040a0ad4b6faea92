package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Before, each duplicate is a charge.
func TestWithoutOnceq(t *testing.T) {
	var out strings.Builder
	run(t.Context(), &out, false)
	require.Equal(t, "order-1 was charged 2 times\norder-2 was charged 2 times\norder-3 was charged 2 times\n", out.String())
}

// After three lines more, each order is one charge.
func TestProgram(t *testing.T) {
	var out strings.Builder
	run(t.Context(), &out, true)
	require.Equal(t, "order-1 was charged 1 times\norder-2 was charged 1 times\norder-3 was charged 1 times\n", out.String())
}
