package proof

import (
	"slices"
	"testing"

	"github.com/onceq/onceq/internal/rundir"
)

// taker is a test that learns what becomes of it.
type taker struct {
	testing.TB
	skipped bool
}

func (t *taker) Skipf(string, ...any) { t.skipped = true }

// TestOnly: what is left out is told at the end of the run, and proof leaves nothing out.
func TestOnly(t *testing.T) {
	run := rundir.Open(t.TempDir())
	t.Setenv(rundir.Env, run.Dir())
	for _, c := range []struct {
		env     string
		skipped bool
		said    []string
	}{
		{"1", false, nil},
		{"", true, []string{"left to make proof: the long one"}},
	} {
		t.Setenv(Env, c.env)
		test := &taker{TB: t}
		Only(test, "the long one")
		said, err := run.Said()
		if test.skipped != c.skipped || err != nil || !slices.Equal(said, c.said) {
			t.Errorf("%s=%q: skipped %v, said %q, %v; want %v, %q", Env, c.env, test.skipped, said, err, c.skipped, c.said)
		}
	}
}

func TestSeed(t *testing.T) {
	t.Setenv(SeedEnv, "17")
	if got := Seed(t); got != 17 {
		t.Errorf("%d, want the one that is given", got)
	}
	t.Setenv(SeedEnv, "")
	if a, b := Seed(t), Seed(t); a == 0 || a != b {
		t.Errorf("%d, %d; want one that is drawn, for the whole process", a, b)
	}
	for _, bad := range []string{"0", "-1", "x"} {
		if _, err := read(bad); err == nil {
			t.Errorf("%s=%s was taken", SeedEnv, bad)
		}
	}
}
