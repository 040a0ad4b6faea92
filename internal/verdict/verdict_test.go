package verdict

import (
	"testing"

	"github.com/onceq/onceq/dedupe"
)

func TestJudge(t *testing.T) {
	released := func(class string) Verdict { return Verdict{To: dedupe.Released, Backoff: true, Class: class} }
	failed := func(class string) Verdict { return Verdict{To: dedupe.Failed, Class: class} }
	parked := func(class string) Verdict { return Verdict{To: dedupe.Parked, Class: class} }
	handedBack := func(class string) Verdict { return Verdict{To: dedupe.Released, Uncounted: true, Class: class} }
	done := Verdict{To: dedupe.Done}
	for _, c := range []struct {
		name string
		e    Ending
		want Verdict
	}{
		{"nil", Ending{}, done},
		{"nil, park", Ending{Parks: true}, done},
		{"nil, drained", Ending{Cut: ByDrain}, done},
		{"nil, the lease unconfirmed", Ending{Cut: ByUnconfirmed}, done},
		{"nil, joined", Ending{Joined: true}, released(NotCommitted)},
		{"nil, joined, timed out", Ending{Joined: true, Cut: ByTimeout}, released(TimedOut)},
		{"nil, joined, last try", Ending{Joined: true, LastTry: true}, failed(NotCommitted)},
		{"nil, joined, park", Ending{Joined: true, Parks: true}, parked(NotCommitted)},
		{"nil, joined, park, drained", Ending{Joined: true, Parks: true, Cut: ByDrain}, parked(NotCommitted)},
		{"nil, taken", Ending{Cut: ByTaker}, Verdict{}},

		{"error", Ending{Returned: Error}, released("")},
		{"error, last try", Ending{Returned: Error, LastTry: true}, failed("")},
		{"error, park", Ending{Returned: Error, Parks: true}, released("")},
		{"error, timed out", Ending{Returned: Error, Cut: ByTimeout}, released(TimedOut)},
		{"error, timed out, park", Ending{Returned: Error, Cut: ByTimeout, Parks: true}, parked(Interrupted)},
		{"error, the caller has gone", Ending{Returned: Error, Cut: ByCaller}, released("")},
		{"error, the caller has gone, park", Ending{Returned: Error, Cut: ByCaller, Parks: true}, parked(Interrupted)},
		{"error, the lease unconfirmed", Ending{Returned: Error, Cut: ByUnconfirmed}, released(Unconfirmed)},
		{"error, drained", Ending{Returned: Error, Cut: ByDrain, LastTry: true}, handedBack("")},
		{"error, drained, park", Ending{Returned: Error, Cut: ByDrain, Parks: true}, parked(Interrupted)},
		{"error, taken", Ending{Returned: Error, Cut: ByTaker, Parks: true}, Verdict{}},

		{"not begun", Ending{Returned: NotBegun}, handedBack("")},
		{"not begun, last try, timed out, park", Ending{Returned: NotBegun, LastTry: true, Cut: ByTimeout, Parks: true}, handedBack("")},
		{"not begun, taken", Ending{Returned: NotBegun, Cut: ByTaker}, Verdict{}},

		{"unknown", Ending{Returned: Error, Unknown: true}, released("")},
		{"unknown, park", Ending{Returned: Error, Unknown: true, Parks: true}, parked(Interrupted)},
		{"unknown and permanent, park", Ending{Returned: Permanent, Unknown: true, Parks: true}, parked(Interrupted)},
		{"retry after", Ending{Returned: Error, Asks: true}, Verdict{To: dedupe.Released}},
		{"retry after, last try", Ending{Returned: Error, Asks: true, LastTry: true}, failed("")},
		{"retry after, drained", Ending{Returned: Error, Asks: true, Cut: ByDrain}, handedBack("")},

		{"postponed", Ending{Returned: Postpone}, handedBack(Postponed)},
		{"postponed, last try", Ending{Returned: Postpone, LastTry: true}, handedBack(Postponed)},
		{"postponed, drained", Ending{Returned: Postpone, Cut: ByDrain}, handedBack(Postponed)},
		{"postponed, timed out", Ending{Returned: Postpone, Cut: ByTimeout}, handedBack(Postponed)},
		{"postponed, joined", Ending{Returned: Postpone, Joined: true}, handedBack(Postponed)},
		{"postponed, park", Ending{Returned: Postpone, Parks: true}, handedBack(Postponed)},
		{"postponed, park, timed out", Ending{Returned: Postpone, Parks: true, Cut: ByTimeout}, parked(Interrupted)},
		{"postponed, park, unknown", Ending{Returned: Postpone, Parks: true, Unknown: true}, parked(Interrupted)},
		{"postponed, taken", Ending{Returned: Postpone, Cut: ByTaker}, Verdict{}},

		{"permanent", Ending{Returned: Permanent}, failed("")},
		{"permanent, park", Ending{Returned: Permanent, Parks: true}, failed("")},
		{"permanent, drained", Ending{Returned: Permanent, Cut: ByDrain}, failed("")},
		{"permanent, timed out", Ending{Returned: Permanent, Cut: ByTimeout}, failed("")},
		{"panic", Ending{Returned: Panic}, released(Panicked)},
		{"panic, last try", Ending{Returned: Panic, LastTry: true}, failed(Panicked)},
		{"panic, park", Ending{Returned: Panic, Parks: true}, parked(Interrupted)},
		{"panic, drained", Ending{Returned: Panic, Cut: ByDrain}, handedBack(Panicked)},
	} {
		if got := Judge(c.e); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}
