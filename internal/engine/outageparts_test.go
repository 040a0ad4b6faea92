package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/internal/retry"
)

// An outage is over when all of its parts are over. An outage that nobody has asked after for long
// is over, too: the next failure begins another one.
func TestOutageParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o Outage
		rest := func(d time.Duration) { retry.Rest(t.Context(), d) }
		wants := func(what string, lasts time.Duration, tell bool, want time.Duration, wantTell bool) {
			t.Helper()
			if lasts != want || tell != wantTell {
				t.Errorf("%s: %v, %v; want %v, %v", what, lasts, tell, want, wantTell)
			}
		}
		d, tell := o.Fails(partClaims, true)
		wants("claims fail", d, tell, 0, true)
		rest(time.Minute)
		d, tell = o.Fails(partEnds, true)
		wants("ends fail too", d, tell, 0, false)
		d, tell = o.Succeeds(partClaims)
		wants("claims are back", d, tell, 0, false)
		d, tell = o.Succeeds(partEnds)
		wants("all is back", d, tell, time.Minute, true)

		o.Fails(partClaims, true)
		rest(TellAgain + time.Second)
		d, tell = o.Fails(partEnds, true)
		wants("another outage", d, tell, 0, true)
		d, tell = o.Succeeds(partEnds)
		wants("which has ended", d, tell, 0, true)
	})
}

// A call that fails a moment after the end began before it. It is no outage of its own.
func TestStragglerIsNoNewOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o Outage
		if _, tell := o.Fails(Whole, true); !tell {
			t.Error("an outage is not told of")
		}
		<-time.After(TellAgain)
		if _, tell := o.Succeeds(Whole); !tell {
			t.Error("its end is not told of")
		}
		if _, tell := o.Fails(Whole, true); tell {
			t.Error("a straggler is told of")
		}
		if _, tell := o.Succeeds(Whole); tell {
			t.Error("and so is its end")
		}
		<-time.After(calm)
		if _, tell := o.Fails(Whole, true); !tell {
			t.Error("another outage is not told of")
		}
	})
}
