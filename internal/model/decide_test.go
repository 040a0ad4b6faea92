package model

import (
	"testing"

	"github.com/onceq/onceq/dedupe"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name string
		e    Ending
		want Verdict
	}{
		{"nil", Ending{}, Verdict{To: dedupe.Done}},
		{"nil, drained", Ending{Cut: true, Draining: true}, Verdict{To: dedupe.Done}},
		{"nil, joined", Ending{Joined: true}, Verdict{To: dedupe.Released}},
		{"nil, joined, last try", Ending{Joined: true, LastTry: true}, Verdict{To: dedupe.Failed}},
		{"nil, joined, park", Ending{Joined: true, Parks: true}, Verdict{To: dedupe.Parked}},
		{"error", Ending{Returned: Error}, Verdict{To: dedupe.Released}},
		{"error, last try", Ending{Returned: Error, LastTry: true}, Verdict{To: dedupe.Failed}},
		{"error, park", Ending{Returned: Error, Parks: true}, Verdict{To: dedupe.Released}},
		{"error, drained", Ending{Returned: Error, Cut: true, Draining: true, LastTry: true}, Verdict{To: dedupe.Released, Uncounted: true}},
		{"error, drained, park", Ending{Returned: Error, Cut: true, Draining: true, Parks: true}, Verdict{To: dedupe.Parked}},
		{"permanent", Ending{Returned: Permanent}, Verdict{To: dedupe.Failed}},
		{"permanent, drained", Ending{Returned: Permanent, Cut: true, Draining: true}, Verdict{To: dedupe.Failed}},
		{"panic", Ending{Returned: Panic}, Verdict{To: dedupe.Released}},
		{"panic, park", Ending{Returned: Panic, Parks: true}, Verdict{To: dedupe.Parked}},
	} {
		if got := Judge(c.e); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}
