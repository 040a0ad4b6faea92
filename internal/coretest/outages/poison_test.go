package onceq_test

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
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/onceqtest"
)

// poisonedEnds makes every settlement fail as a whole that has the key "bad" among its entries.
func (r *rig) poisonedEnds() {
	r.store.set(func(s *store) {
		s.onSettle = func(ss []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
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
			bubble(t, returns(nil), func(r *rig) {
				r.poisonedEnds()
				keys, after := numbered("k", 60), 0
				if together {
					after = 30
					r.send(append([]string{"bad"}, keys[:after]...)...)
				}
				r.start()
				if !together {
					r.send("bad")
					pass(time.Second)
				}
				for _, k := range keys[after:] { // an end is given up where others are answered meanwhile
					r.send(k)
					pass(time.Second)
				}
				pass(20 * time.Second)
				for _, k := range keys {
					r.wantStatus(k, dedupe.Done)
					if n := r.seen.started(k); n != 1 {
						t.Errorf("%q ran %d times", k, n)
					}
				}
				if os := r.seen.outcomes("bad"); len(os) == 0 || os[0] != "unsettled" {
					t.Errorf("the bad one ended as %q", os)
				}
				r.store.set(func(s *store) { s.onSettle = nil })
				pass(10 * time.Minute)
				r.wantQueue(0)
				if n := r.log.count("the store does not answer"); n > 1 {
					t.Errorf("%d lines tell of an outage", n)
				}
			}, with(func(c *setup) { c.Concurrency, c.Pollers = 40, 1 }))
		})
	}
}

// A refusal that follows an outage counts from its own beginning, although the outage was longer
// than SettleTimeout.
func TestRefusalAfterAnOutageOfSettlements(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.fails(errBoom, onceqtest.Settle)
		r.send("a")
		r.start()
		pass(time.Minute)
		refused := 0
		r.store.set(func(s *store) {
			s.fault = nil
			s.onSettle = func(_ []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
				if refused++; refused < 3 {
					as[0] = dedupe.Settled{Err: dedupe.ErrBusy}
				}
				return as
			}
		})
		pass(time.Minute)
		r.wantOutcomes("a", "done")
		r.wantQueue(0)
	}, with(func(c *setup) { c.SettleTimeout = 30 * time.Second }))
}

// A store answers that a result is too large, although there is none. It is asked with pauses, and
// not for ever.
func TestNoResultTooLarge(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.set(func(s *store) {
			s.onSettle = func(_ []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
				for i := range as {
					as[i] = dedupe.Settled{Err: dedupe.ErrResultSize}
				}
				return as
			}
		})
		r.send("a")
		r.start()
		pass(10 * time.Second)
		r.wantOutcomes("a", "unsettled")
		if n := r.store.settles.Load(); n > 20 {
			t.Errorf("%d settlements in ten seconds", n)
		}
		if n := r.log.count("is not kept"); n != 0 {
			t.Errorf("%d lines tell of a result that there was not", n)
		}
	})
}

