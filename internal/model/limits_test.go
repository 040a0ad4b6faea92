package model

import (
	"strings"
	"testing"
)

// What the protocol does not promise, so that nobody believes that it does.
func TestKnownLimits(t *testing.T) {
	for _, l := range []struct {
		name  string
		limit Property
		c     Config
	}{
		// The first packet of a repeated claim arrives when another worker's claim has come and
		// gone: no record of the token is left, and it wins anew. The worker, still at work under
		// its first claim, settles the new one and puts a letter with the fence of the old one. Its
		// replay finds the failure, and puts the letter again with the right fence.
		{"a late claim revives a worker", LetterIsTrue, Config{Tx: true, Policies: reruns, LatePackets: true, TellOld: true}},
		// A letter that does not fit with its metadata cannot say which failure it may reopen.
		{"bare letters reopen nothing", DoneReachable, Config{Tx: true, Policies: reruns, LettersBare: true, MaxAttempts: 1}},
	} {
		t.Run(l.name, func(t *testing.T) {
			l.c.Watch = []Property{l.limit}
			r := explore(t, l.c)
			if !r.Found {
				t.Fatalf("the limit is none any more: %v holds", l.limit)
			}
			t.Logf("%s", strings.Join(r.Trace, "\n"))
		})
	}
}
