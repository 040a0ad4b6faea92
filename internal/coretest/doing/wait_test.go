package doing

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// recorded gives the key "k" a record of that status, as a worker of a message would.
func recorded(r *rig.Rig, to dedupe.Status, message string) {
	r.Helper()
	q := r.Store.Occupy(r.T, "k", 30*time.Second, dedupe.Rerun, message)
	if to != dedupe.Claimed {
		r.Store.EndClaim(r.T, q, dedupe.Settlement{To: to, Result: []byte("7"), ErrClass: "declined", ErrText: "no money"})
	}
}

// TestWait: each end of a job is told as what it is, soon after it has come, and what has not ended
// is waited for.
func TestWait(t *testing.T) {
	for name, c := range map[string]struct {
		to    dedupe.Status
		after time.Duration // the record is written so late
		value int
		want  error
		most  time.Duration
	}{
		"done before":     {dedupe.Done, 0, 7, nil, 0},
		"done later":      {dedupe.Done, time.Minute, 7, nil, time.Minute + 2*time.Second},
		"done soon":       {dedupe.Done, 30 * time.Millisecond, 7, nil, 130 * time.Millisecond},
		"failed":          {dedupe.Failed, time.Second, 0, &onceq.FailedError{}, 3 * time.Second},
		"parked":          {dedupe.Parked, time.Second, 0, &onceq.ParkedError{}, 3 * time.Second},
		"never sent":      {0, 0, 0, context.DeadlineExceeded, 5 * time.Minute},
		"running":         {dedupe.Claimed, 0, 0, context.DeadlineExceeded, 5 * time.Minute},
		"to be run again": {dedupe.Released, 0, 0, context.DeadlineExceeded, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				if c.to != 0 {
					time.AfterFunc(c.after, func() { recorded(d.Rig, c.to, "m") })
					rig.Pass(min(c.after, 1)) // what is due at once is there
					if c.after == 0 {
						rig.Pass(time.Nanosecond)
					}
				}
				ctx, cancel := context.WithTimeout(d.Context(), 5*time.Minute)
				defer cancel()
				begun := time.Now()
				v, err := onceq.Wait[int](ctx, d.Store, rig.Key("k"))
				d.Wants(name, v, err, c.value, c.want)
				if took := time.Since(begun); took > c.most {
					t.Errorf("it took %v, want at most %v", took, c.most)
				}
				if n := d.Store.Gets.Load(); n > 310 {
					t.Errorf("it has asked %d times in five minutes", n)
				}
				if c.want == context.DeadlineExceeded && !strings.Contains(err.Error(), map[dedupe.Status]string{0: "has no record", dedupe.Claimed: "is claimed", dedupe.Released: "is released"}[c.to]) {
					t.Errorf("the error does not say what the record was: %v", err)
				}
			})
		})
	}
}

