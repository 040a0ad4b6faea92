package onceqpubsub_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/rig"
)

// This file tests what gocloud's suite does not: leases, acks that fail, and the end. Each test
// plays in virtual time, on a subscription of its own. hooked.mu guards what the test and gocloud's
// goroutines both see.

// hooked is a queue whose calls a test can answer.
type hooked struct {
	broker.Broker
	ack     func(rs []broker.Receipt) error // its error comes instead of the call
	receive func() error
	nack    func() error
	extend  func()

	mu        sync.Mutex
	extendErr func() error       // its error comes instead of the call
	acks      [][]broker.Receipt // what was asked for
	extends   int
}

func (h *hooked) Ack(ctx context.Context, rs []broker.Receipt) error {
	h.mu.Lock()
	h.acks = append(h.acks, slices.Clone(rs))
	h.mu.Unlock()
	if h.ack == nil {
		return h.Broker.Ack(ctx, rs)
	}
	err := h.ack(rs)
	var through []broker.Receipt
	for i, r := range rs {
		if broker.ErrAt(err, i) == nil {
			through = append(through, r)
		}
	}
	if e := h.Broker.Ack(ctx, through); e != nil {
		return e
	}
	return err
}

func (h *hooked) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	if h.receive != nil {
		if err := h.receive(); err != nil {
			return nil, err
		}
	}
	return h.Broker.Receive(ctx, o)
}

func (h *hooked) Extend(ctx context.Context, hs []broker.Hold) error {
	h.mu.Lock()
	h.extends += len(hs)
	extendErr := h.extendErr
	h.mu.Unlock()
	if h.extend != nil {
		h.extend()
	}
	if extendErr != nil {
		if err := extendErr(); err != nil {
			return err
		}
	}
	return h.Broker.Extend(ctx, hs)
}

func (h *hooked) Nack(ctx context.Context, hs []broker.Hold) error {
	if h.nack != nil {
		if err := h.nack(); err != nil {
			return err
		}
	}
	return h.Broker.Nack(ctx, hs)
}

func (h *hooked) asked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.acks)
}

// leased is a queue with messages and a subscription.
type leased struct {
	*testing.T
	queue *hooked
	plain *membroker.Broker
	sub   *pubsub.Subscription
	log   *strings.Builder
	ends  bool // the test ends the subscription itself
}

const leaseTime = 10 * time.Second

func playLeases(t *testing.T, o onceqpubsub.SubscriptionOptions, f func(l *leased)) {
	t.Helper()
	playLeasesOn(t, membroker.Memory, o, f)
}

func playLeasesOn(t *testing.T, p membroker.Preset, o onceqpubsub.SubscriptionOptions, f func(l *leased)) {
	t.Helper()
	gocloudtest.Bubble(t, func(t *testing.T) {
		b, err := membroker.New(&membroker.Options{Preset: p})
		if err != nil {
			t.Fatal(err)
		}
		l := &leased{T: t, plain: b, queue: &hooked{Broker: b}, log: &strings.Builder{}}
		o.Visibility = leaseTime
		if o.Logger == nil {
			o.Logger = slog.New(slog.NewTextHandler(l.log, nil))
		}
		if l.sub, err = onceqpubsub.OpenSubscription(l.queue, &o); err != nil {
			t.Fatal(err)
		}
		f(l)
		if err := l.sub.Shutdown(context.Background()); err != nil && !l.ends {
			t.Error("Shutdown:", err)
		}
	})
}

func (l *leased) put(bodies ...string) {
	l.Helper()
	for _, b := range bodies {
		if _, err := l.plain.Send(context.Background(), []broker.Outgoing{{Body: []byte(b)}}); err != nil {
			l.Fatal(err)
		}
	}
}

func (l *leased) take() *pubsub.Message {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	m, err := l.sub.Receive(ctx)
	if err != nil {
		l.Fatal(err)
	}
	return m
}

