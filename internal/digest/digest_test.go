package digest_test

import (
	"testing"

	"github.com/onceq/onceq/internal/digest"
)

// Keys that payment services know are made here, so the sums never change.
func TestSums(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range []struct {
		texts []string
		want  string
	}{
		{nil, "e3b0c44298fc1c149afbf4c8996fb924"},
		{[]string{""}, "af5570f5a1810b7af78caf4bc70a660f"},
		{[]string{"a", "b"}, ""},
		{[]string{"ab"}, ""},
		{[]string{"ab", ""}, ""},
		{[]string{"", "ab"}, ""},
		{[]string{"onceq effect 1", "payments", "order-7", "charge"}, "bfcb27719bfae15e86d71f9bbd3be95a"},
	} {
		got := digest.Of(c.texts...)
		if c.want != "" && got != c.want {
			t.Errorf("%q: %s, want %s", c.texts, got, c.want)
		}
		if seen[got] {
			t.Errorf("%q has the sum of another list", c.texts)
		}
		seen[got] = true
	}
	if got, want := digest.Hex(digest.Numbers(digest.Numbers(nil, int64(1), -1), uint64(1<<63))), "fa422b4f82964fe2edb0299c01bb73e2"; got != want {
		t.Errorf("numbers: %s, want %s", got, want)
	}
}