// A letter on which the dead-letter queue breaks as a whole must not stop the others.
func TestPoisonedLetterStopsNobody(t *testing.T) {
	for name, together := range map[string]bool{"together": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			var breaks atomic.Bool
			bubble(t, failing, func(r *rig) {
				breaks.Store(true)
				keys, after := numbered("k", 40), 0
				r.start()
				if together {
					after = 20
					r.send(append([]string{"bad"}, keys[:after]...)...)
				} else {
					r.send("bad")
				}
				for _, k := range keys[after:] { // a letter is given up where others are taken meanwhile
					pass(time.Second)
					r.send(k)
				}
				pass(30 * time.Second)
				if n := len(r.letters()); n != len(keys) {
					t.Errorf("%d letters, want %d", n, len(keys))
				}
				r.wantQueue(1)
				r.wantOutcomes("bad", "kept")
				breaks.Store(false)
				pass(6 * time.Minute)
				if m := r.letter(onceq.ClassPermanent); string(m.Body) != "bad" {
					t.Errorf("the letter is %q", m.Body)
				}
				r.wantQueue(0)
			}, with(func(c *setup) {
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
			return nil, errBoom
		}
	}
	return b.Sender.Send(ctx, out)
}

// An outage of the store is logged once, whatever meets it, and again each five minutes.
func TestStoreOutageIsOneLine(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error {
		takes(time.Minute)
		return nil
	}, func(r *rig) {
		r.start()
		for n := range 2 {
			r.send(numbered(fmt.Sprintf("k%d-", n), 20)...)
			pass(30 * time.Second)
			// Twenty ends, and then claims, are to meet it.
			r.store.fails(errBoom, onceqtest.Claim, onceqtest.Renew, onceqtest.Settle)
			pass(50 * time.Second)
			r.send(numbered(fmt.Sprintf("l%d-", n), 20)...)
			pass(23 * time.Minute)
			if got := r.log.count("the store does not answer"); got != 5*(n+1) {
				t.Errorf("%d lines in 23 minutes of outage %d, want one each five", got-5*n, n)
			}
			r.store.heals()
			pass(5 * time.Minute)
			r.wantQueue(0)
			if got := r.log.count("the store answers again"); got != n+1 {
				t.Errorf("%d lines tell of its end", got)
			}
		}
	}, with(func(c *setup) { c.Concurrency, c.Prefetch, c.Lease, c.Visibility = 20, 10, time.Hour, time.Hour }), preset(membroker.Memory))
}

// The store breaks as a whole on the renewal of one claim. That must not make the others lapse.
func TestPoisonedRenewalCutsNobodyElseOff(t *testing.T) {
	bubble(t, func(ctx context.Context, j *onceq.Job) error {
		retry.Rest(ctx, 10*time.Minute)
		return context.Cause(ctx)
	}, func(r *rig) {
		r.store.set(func(s *store) {
			s.onRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				if slices.ContainsFunc(rs, func(q dedupe.Renewal) bool { return q.Key.Key == "bad" }) {
					panic("the store breaks on this key")
				}
				return as
			}
		})
		keys := numbered("k", 30)
		r.send(append([]string{"bad"}, keys...)...)
		r.start()
		pass(9 * time.Minute)
		if n := r.store.renews.Load(); n > 600 {
			t.Errorf("%d renewals in nine minutes", n)
		}
		pass(10 * time.Minute)
		for _, k := range keys {
			r.wantOutcomes(k, "done")
		}
	}, with(func(c *setup) { c.Concurrency = 40 }))
}

// Once the bad claim is found, it is renewed alone, so that the others' beats do not fail again.
func TestPoisonedRenewalGoesAlone(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error {
		takes(20 * time.Minute)
		return nil
	}, func(r *rig) {
		var among, alone atomic.Int64
		r.store.set(func(s *store) {
			s.onRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
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
		r.send(append([]string{"bad"}, numbered("k", 8)...)...)
		r.start()
		pass(5 * time.Minute)
		before := among.Load()
		pass(10 * time.Minute)
		defer pass(10 * time.Minute)
		if after := among.Load(); before == 0 || after != before || alone.Load() < 20 {
			t.Errorf("it was renewed among others %d times, and then %d more; %d times alone", before, after-before, alone.Load())
		}
	})
}

// Where the bad claim is never alone in its call, it is found by dividing the call.
func TestPoisonAmongAStream(t *testing.T) {
	for name, h := range map[string]onceq.HandlerFunc{"ends": returns(nil), "letters": failing} {
		t.Run(name, func(t *testing.T) {
			bubble(t, h, func(r *rig) {
				if name == "ends" {
					r.poisonedEnds()
					r.store.set(func(s *store) {
						s.fault = func(c onceqtest.Call) (f faulty.Faults) {
							if c.Op == onceqtest.Settle {
								f = faulty.Slow(300 * time.Millisecond)
							}
							return f
						}
					})
				}
				r.start()
				r.send("bad")
				for n := range 600 {
					r.send("k" + strconv.Itoa(n))
					pass(100 * time.Millisecond)
				}
				if os := r.seen.outcomes("bad"); len(os) == 0 || os[0] != "unsettled" && os[0] != "kept" {
					t.Errorf("the bad one ended as %q", os)
				}
			}, with(func(c *setup) {
				c.Concurrency = 100
				c.DeadLetter = &breaking{Sender: c.DeadLetter, on: func(o *broker.Outgoing) bool {
					if name == "letters" {
						takes(100 * time.Millisecond)
					}
					return string(o.Body) == "bad"
				}}
			}))
		})
	}
}