// none checks that the subscription has nothing to give.
func (l *leased) none() {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if m, err := l.sub.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		l.Errorf("got %v and %v, want nothing", m, err)
	}
}

func (l *leased) depth(want broker.Depth) {
	l.Helper()
	got, err := l.plain.Depth(context.Background())
	if err != nil || got != want {
		l.Errorf("the queue has %+v and %v, want %+v", got, err, want)
	}
}

func later(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestHeartbeatKeepsMessageHidden(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.put("long")
		m := l.take()
		later(5*leaseTime + time.Second)
		l.none()
		l.depth(broker.Depth{InFlight: 1})
		m.Ack()
		synctest.Wait()
		l.depth(broker.Depth{})
		var late context.Context
		if m.As(&late); late.Err() == nil {
			t.Error("what was acked has a lease")
		}
		beats := l.queue.extends
		later(3 * leaseTime)
		if beats < 5 || l.queue.extends != beats {
			t.Errorf("%d beats while it was held, and %d after its ack", beats, l.queue.extends-beats)
		}
	})
}

// What waits in gocloud's own queue is held, too.
func TestHeartbeatKeepsPrefetchedMessages(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		for i := range 200 {
			l.put(fmt.Sprint(i))
		}
		for range 100 {
			l.take().Ack()
		}
		synctest.Wait()
		got, _ := l.plain.Depth(context.Background())
		if got.InFlight == 0 {
			t.Fatal("gocloud fetched nothing ahead; the test tests nothing")
		}
		later(5 * leaseTime)
		seen := map[string]int{}
		for range 100 {
			m := l.take()
			var ours *broker.Message
			if m.As(&ours); ours.Attempt != 1 {
				t.Errorf("%s was delivered %d times", m.Body, ours.Attempt)
			}
			seen[string(m.Body)]++
			m.Ack()
		}
		if len(seen) != 100 {
			t.Errorf("%d messages of 100", len(seen))
		}
		l.none()
	})
}

func TestMaxHoldEndsHeartbeats(t *testing.T) {
	for name, c := range map[string]struct {
		hold time.Duration
		till time.Duration // delivered again by then, and not before a lease less
	}{
		"none":   {-1, leaseTime},
		"bounds": {35 * time.Second, 35*time.Second + leaseTime},
	} {
		t.Run(name, func(t *testing.T) {
			playLeases(t, onceqpubsub.SubscriptionOptions{MaxHold: c.hold}, func(l *leased) {
				l.put("forgotten")
				began := time.Now()
				first := l.take()
				second := l.take()
				synctest.Wait() // both happen in one moment
				if d := time.Since(began); d > c.till || d < c.till-leaseTime {
					t.Errorf("delivered again after %v, want up to %v", d, c.till)
				}
				var ctx context.Context
				if !first.As(&ctx) || ctx.Err() == nil {
					t.Error("the first one's context goes on, and the message was delivered again")
				}
				first.Ack() // too late: nothing ends
				second.Ack()
				synctest.Wait()
				l.none()
				l.depth(broker.Depth{})
			})
		})
	}
}

// Somebody else takes the message: the receipt expires, its holder can know, and nothing ends.
func TestLostLease(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.put("stolen")
		m := l.take()
		var ours *broker.Message
		var ctx, settled, late context.Context
		if !m.As(&ours) || !m.As(&ctx) {
			t.Fatal("As gave nothing")
		}
		if err := l.plain.Nack(ctx, []broker.Hold{{Receipt: ours.Receipt}}); err != nil {
			t.Fatal(err)
		}
		again := l.take()
		later(leaseTime)
		if !errors.Is(context.Cause(ctx), broker.ErrReceiptExpired) {
			t.Errorf("the lease's context: %v", context.Cause(ctx))
		}
		m.Ack()
		again.As(&settled)
		again.Ack()
		synctest.Wait()
		if again.As(&late); !errors.Is(settled.Err(), context.Canceled) || !errors.Is(late.Err(), context.Canceled) {
			t.Errorf("the context of what was acked: %v, %v", settled.Err(), late.Err())
		}
		l.none()
		l.depth(broker.Depth{})
		if !strings.Contains(l.log.String(), "lease was lost") {
			t.Errorf("the log: %s", l.log)
		}
	})
}

