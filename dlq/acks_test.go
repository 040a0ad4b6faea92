package dlq_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// failAcks makes acks fail from the n-th on.
func failAcks(r *rig, n int, err error) {
	acks := 0
	r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
		if c.Op != onceqtest.Ack {
			return nil
		}
		if acks++; acks < n {
			return nil
		}
		return faulty.Fail(err)
	})
}

// A dead-letter queue that takes no acks ends a replay with the broker's error, because what the
// replay went on to send would stay, too.
func TestReplayEndsWhereNothingCanBeRemoved(t *testing.T) {
	for _, c := range []struct {
		err  error
		took time.Duration
	}{{errFault, dlq.DefaultRetryFor}, {broker.ErrNotFound, 0}} {
		onEach(t, func(t *testing.T, r *rig) {
			r.putN(35)
			batch := min(35, r.queue.Limits().SendBatch)
			failAcks(r, 1, c.err)
			began := time.Now()
			rep, err := r.replay(dlq.ReplayOptions{})
			if !errors.Is(err, c.err) || rep.Replayed != batch || rep.Unacked != batch {
				t.Errorf("%v, %v", rep, err)
			}
			if took := time.Since(began); took > c.took+15*time.Second {
				t.Errorf("it took %v", took)
			}
			r.dead.SetFault(nil)
			pass(time.Minute)
			r.mustReplay(dlq.ReplayOptions{})
			if ks := keys(r.drain(r.queue)); len(slices.Compact(ks)) != 35 {
				t.Errorf("%d jobs arrived", len(ks))
			}
		})
	}
}

// The same holds for the copies of what was sent, for letters that come again although they were
// acked, and where it is in doubt whether a letter was sent.
func TestReplayEndsWhereCopiesCannotBeRemoved(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.put(letterOf("a", 1), letterOf("a", 1), letterOf("b", 2))
		failAcks(r, 2, errFault)
		rep, err := r.replay(dlq.ReplayOptions{Each: func(dlq.Step) {}})
		if !errors.Is(err, errFault) || rep.Replayed != 2 || rep.Unacked != 1 {
			t.Errorf("%v, %v", rep, err)
		}
	})
	in(t, func(t *testing.T, r *rig) {
		r.put(letterOf("a", 1), letterOf("b", 2))
		r.queue.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Send {
				return faulty.Fail(errFault).Only(1)
			}
			return nil
		})
		failAcks(r, 1, broker.ErrNotFound)
		rep, err := r.replay(dlq.ReplayOptions{})
		if !errors.Is(err, broker.ErrNotFound) || rep.Replayed != 1 || rep.Unacked != 1 || len(rep.Failed) != 1 {
			t.Errorf("%v, %v", rep, err)
		}
	})
	in(t, func(t *testing.T, r *rig) {
		r.put(letterOf("a", 1))
		acks := 0
		r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			switch {
			case c.Op != onceqtest.Ack:
				return nil
			case acks == 0:
				acks++
				return faulty.Fail(broker.ErrReceiptExpired).Only(0)
			}
			return faulty.Fail(errFault)
		})
		q := open(t, r.dead, &dlq.Options{Visibility: 2 * time.Second, Wait: 10 * time.Second})
		rep, err := q.Replay(context.Background(), dlq.ReplayOptions{To: r.queue})
		if !errors.Is(err, errFault) || rep.Replayed != 1 || rep.Unacked != 1 {
			t.Errorf("%v, %v", rep, err)
		}
	})
}

func TestPurgeEndsWhereNothingCanBeRemoved(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(35)
		failAcks(r, 1, errFault)
		rep, err := r.dlq.Purge(context.Background(), dlq.PurgeOptions{All: true, NoExport: true})
		if batch := min(35, r.dead.Limits().ReceiveBatch); !errors.Is(err, errFault) || rep.Purged > batch || rep.Unacked != rep.Purged {
			t.Errorf("%v, %v", rep, err)
		}
		r.dead.SetFault(nil)
		r.depths(35, 0)
	})
}

// The context's end comes before the broker's error.
func TestAcksFailAndTheContextEnds(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.putN(3)
		failAcks(r, 1, errFault)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := r.dlq.Replay(ctx, dlq.ReplayOptions{To: r.queue})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// doubled brings the first letter of each receive twice.
type doubled struct{ *faulty.Broker }

func (b *doubled) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	ms, err := b.Broker.Receive(ctx, o)
	if len(ms) > 0 {
		ms = append(ms, ms[0])
	}
	return ms, err
}

