package gocloudtest

import (
	"os"
	"testing"
)

// Asked reports whether everything is to be played.
func Asked() bool { return os.Getenv("ONCEQ_PROOF") == "1" }

// Only ends a test that make proof alone plays.
func Only(t testing.TB, what string) {
	t.Helper()
	if !Asked() {
		t.Skipf("left to make proof: %s", what)
	}
}