var errAway = errors.New("no route to the service")

// Of a batch of acks, some fail: those that expired are done with, one is offered again alone, and
// the subscription lives.
func TestAckFailsInPart(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.put("a", "b", "c", "d")
		var ms []*pubsub.Message
		names := map[broker.Receipt]string{}
		for range 4 {
			m := l.take()
			var ours *broker.Message
			m.As(&ours)
			names[ours.Receipt] = string(m.Body)
			ms = append(ms, m)
		}
		failed := false
		l.queue.ack = func(rs []broker.Receipt) error {
			errs := make([]error, len(rs))
			for i, r := range rs {
				switch {
				case names[r] == "b":
					errs[i] = broker.ErrReceiptExpired
				case names[r] == "c" && !failed:
					errs[i], failed = errAway, true
				}
			}
			return broker.JoinEntries(errs)
		}
		for _, m := range ms {
			m.Ack()
		}
		later(3 * leaseTime)
		asked := map[string]int{}
		for _, rs := range l.queue.acks {
			for _, r := range rs {
				asked[names[r]]++
			}
		}
		if fmt.Sprint(asked) != "map[a:1 b:1 c:2 d:1]" {
			t.Errorf("acks: %v", asked)
		}
		// b was not removed, so it is delivered again; nobody holds it any more.
		if m := l.take(); string(m.Body) != "b" {
			t.Errorf("got %s", m.Body)
		}
	})
}

// The service is away for a minute, for receives and acks: nothing is delivered twice.
func TestOutage(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.put("a")
		m := l.take()
		back := time.Now().Add(time.Minute)
		away := func() error {
			if time.Now().Before(back) {
				return errAway
			}
			return nil
		}
		l.queue.ack = func([]broker.Receipt) error { return away() }
		l.queue.receive = away
		m.Ack()
		l.put("b")
		if next := l.take(); string(next.Body) != "b" || time.Now().Before(back) {
			t.Errorf("got %s", next.Body)
		} else {
			next.Ack()
		}
		later(time.Minute)
		l.none()
		l.depth(broker.Depth{})
		if l.queue.asked() < 3 {
			t.Errorf("acks were offered %d times", l.queue.asked())
		}
		for _, want := range []string{"could not receive", "could not settle"} {
			if !strings.Contains(l.log.String(), want) {
				t.Errorf("the log does not say %q: %s", want, l.log)
			}
		}
	})
}

// TestLoggerPanics: goroutines of ours log, and a Logger that panics costs its line alone.
func TestLoggerPanics(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{Logger: rig.Broken()}, func(l *leased) {
		back := time.Now().Add(time.Minute)
		l.queue.receive = func() error {
			if time.Now().Before(back) {
				return errAway
			}
			return nil
		}
		l.put("a")
		l.take().Ack()
		synctest.Wait()
		l.depth(broker.Depth{})
	})
}

// An ack that never passes is given up; then its message is delivered again.
func TestGivesAnAckUp(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.put("a")
		began := time.Now()
		m := l.take()
		l.queue.ack = func([]broker.Receipt) error { return errAway }
		m.Ack()
		l.take()
		if d := time.Since(began); d < 5*time.Minute || d > 6*time.Minute {
			t.Errorf("delivered again after %v", d)
		}
		if !strings.Contains(l.log.String(), "gave up") {
			t.Errorf("the log: %s", l.log)
		}
	})
}

