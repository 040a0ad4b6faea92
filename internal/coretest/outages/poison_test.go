package outages

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/onceqtest"
)

// poisonedEnds makes every settlement fail as a whole that has the key "bad" among its entries.
func poisonedEnds(r *rig.Rig) {
	r.Store.Set(func(s *rig.Store) {
		s.OnSettle = func(ss []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
			if slices.ContainsFunc(ss, func(q dedupe.Settlement) bool { return q.Key.Key == "bad" }) {
				panic("the store breaks on this key")
			}
			return as
		}
	})
}

// The store breaks as a whole on one job's end. That must not stop the ends of the others, nor keep
// its place for ever.
func TestPoisonedEndStopsNobody(t *testing.T) {
	for name, together := range map[string]bool{"together": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				poisonedEnds(r)
				keys, after := rig.Numbered("k", 60), 0
				if together {
					after = 30
					r.Send(append([]string{"bad"}, keys[:after]...)...)
				}
				r.Start()
				if !together {
					r.Send("bad")
					rig.Pass(time.Second)
				}
				for _, k := range keys[after:] { // an end is given up where others are answered meanwhile
					r.Send(k)
					rig.Pass(time.Second)
				}
				rig.Pass(20 * time.Second)
				for _, k := range keys {
					r.WantStatus(k, dedupe.Done)
					if n := r.Seen.Started(k); n != 1 {
						t.Errorf("%q ran %d times", k, n)
					}
				}
				if os := r.Seen.Outcomes("bad"); len(os) == 0 || os[0] != "unsettled" {
					t.Errorf("the bad one ended as %q", os)
				}
				r.Store.Set(func(s *rig.Store) { s.OnSettle = nil })
				rig.Pass(10 * time.Minute)
				r.WantQueue(0)
				if n := r.Logged.Count("the store does not answer"); n > 1 {
					t.Errorf("%d lines tell of an outage", n)
				}
			}, rig.With(func(c *rig.Setup) { c.Concurrency, c.Pollers = 40, 1 }))
		})
	}
}

// A refusal that follows an outage counts from its own beginning, although the outage was longer
// than SettleTimeout. It is one where the store answers other ends.
func TestRefusalAfterAnOutageOfSettlements(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Settle)
		r.Send("a")
		r.Start()
		rig.Pass(time.Minute)
		refused := 0
		r.Store.Set(func(s *rig.Store) {
			s.Fault = nil
			s.OnSettle = func(ss []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
				for i := range ss {
					if ss[i].Key.Key != "a" {
						continue
					}
					if refused++; refused < 5 {
						as[i] = dedupe.Settled{Err: rig.ErrBoom}
					}
				}
				return as
			}
		})
		for _, k := range rig.Numbered("k", 60) {
			r.Send(k)
			rig.Pass(time.Second)
		}
		r.WantOutcomes("a", "done")
		r.WantQueue(0)
	}, rig.With(func(c *rig.Setup) { c.SettleTimeout = 30 * time.Second }))
}

// A store answers that a result is too large, although there is none. It is asked with pauses, and
// not for ever.
func TestNoResultTooLarge(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.OnSettle = func(_ []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
				for i := range as {
					as[i] = dedupe.Settled{Err: dedupe.ErrResultSize}
				}
				return as
			}
		})
		r.Send("a")
		r.Start()
		rig.Pass(10 * time.Second)
		r.WantOutcomes("a", "unsettled")
		if n := r.Store.Settles.Load(); n > 20 {
			t.Errorf("%d settlements in ten seconds", n)
		}
		if n := r.Logged.Count("is not kept"); n != 0 {
			t.Errorf("%d lines tell of a result that there was not", n)
		}
	})
}

// A letter on which the dead-letter queue breaks as a whole must not stop the others.
func TestPoisonedLetterStopsNobody(t *testing.T) {
	for name, together := range map[string]bool{"together": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			var breaks atomic.Bool
			rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
				breaks.Store(true)
				keys, after := rig.Numbered("k", 40), 0
				r.Start()
				if together {
					after = 20
					r.Send(append([]string{"bad"}, keys[:after]...)...)
				} else {
					r.Send("bad")
				}
				for _, k := range keys[after:] { // a letter is given up where others are taken meanwhile
					rig.Pass(time.Second)
					r.Send(k)
				}
				rig.Pass(30 * time.Second)
				if n := len(r.Letters()); n != len(keys) {
					t.Errorf("%d letters, want %d", n, len(keys))
				}
				r.WantQueue(1)
				r.WantOutcomes("bad", "kept")
				breaks.Store(false)
				rig.Pass(6 * time.Minute)
				if m := r.Letter(onceq.ClassPermanent); string(m.Body) != "bad" {
					t.Errorf("the letter is %q", m.Body)
				}
				r.WantQueue(0)
			}, rig.With(func(c *rig.Setup) {
				c.Concurrency = 40
				c.DeadLetter = &breaking{Sender: c.DeadLetter, on: func(o *broker.Outgoing) bool { return breaks.Load() && string(o.Body) == "bad" }}
			}))
		})
	}
}

