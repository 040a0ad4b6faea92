package elsewhere

import (
	"testing"
)

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		failure          string
		known, sometimes bool
		want             finding
	}{
		{"", false, false, asExpected},
		{"x", false, false, newDifference},
		{"x", true, false, knownDifference},
		{"x", true, true, knownDifference},
		{"", true, false, noDifference},
		{"", true, true, asExpected},
	} {
		if got := verdict(c.failure, c.known, c.sometimes); got != c.want {
			t.Errorf("verdict(%q, %v, %v) = %d, want %d", c.failure, c.known, c.sometimes, got, c.want)
		}
	}
}

func TestTry(t *testing.T) {
	failing := func(j Judge) {
		j.Helper()
		j.Fatal("no ", j.Context() == t.Context())
		panic("it went on")
	}
	if got := Try(t.Context(), failing); got != "no true" {
		t.Errorf("a behaviour that fails says %q", got)
	}
	if got := Try(t.Context(), func(Judge) {}); got != "" {
		t.Errorf("one that does not fail says %q", got)
	}
}

func TestCompare(t *testing.T) {
	rows := []Row{{"same", "doc", false}, {"ours", "doc", true}, {"other", "doc", false}, {"at times", "doc", false}}
	known := map[string]Difference{"other": Does("differs"), "at times": {Does: "differs", Sometimes: true}}
	tried := make([]bool, len(rows))
	t.Run("rows", func(t *testing.T) {
		Compare(t, "the service", known, rows, func(_ *testing.T, i int) string {
			tried[i] = true
			return []string{"", "", "bad\nand more", ""}[i]
		})
	})
	if !tried[0] || tried[1] || !tried[2] || !tried[3] {
		t.Errorf("tried %v", tried)
	}
}
