package onceq

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// A claim may be won in the moment in which its caller gives up, before the flow is stopped. f must
// not run any more, because the caller is told that it has not run and will not run.
func TestDoClaimWonAsTheCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := NewProcessor(ProcessorConfig{Store: st, Scope: "test"})
		if err != nil {
			t.Fatal(err)
		}
		key := dedupe.Key{Scope: "test", Key: "a"}
		c, err := newCall(p, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.f = func(context.Context, *Job) error {
			t.Error("it ran")
			return nil
		}
		try := c.newTry(t.Context(), nil)
		try.left, try.outage = true, true // and not stopped yet
		try.f.Offer(0, []*run{try.r})
		<-try.over
		if notRun := new(NotRunError); !errors.As(try.mine.err, &notRun) {
			t.Errorf("answered %v", try.mine.err)
		}
		rs, err := st.Get(t.Context(), []dedupe.Key{key})
		if err != nil || rs[0] == nil || rs[0].Status != dedupe.Released || rs[0].Attempt != 0 {
			t.Errorf("the record is %+v, %v", rs[0], err)
		}
		<-time.After(time.Minute)
	})
}

// The claim may be won, and the caller's context may end, before the call looks at either. f must
// not start, although nobody has cut off the run's own context yet.
func TestDoClaimWonAsTheContextEnds(t *testing.T) {
	for range 20 { // select takes either
		synctest.Test(t, func(t *testing.T) {
			st, err := memstore.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := NewProcessor(ProcessorConfig{Store: st, Scope: "test"})
			if err != nil {
				t.Fatal(err)
			}
			c, err := newCall(p, dedupe.Key{Scope: "test", Key: "a"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			c.f = func(context.Context, *Job) error {
				t.Error("it ran")
				return nil
			}
			gone := errors.New("the client has gone")
			ctx, cancel := context.WithCancelCause(t.Context())
			try := c.newTry(ctx, nil)
			try.f.Offer(0, []*run{try.r})
			synctest.Wait() // the claim is won
			cancel(gone)
			if a, ended := try.awaitClaim(ctx); ended {
				t.Fatalf("the claim was left: %v", a.err)
			}
			p.calls.e.Work(try.r)
			<-try.over
			if notRun := new(NotRunError); !errors.As(try.mine.err, &notRun) || !errors.Is(try.mine.err, gone) {
				t.Errorf("answered %v", try.mine.err)
			}
			<-time.After(time.Minute)
		})
	}
}