// breaking is a queue that fails each Send which has such a message.
type breaking struct {
	broker.Sender
	on func(o *broker.Outgoing) bool
}

func (b *breaking) Send(ctx context.Context, out []broker.Outgoing) ([]string, error) {
	for i := range out {
		if b.on(&out[i]) {
			return nil, rig.ErrBoom
		}
	}
	return b.Sender.Send(ctx, out)
}

// An outage of the store is logged once, whatever meets it, and again each five minutes.
func TestStoreOutageIsOneLine(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(time.Minute)
		return nil
	}, func(r *rig.Rig) {
		r.Start()
		for n := range 2 {
			r.Send(rig.Numbered(fmt.Sprintf("k%d-", n), 20)...)
			rig.Pass(30 * time.Second)
			// Twenty ends, and then claims, are to meet it.
			r.Store.Fails(rig.ErrBoom, onceqtest.Claim, onceqtest.Renew, onceqtest.Settle)
			rig.Pass(50 * time.Second)
			r.Send(rig.Numbered(fmt.Sprintf("l%d-", n), 20)...)
			rig.Pass(23 * time.Minute)
			if got := r.Logged.Count("the store does not answer"); got != 5*(n+1) {
				t.Errorf("%d lines in 23 minutes of outage %d, want one each five", got-5*n, n)
			}
			r.Store.Heals()
			rig.Pass(5 * time.Minute)
			r.WantQueue(0)
			if got := r.Logged.Count("the store answers again"); got != n+1 {
				t.Errorf("%d lines tell of its end", got)
			}
		}
	}, rig.With(func(c *rig.Setup) { c.Concurrency, c.Prefetch, c.Lease, c.Visibility = 20, 10, time.Hour, time.Hour }), rig.Preset(membroker.Memory))
}

// The store breaks as a whole on the renewal of one claim. That must not make the others lapse.
func TestPoisonedRenewalCutsNobodyElseOff(t *testing.T) {
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		retry.Rest(ctx, 10*time.Minute)
		return context.Cause(ctx)
	}, func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.OnRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				if slices.ContainsFunc(rs, func(q dedupe.Renewal) bool { return q.Key.Key == "bad" }) {
					panic("the store breaks on this key")
				}
				return as
			}
		})
		keys := rig.Numbered("k", 30)
		r.Send(append([]string{"bad"}, keys...)...)
		r.Start()
		rig.Pass(9 * time.Minute)
		if n := r.Store.Renews.Load(); n > 600 {
			t.Errorf("%d renewals in nine minutes", n)
		}
		rig.Pass(10 * time.Minute)
		for _, k := range keys {
			r.WantOutcomes(k, "done")
		}
	}, rig.With(func(c *rig.Setup) { c.Concurrency = 40 }))
}

// Once the bad claim is found, it is renewed alone, so that the others' beats do not fail again.
func TestPoisonedRenewalGoesAlone(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(20 * time.Minute)
		return nil
	}, func(r *rig.Rig) {
		var among, alone atomic.Int64
		r.Store.Set(func(s *rig.Store) {
			s.OnRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				if slices.ContainsFunc(rs, func(q dedupe.Renewal) bool { return q.Key.Key == "bad" }) {
					if len(rs) > 1 {
						among.Add(1)
					} else {
						alone.Add(1)
					}
					panic("the store breaks on this key")
				}
				return as
			}
		})
		r.Send(append([]string{"bad"}, rig.Numbered("k", 8)...)...)
		r.Start()
		rig.Pass(5 * time.Minute)
		before := among.Load()
		rig.Pass(10 * time.Minute)
		defer rig.Pass(10 * time.Minute)
		if after := among.Load(); before == 0 || after != before || alone.Load() < 20 {
			t.Errorf("it was renewed among others %d times, and then %d more; %d times alone", before, after-before, alone.Load())
		}
	})
}

// Where the bad claim is never alone in its call, it is found by dividing the call.
func TestPoisonAmongAStream(t *testing.T) {
	for name, h := range map[string]onceq.HandlerFunc{"ends": rig.Returns(nil), "letters": rig.Failing} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, h, func(r *rig.Rig) {
				if name == "ends" {
					poisonedEnds(r)
					r.Store.Set(func(s *rig.Store) {
						s.Fault = func(c onceqtest.Call) (f faulty.Faults) {
							if c.Op == onceqtest.Settle {
								f = faulty.Slow(300 * time.Millisecond)
							}
							return f
						}
					})
				}
				r.Start()
				r.Send("bad")
				for n := range 600 {
					r.Send("k" + strconv.Itoa(n))
					rig.Pass(100 * time.Millisecond)
				}
				if os := r.Seen.Outcomes("bad"); len(os) == 0 || os[0] != "unsettled" && os[0] != "kept" {
					t.Errorf("the bad one ended as %q", os)
				}
			}, rig.With(func(c *rig.Setup) {
				c.Concurrency = 100
				c.DeadLetter = &breaking{Sender: c.DeadLetter, on: func(o *broker.Outgoing) bool {
					if name == "letters" {
						rig.Takes(100 * time.Millisecond)
					}
					return string(o.Body) == "bad"
				}}
			}))
		})
	}
}