// A standard queue may bring a letter twice in one receive. That is no reason to ack what is not
// held any more.
func TestReplayMeetsALetterTwiceInOneReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, membroker.SQSStandard, nil)
		r.putN(3)
		acks := 0
		r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op != onceqtest.Ack {
				return nil
			}
			if acks++; acks == 1 {
				return faulty.Fail(broker.ErrReceiptExpired).Only(0, 1)
			}
			last := c.Entries - 1
			return faulty.Fail(errFault).Only(last)
		})
		q := open(t, &doubled{r.dead}, &dlq.Options{Visibility: 2 * time.Second, Wait: 10 * time.Second, RetryFor: 10 * time.Second})
		rep, err := q.Replay(context.Background(), dlq.ReplayOptions{To: r.queue})
		if rep.Replayed != 3 {
			t.Errorf("%v, %v", rep, err)
		}
		if ms := r.drain(r.queue); len(ms) != 3 {
			t.Errorf("%d arrived", len(ms))
		}
	})
}

// slow is a broker whose extensions take their time; nothing may be handed back meanwhile.
type slow struct {
	*faulty.Broker
	t         *testing.T
	begun     func()
	extending atomic.Bool
}

func (b *slow) Extend(ctx context.Context, hs []broker.Hold) error {
	b.extending.Store(true)
	defer b.extending.Store(false)
	b.begun()
	pass(time.Second)
	return b.Broker.Extend(ctx, hs)
}

func (b *slow) Nack(ctx context.Context, hs []broker.Hold) error {
	if b.extending.Load() {
		b.t.Error("it is handed back while an extension is under way, which may undo that")
	}
	return b.Broker.Nack(ctx, hs)
}

func TestHandBackAwaitsTheExtension(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.putN(3)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		q := open(t, &slow{Broker: r.dead, t: t, begun: cancel}, &dlq.Options{Visibility: 4 * time.Second, Wait: time.Hour})
		if _, err := q.Replay(ctx, dlq.ReplayOptions{To: r.queue, Filter: dlq.Filter{Class: "none"}}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		r.depths(3, 0)
	})
}

// A letter that is extended too late is not held any more, whatever the queue answers: a standard
// queue says OK and has done nothing. Nobody holds the letter then, and its delivery is not
// extended again.
func TestLateExtensionDoesNotCount(t *testing.T) {
	for _, c := range []struct {
		// How long the ack is on its way. The deadline is 4 s after the receive, and the first
		// extension begins before 1.4 s.
		late time.Duration
		more bool
	}{{3500 * time.Millisecond, false}, {2 * time.Second, true}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, membroker.SQSStandard, nil)
			r.putN(2)
			extends := 0
			r.dead.SetFault(func(_ context.Context, call onceqtest.Call) faulty.Faults {
				if call.Op != onceqtest.Extend {
					return nil
				}
				if extends++; extends > 1 {
					return nil
				}
				return faulty.Slow(c.late)
			})
			q := open(t, r.dead, &dlq.Options{Visibility: 4 * time.Second})
			// The second letter is held, and nothing is received, until the rate allows it: for 20
			// s.
			rep, err := q.Replay(context.Background(), dlq.ReplayOptions{To: r.queue, PerSecond: 0.05, Filter: dlq.Filter{Max: 2}})
			if err != nil || rep.Replayed != 2 {
				t.Errorf("%v, %v", rep, err)
			}
			if (extends > 1) != c.more {
				t.Errorf("an extension that takes %v: %d in all", c.late, extends)
			}
		})
	}
}

// brings answers its first receive with letters and an error.
type brings struct {
	*faulty.Broker
	calls int
}

func (b *brings) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	ms, err := b.Broker.Receive(ctx, o)
	if b.calls++; b.calls == 1 {
		return ms, errFault
	}
	return ms, err
}

// Letters that come with an error are in our hands all the same.
func TestReceiveBringsLettersAndAnError(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.putN(3)
		_, err := open(t, &brings{Broker: r.dead}, nil).Replay(context.Background(), dlq.ReplayOptions{To: r.queue})
		if !errors.Is(err, errFault) {
			t.Error(err)
		}
		r.depths(3, 0)
	})
}

// A letter that is too large is not cut down and sent once more when the call is over.
func TestReplayCutsNothingDownWhenItIsOver(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.putN(1)
		ctx, cancel := context.WithCancel(context.Background())
		sends := 0
		r.queue.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Send {
				sends++
				cancel()
				return faulty.Fail(broker.ErrTooLarge).Only(0)
			}
			return nil
		})
		rep, err := r.dlq.Replay(ctx, dlq.ReplayOptions{To: r.queue})
		if !errors.Is(err, context.Canceled) || sends != 1 || len(rep.Failed) != 1 {
			t.Errorf("%d sends, %v, %v", sends, rep, err)
		}
		r.depths(1, 0)
	})
}
