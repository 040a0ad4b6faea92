package rundir

import (
	"slices"
	"testing"
)

func TestSaid(t *testing.T) {
	r := Open(t.TempDir())
	if lines, err := r.Said(); len(lines) != 0 || err != nil {
		t.Errorf("nothing was said: %q, %v", lines, err)
	}
	for _, line := range []string{"b", "a"} {
		if err := r.Say(line); err != nil {
			t.Fatal(err)
		}
	}
	if lines, err := r.Said(); !slices.Equal(lines, []string{"a", "b"}) || err != nil {
		t.Errorf("%q, %v", lines, err)
	}
	if err := Open("/nonexistent").Say("lost"); err == nil {
		t.Error("a line was lost in silence")
	}
}
