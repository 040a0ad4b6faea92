package faulty_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/onceqtest"
)

var errFault = errors.New("fault")

// queue is a faulty one whose messages take 30 s.
func queue(t *testing.T, name string) *faulty.Broker {
	t.Helper()
	b := must.Get(membroker.New(&membroker.Options{Name: name}))
	return &faulty.Broker{Broker: b}
}

// with is a queue on which each call of op meets f.
func with(t *testing.T, op onceqtest.Op, f faulty.Faults) *faulty.Broker {
	t.Helper()
	q := queue(t, "orders")
	q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
		if c.Op == op {
			return f
		}
		return nil
	})
	return q
}

func send(t *testing.T, q *faulty.Broker, bodies ...string) {
	t.Helper()
	for _, b := range bodies {
		if _, err := q.Broker.Send(t.Context(), []broker.Outgoing{{Body: []byte(b)}}); err != nil {
			t.Fatal(err)
		}
	}
}

func receive(t *testing.T, q *faulty.Broker, n int) []*broker.Message {
	t.Helper()
	ms, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: n})
	if err != nil || len(ms) != n {
		t.Fatal(ms, err)
	}
	return ms
}

func depth(t *testing.T, q *faulty.Broker, want broker.Depth) {
	t.Helper()
	if d, err := q.Depth(t.Context()); err != nil || d != want {
		t.Errorf("the queue has %+v, %v; want %+v", d, err, want)
	}
}

// calls makes one call of each kind on a queue that holds "held", in flight as m, and
// "waiting".
var calls = map[onceqtest.Op]func(ctx context.Context, q *faulty.Broker, m *broker.Message) error{
	onceqtest.Receive: func(ctx context.Context, q *faulty.Broker, _ *broker.Message) error {
		_, err := q.Receive(ctx, broker.ReceiveOptions{Max: 1})
		return err
	},
	onceqtest.Ack: func(ctx context.Context, q *faulty.Broker, m *broker.Message) error {
		return q.Ack(ctx, []broker.Receipt{m.Receipt})
	},
	onceqtest.Nack: func(ctx context.Context, q *faulty.Broker, m *broker.Message) error {
		return q.Nack(ctx, []broker.Hold{{Receipt: m.Receipt}})
	},
	onceqtest.Extend: func(ctx context.Context, q *faulty.Broker, m *broker.Message) error {
		return q.Extend(ctx, []broker.Hold{{Receipt: m.Receipt, For: time.Hour}})
	},
	onceqtest.Send: func(ctx context.Context, q *faulty.Broker, _ *broker.Message) error {
		ids, err := q.Send(ctx, []broker.Outgoing{{Body: []byte("sent")}})
		if err != nil && ids != nil {
			return fmt.Errorf("ids %v beside %w", ids, err)
		}
		return err
	},
}

// applied is what the queue looks like after each call, once the first visibility has passed for
// the extension.
var applied = map[onceqtest.Op]broker.Depth{
	onceqtest.Receive: {InFlight: 2},
	onceqtest.Ack:     {Visible: 1},
	onceqtest.Nack:    {Visible: 2},
	onceqtest.Extend:  {Visible: 1, InFlight: 1},
	onceqtest.Send:    {Visible: 2, InFlight: 1},
}

// untouched is what it looks like after a call that was not applied.
func untouched(op onceqtest.Op) broker.Depth {
	if op == onceqtest.Extend {
		return broker.Depth{Visible: 2}
	}
	return broker.Depth{Visible: 1, InFlight: 1}
}

// eachCall runs f for each kind of call, in a bubble, on a queue as calls wants it; f answers
// whether the call was applied.
func eachCall(t *testing.T, fault faulty.Faults, f func(t *testing.T, op onceqtest.Op, call func(context.Context) error) bool) {
	t.Helper()
	for op, call := range calls {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := queue(t, "orders")
				send(t, q, "held", "waiting")
				m := receive(t, q, 1)[0]
				q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
					if c.Op != op || c.N != 1 || c.Entries != 1 {
						t.Errorf("call %+v", c)
					}
					return fault
				})
				want := untouched(op)
				if f(t, op, func(ctx context.Context) error { return call(ctx, q, m) }) {
					want = applied[op]
				}
				q.SetFault(nil)
				if op == onceqtest.Extend {
					<-time.After(30 * time.Second)
				}
				depth(t, q, want)
			})
		})
	}
}

func TestFaultError(t *testing.T) {
	eachCall(t, faulty.Fail(errFault), func(t *testing.T, op onceqtest.Op, call func(context.Context) error) bool {
		err := call(t.Context())
		if !errors.Is(err, errFault) {
			t.Fatalf("%s: %v", op, err)
		}
		return false
	})
}

func TestFaultReplyLost(t *testing.T) {
	eachCall(t, faulty.Lose(errFault), func(t *testing.T, op onceqtest.Op, call func(context.Context) error) bool {
		if err := call(t.Context()); !errors.Is(err, errFault) {
			t.Fatal(err)
		}
		return true
	})
}

func TestFaultDelay(t *testing.T) {
	eachCall(t, faulty.Slow(5*time.Second), func(t *testing.T, op onceqtest.Op, call func(context.Context) error) bool {
		start := time.Now()
		if err := call(t.Context()); err != nil || time.Since(start) != 5*time.Second {
			t.Fatal(err, time.Since(start))
		}
		return true
	})
}

func TestFaultDelayCancelled(t *testing.T) {
	eachCall(t, faulty.Slow(5*time.Second), func(t *testing.T, _ onceqtest.Op, call func(context.Context) error) bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return false
	})
}