// TestWaitForAStore: an outage is waited out for a minute, a hung call is given up, and what will
// never be answered ends at once.
func TestWaitForAStore(t *testing.T) {
	for name, c := range map[string]struct {
		fault     faulty.Faults
		away      time.Duration
		want      error
		within    time.Duration
		key, over string
	}{
		"away for 50 s": {faulty.Fail(rig.ErrBoom), 50 * time.Second, nil, 53 * time.Second, "k", ""},
		"away for good": {faulty.Fail(rig.ErrBoom), time.Hour, rig.ErrBoom, 63 * time.Second, "k", ""},
		"hangs":         {faulty.Hang(), time.Hour, context.DeadlineExceeded, 70 * time.Second, "k", ""},
		"panics":        {faulty.Panic("boom"), 10 * time.Second, nil, 13 * time.Second, "k", ""},
		"closed":        {faulty.Fail(dedupe.ErrClosed), time.Hour, dedupe.ErrClosed, 0, "k", ""},
		"a bad key":     {nil, 0, dedupe.ErrBadKey, 0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				recorded(d.Rig, dedupe.Done, "m")
				begun := time.Now()
				d.Store.SetFault(func(onceqtest.Call) faulty.Faults {
					if time.Since(begun) < c.away {
						return c.fault
					}
					return nil
				})
				v, err := onceq.Wait[int](d.Context(), d.Store, rig.Key(c.key))
				if (err == nil) != (c.want == nil) || !errors.Is(err, c.want) || err == nil && v != 7 {
					t.Errorf("%d, %v; want %v", v, err, c.want)
				}
				if took := time.Since(begun); took > c.within {
					t.Errorf("it took %v, want at most %v", took, c.within)
				}
			})
		})
	}
	for name, s := range map[string]dedupe.Store{"nil": nil, "none": onceq.NoStore} {
		if _, err := onceq.Wait[int](t.Context(), s, rig.Key("k")); err == nil || errors.Is(err, onceq.ErrNoStore) != (s != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSendOnce: nothing is sent where the job is over, or runs now; all else is sent, because a
// message too many is absorbed, and one too few is a job that is lost.
func TestSendOnce(t *testing.T) {
	for name, c := range map[string]struct {
		to    dedupe.Status
		owner string // the message that has claimed it; empty = a call of Do
		later time.Duration
		fault faulty.Faults
		sent  bool
		want  error
	}{
		"no record":               {sent: true},
		"done":                    {to: dedupe.Done, owner: "m"},
		"done by Do":              {to: dedupe.Done},
		"forgotten":               {to: dedupe.Done, owner: "m", later: 40 * 24 * time.Hour, sent: true},
		"running":                 {to: dedupe.Claimed, owner: "m"},
		"running in Do":           {to: dedupe.Claimed, sent: true},
		"its worker is dead":      {to: dedupe.Claimed, owner: "m", later: time.Minute, sent: true},
		"to be run again":         {to: dedupe.Released, owner: "m", sent: true},
		"failed":                  {to: dedupe.Failed, owner: "m", want: &onceq.FailedError{}},
		"parked":                  {to: dedupe.Parked, owner: "m", want: &onceq.ParkedError{}},
		"done, the store is away": {to: dedupe.Done, owner: "m", fault: faulty.Fail(rig.ErrBoom), sent: true},
		"done, the store hangs":   {to: dedupe.Done, owner: "m", fault: faulty.Hang(), sent: true},
	} {
		t.Run(name, func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				if c.to != 0 {
					recorded(d.Rig, c.to, c.owner)
				}
				rig.Pass(c.later)
				d.Store.Befalls(c.fault)
				m := onceq.Message("", "", []byte("k"))
				rec, err := onceq.SendOnce(d.Context(), d.Store, d.Q, rig.Key("k"), &m)
				d.Store.Heals()
				d.Wants(name, 0, err, 0, c.want)
				if (rec == nil) != c.sent {
					t.Errorf("the record is %+v, want one where nothing is sent", rec)
				}
				n := int64(0)
				if c.sent {
					if n = 1; m.Meta.Key != "k" || m.Meta.ID == "" {
						t.Errorf("the message is %+v", m.Meta)
					}
				}
				d.WantQueue(n)
			})
		})
	}
}

// TestSendOnceRefuses: what cannot be meant is not sent.
func TestSendOnceRefuses(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		ended, cancel := context.WithCancel(d.Context())
		cancel()
		k := rig.Key("k")
		letter := onceq.Message("", "k", nil)
		letter.Meta.Dead = &broker.Letter{Class: "error"}
		other, plain := onceq.Message("", "other", nil), onceq.Message("", "", nil)
		for name, c := range map[string]struct {
			ctx  context.Context
			s    dedupe.Store
			k    dedupe.Key
			m    *broker.Outgoing
			want string
		}{
			"no store":      {d.Context(), nil, k, &plain, "store is nil"},
			"NoStore":       {d.Context(), onceq.NoStore, k, &plain, "no dedupe store"},
			"no message":    {d.Context(), d.Store, k, nil, "message is nil"},
			"a bad key":     {d.Context(), d.Store, rig.Key(""), &plain, "Key is empty"},
			"our scope":     {d.Context(), d.Store, dedupe.Key{Scope: ":x", Key: "k"}, &plain, "reserved"},
			"another key":   {d.Context(), d.Store, k, &other, `Meta.Key is "other", and the key is "k"`},
			"a dead letter": {d.Context(), d.Store, k, &letter, "replay it"},
			"its time over": {ended, d.Store, k, &plain, "nothing was sent: context canceled"},
		} {
			rec, err := onceq.SendOnce(c.ctx, c.s, d.Q, c.k, c.m)
			if rec != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, %v; want %q", name, rec, err, c.want)
			}
		}
		d.WantQueue(0)
	})
}

// TestSendOnceAtOnce: two callers that both find nothing both send, and the job runs once.
func TestSendOnceAtOnce(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		sent := 0
		for range 2 {
			m := onceq.Message("", "", []byte("k"))
			if rec, err := onceq.SendOnce(r.Context(), r.Store, r.Q.Broker, rig.Key("k"), &m); err != nil || rec != nil {
				t.Fatal(rec, err)
			}
			sent++
		}
		r.RunFor(time.Minute)
		if got := r.Seen.Started("k"); got != 1 || sent != 2 {
			t.Errorf("%d messages, %d runs; want 2 and 1", sent, got)
		}
		m := onceq.Message("", "", []byte("k"))
		if rec, err := onceq.SendOnce(r.Context(), r.Store, r.Q.Broker, rig.Key("k"), &m); err != nil || rec == nil || rec.Status != dedupe.Done {
			t.Errorf("the third: %+v, %v; want the done record", rec, err)
		}
		r.WantQueue(0)
	})
}
