package pgstore

import "testing"

func TestFollower(t *testing.T) {
	for s, want := range map[string]string{
		"a": "b", "ab": "ac", "a\x7f": "a\u0080", "é": "ê", "\ud7ff": "\ue000", "a\ud7ff": "a\ue000",
		"a\U0010ffff": "b", "a\U0010ffff\U0010ffff": "b", "\U0010ffff": "", "\U0010ffff\U0010ffff": "", "": "",
	} {
		if got := follower(s); got != want {
			t.Errorf("follower(%q) is %q, want %q", s, got, want)
		}
	}
}