func TestFaultReplyDelayCancelled(t *testing.T) {
	eachCall(t, faulty.SlowReply(5*time.Second), func(t *testing.T, op onceqtest.Op, call func(context.Context) error) bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := call(ctx)
		// A receive that was served returns what it brought.
		if op == onceqtest.Receive && err != nil || op != onceqtest.Receive && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if time.Since(start) != time.Second {
			t.Fatal(time.Since(start))
		}
		return true
	})
}

func TestFaultReplyDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := with(t, onceqtest.Receive, faulty.SlowReply(5*time.Second))
		send(t, q, "a")
		m := receive(t, q, 1)[0]
		// The deadline counts from the delivery, not from the late reply.
		if got := time.Until(m.Deadline); got != 25*time.Second {
			t.Fatalf("deadline in %v", got)
		}
	})
}

func TestFaultEntries(t *testing.T) {
	for _, isApplied := range []bool{false, true} {
		fault := faulty.Err(errFault, isApplied).Only(1, 99)
		for _, op := range []onceqtest.Op{onceqtest.Ack, onceqtest.Nack} {
			t.Run(fmt.Sprintf("%v, applied %t", op, isApplied), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := with(t, op, fault)
					send(t, q, "a", "b", "c")
					ms := receive(t, q, 3)
					var err error
					visible := int64(0)
					if op == onceqtest.Ack {
						err = q.Ack(t.Context(), []broker.Receipt{ms[0].Receipt, ms[1].Receipt, ms[2].Receipt})
					} else {
						hs := make([]broker.Hold, 3)
						for i := range hs {
							hs[i].Receipt = ms[i].Receipt
						}
						err = q.Nack(t.Context(), hs)
						visible = 2
					}
					for i := range ms {
						if got := broker.ErrAt(err, i); errors.Is(got, errFault) != (i == 1) || i != 1 && got != nil {
							t.Fatalf("entry %d: %v", i, got)
						}
					}
					switch {
					case !isApplied:
						depth(t, q, broker.Depth{Visible: visible, InFlight: 1})
					case op == onceqtest.Nack:
						depth(t, q, broker.Depth{Visible: 3})
					default:
						depth(t, q, broker.Depth{})
					}
				})
			})
		}
		t.Run(fmt.Sprintf("send, applied %t", isApplied), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := with(t, onceqtest.Send, fault)
				ids, err := q.Send(t.Context(), []broker.Outgoing{{Body: []byte("a")}, {Body: []byte("b")}, {Body: []byte("c")}})
				if !errors.Is(broker.ErrAt(err, 1), errFault) || ids[0] == "" || ids[1] != "" || ids[2] == "" || broker.ErrAt(err, 0) != nil {
					t.Fatal(ids, err)
				}
				there := int64(2)
				if isApplied {
					there = 3
				}
				depth(t, q, broker.Depth{Visible: there})
			})
		})
	}
}

func TestFaultCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		q := queue(t, "orders")
		ask := func(_ context.Context, c onceqtest.Call) faulty.Faults {
			seen = append(seen, fmt.Sprintf("%s %d of %d", c.Op, c.N, c.Entries))
			return nil
		}
		put := func(n int) {
			if _, err := q.Send(t.Context(), make([]broker.Outgoing, n)); err != nil {
				t.Fatal(err)
			}
		}
		put(1)
		q.SetFault(ask)
		put(2)
		receive(t, q, 3)
		put(1)
		q.SetFault(ask)
		put(3)
		q.SetFault(nil)
		put(1)
		if got, want := fmt.Sprint(seen), "[send 1 of 2 receive 1 of 3 send 2 of 1 send 1 of 3]"; got != want {
			t.Errorf("seen %s, want %s", got, want)
		}
	})
}

// Several faults of one call: the first is the outermost, and positions are those of what it
// leaves.
func TestFaultsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := errors.New("other")
		q := with(t, onceqtest.Send, faulty.Slow(time.Second).With(faulty.Fail(errFault).Only(0)).With(faulty.Lose(other).Only(1)))
		begin := time.Now()
		_, err := q.Send(t.Context(), make([]broker.Outgoing, 3))
		if !errors.Is(broker.ErrAt(err, 0), errFault) || broker.ErrAt(err, 1) != nil || !errors.Is(broker.ErrAt(err, 2), other) {
			t.Errorf("answered %v", err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v", took)
		}
		depth(t, q, broker.Depth{Visible: 2})
	})
}

func TestFaultsOfAStore(t *testing.T) {
	s := must.Get(memstore.New(nil))
	claim := func(fs faulty.Faults) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("it panicked: %v", v)
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = fs.Store(s).Claim(ctx, []dedupe.ClaimRequest{{Key: dedupe.Key{Scope: "s", Key: "k"}, Token: dedupe.Token{1}, TTL: time.Minute}})
		return err
	}
	for _, c := range []struct {
		fs   faulty.Faults
		want string
	}{
		{nil, "<nil>"}, {faulty.Fail(errFault), "fault"}, {faulty.Panic("p"), "it panicked: p"}, {faulty.Hang(), "context deadline exceeded"},
	} {
		if got := fmt.Sprint(claim(c.fs)); got != c.want {
			t.Errorf("answered %s, want %s", got, c.want)
		}
	}
	if err := faulty.Slow(1).With(faulty.Lose(errFault)).Err(); err != errFault {
		t.Errorf("the error is %v", err)
	}
}

// A receive that found nothing has nothing to return when its context ends before the reply.
func TestFaultReplyDelayEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := with(t, onceqtest.Receive, faulty.SlowReply(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ms, err := q.Receive(ctx, broker.ReceiveOptions{Max: 1}); ms != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(ms, err)
		}
	})
}