// What lasts ends the subscription, with the error.
func TestErrorThatLasts(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code gcerrors.ErrorCode
	}{
		"gone":    {broker.ErrNotFound, gcerrors.NotFound},
		"closed":  {broker.ErrClosed, gcerrors.FailedPrecondition},
		"denied":  {accessDenied{}, gcerrors.PermissionDenied},
		"refused": {broker.ErrUnsupported, gcerrors.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
				l.ends = true
				l.queue.receive = func() error { return c.err }
				_, err := l.sub.Receive(context.Background())
				if gcerrors.Code(err) != c.code || !errors.Is(err, c.err) {
					t.Errorf("got %v", err)
				}
			})
			playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
				l.ends = true
				l.put("a")
				m := l.take()
				l.queue.ack = func([]broker.Receipt) error { return c.err }
				m.Ack()
				synctest.Wait()
				if c.code == gcerrors.InvalidArgument { // of one message; the subscription lives
					if again := l.take(); string(again.Body) != "a" || !strings.Contains(l.log.String(), "gave up") {
						t.Errorf("got %s, the log: %s", again.Body, l.log)
					}
					l.ends = false
					return
				}
				if _, err := l.sub.Receive(context.Background()); gcerrors.Code(err) != c.code {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

type accessDenied struct{}

func (accessDenied) Error() string       { return "access denied" }
func (accessDenied) HTTPStatusCode() int { return 403 }

// A nack is not undone by a beat, and waits for its delay.
func TestNackDelay(t *testing.T) {
	playLeasesOn(t, membroker.SQSStandard, onceqpubsub.SubscriptionOptions{NackDelay: 4 * time.Second}, func(l *leased) {
		l.put("a")
		for range 5 {
			m := l.take()
			later(3*time.Second + 300*time.Millisecond) // a beat is due
			began := time.Now()
			m.Nack()
			again := l.take()
			if d := time.Since(began); d < 4*time.Second || d > 5*time.Second {
				t.Fatalf("delivered again after %v", d)
			}
			again.Nack()
		}
	})
}

// A beat that is on its way arrives before the nack, not after.
func TestNackWaitsForBeat(t *testing.T) {
	playLeasesOn(t, membroker.SQSStandard, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.put("a")
		arrives, beating := make(chan struct{}), make(chan struct{}, 10)
		l.queue.extend = func() { beating <- struct{}{}; <-arrives }
		m := l.take()
		<-beating
		m.Nack()
		time.AfterFunc(time.Second, func() { close(arrives) })
		began := time.Now()
		if l.take().Ack(); time.Since(began) > 3*time.Second {
			t.Errorf("delivered again after %v", time.Since(began))
		}
	})
}

// A nack that never passes is given up when the message comes again by itself.
func TestGivesANackUp(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.put("a")
		l.queue.nack = func() error { return errAway }
		l.take().Nack()
		began := time.Now()
		l.take().Ack()
		if d := time.Since(began); d > leaseTime+time.Second {
			t.Errorf("delivered again after %v", d)
		}
		later(time.Minute)
		if !strings.Contains(l.log.String(), "gave up") {
			t.Errorf("the log: %s", l.log)
		}
	})
}

// SQS ends each hold after 12 h. The heartbeats end before, so no lease is lost unforeseen.
func TestEndsBeforeTheBrokersTotal(t *testing.T) {
	playLeasesOn(t, membroker.SQSStandard, onceqpubsub.SubscriptionOptions{MaxHold: 20 * time.Hour}, func(l *leased) {
		l.put("long")
		began := time.Now()
		m := l.take()
		later(12*time.Hour - time.Minute)
		l.none()
		for d := time.Since(began); d < 12*time.Hour; d = time.Since(began) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			if again, err := l.sub.Receive(ctx); err == nil {
				again.Ack()
			}
			cancel()
		}
		m.Ack()
		if strings.Contains(l.log.String(), "lost") {
			t.Errorf("the log: %s", l.log)
		}
	})
}
