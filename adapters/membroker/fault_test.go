package membroker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

var errFault = errors.New("fault")

// faulty opens a queue on which each call of op meets f.
func faulty(t *testing.T, op membroker.Op, f membroker.Fault) queue {
	return open(t, membroker.Options{Name: "orders", Fault: func(_ context.Context, c membroker.Call) membroker.Fault {
		if c.Op == op {
			return f
		}
		return membroker.Fault{}
	}})
}

// calls makes one call of each kind on a queue that holds "held", in flight as m, and
// "waiting".
var calls = map[membroker.Op]func(ctx context.Context, q queue, m *broker.Message) error{
	membroker.Receive: func(ctx context.Context, q queue, _ *broker.Message) error {
		_, err := q.Receive(ctx, broker.ReceiveOptions{Max: 1})
		return err
	},
	membroker.Ack: func(ctx context.Context, q queue, m *broker.Message) error {
		return q.Ack(ctx, []broker.Receipt{m.Receipt})
	},
	membroker.Nack: func(ctx context.Context, q queue, m *broker.Message) error {
		return q.Nack(ctx, []broker.Hold{{Receipt: m.Receipt}})
	},
	membroker.Extend: func(ctx context.Context, q queue, m *broker.Message) error {
		return q.Extend(ctx, []broker.Hold{{Receipt: m.Receipt, For: time.Hour}})
	},
	membroker.Send: func(ctx context.Context, q queue, _ *broker.Message) error {
		ids, err := q.Send(ctx, []broker.Outgoing{{Body: []byte("sent")}})
		if err != nil && ids != nil {
			return fmt.Errorf("ids %v beside %w", ids, err)
		}
		return err
	},
}

// applied is what the queue looks like after each call, once the first visibility has passed for the
// extension.
var applied = map[membroker.Op]broker.Depth{
	membroker.Receive: {InFlight: 2},
	membroker.Ack:     {Visible: 1},
	membroker.Nack:    {Visible: 2},
	membroker.Extend:  {Visible: 1, InFlight: 1},
	membroker.Send:    {Visible: 2, InFlight: 1},
}

// untouched is what it looks like after a call that was not applied.
func untouched(op membroker.Op) broker.Depth {
	if op == membroker.Extend {
		return broker.Depth{Visible: 2}
	}
	return broker.Depth{Visible: 1, InFlight: 1}
}

// eachCall runs f for each kind of call, in a bubble, on a queue as calls wants it; f answers
// whether the call was applied.
func eachCall(t *testing.T, fault membroker.Fault, f func(t *testing.T, op membroker.Op, call func(context.Context) error) bool) {
	t.Helper()
	for op, call := range calls {
		t.Run(op.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := open(t, membroker.Options{Name: "orders"})
				q.send("held", "waiting")
				m := q.receive(broker.ReceiveOptions{Max: 1})[0]
				q.SetFault(func(_ context.Context, c membroker.Call) membroker.Fault {
					if c != (membroker.Call{Op: op, N: 1, Entries: 1}) {
						t.Errorf("call %+v", c)
					}
					return fault
				})
				want := untouched(op)
				if f(t, op, func(ctx context.Context) error { return call(ctx, q, m) }) {
					want = applied[op]
				}
				q.SetFault(nil)
				if op == membroker.Extend {
					pass(visibility)
				}
				q.depth(want.Visible, want.InFlight, want.Delayed)
			})
		})
	}
}

func TestFaultError(t *testing.T) {
	eachCall(t, membroker.Fault{Err: errFault}, func(t *testing.T, op membroker.Op, call func(context.Context) error) bool {
		err := call(t.Context())
		if want := "membroker: orders: " + op.String() + ": fault"; !errors.Is(err, errFault) || err.Error() != want {
			t.Fatalf("answer %q, want %q", err, want)
		}
		return false
	})
}

func TestFaultReplyLost(t *testing.T) {
	eachCall(t, membroker.Fault{Err: errFault, Applied: true}, func(t *testing.T, op membroker.Op, call func(context.Context) error) bool {
		if err := call(t.Context()); !errors.Is(err, errFault) {
			t.Fatal(err)
		}
		return true
	})
}

func TestFaultDelay(t *testing.T) {
	eachCall(t, membroker.Fault{Delay: 5 * time.Second}, func(t *testing.T, op membroker.Op, call func(context.Context) error) bool {
		start := time.Now()
		if err := call(t.Context()); err != nil || time.Since(start) != 5*time.Second {
			t.Fatal(err, time.Since(start))
		}
		return true
	})
}

func TestFaultDelayCancelled(t *testing.T) {
	eachCall(t, membroker.Fault{Delay: 5 * time.Second}, func(t *testing.T, _ membroker.Op, call func(context.Context) error) bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return false
	})
}

func TestFaultReplyDelayCancelled(t *testing.T) {
	eachCall(t, membroker.Fault{ReplyDelay: 5 * time.Second}, func(t *testing.T, op membroker.Op, call func(context.Context) error) bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := call(ctx)
		// A receive that was served returns what it brought.
		if op == membroker.Receive && err != nil || op != membroker.Receive && !errors.Is(err, context.DeadlineExceeded) {
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
		q := faulty(t, membroker.Receive, membroker.Fault{ReplyDelay: 5 * time.Second})
		q.send("a")
		m := q.one("a")
		// The deadline counts from the delivery, not from the late reply.
		if got := time.Until(m.Deadline); got != visibility-5*time.Second {
			t.Fatalf("deadline in %v", got)
		}
	})
}

func TestFaultEntries(t *testing.T) {
	for _, isApplied := range []bool{false, true} {
		fault := membroker.Fault{Entries: map[int]error{1: errFault, 99: errFault}, Applied: isApplied}
		for _, op := range []membroker.Op{membroker.Ack, membroker.Nack} {
			t.Run(fmt.Sprintf("%v, applied %t", op, isApplied), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := faulty(t, op, fault)
					q.send("a", "b", "c")
					ms := q.get("a", "b", "c")
					var err error
					visible := int64(0)
					if op == membroker.Ack {
						err = q.tryAck(ms...)
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
						q.depth(visible, 1, 0)
					case op == membroker.Nack:
						q.depth(3, 0, 0)
					default:
						q.depth(0, 0, 0)
					}
				})
			})
		}
		t.Run(fmt.Sprintf("send, applied %t", isApplied), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := faulty(t, membroker.Send, fault)
				ids, err := q.Send(t.Context(), []broker.Outgoing{{Body: []byte("a")}, {Body: []byte("b")}, {Body: []byte("c")}})
				want(t, broker.ErrAt(err, 1), errFault)
				if ids[0] == "" || ids[1] != "" || ids[2] == "" || broker.ErrAt(err, 0) != nil {
					t.Fatal(ids, err)
				}
				if isApplied {
					q.get("a", "b", "c")
				} else {
					q.get("a", "c")
				}
			})
		})
	}
}

func TestFaultCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []membroker.Call
		q := open(t, membroker.Options{})
		q.send("unseen")
		q.SetFault(func(_ context.Context, c membroker.Call) membroker.Fault {
			seen = append(seen, c)
			return membroker.Fault{}
		})
		q.send("a", "b")
		q.receive(broker.ReceiveOptions{Max: 7})
		q.send("c")
		q.SetFault(nil)
		q.send("unseen")
		want := []membroker.Call{{Op: membroker.Send, N: 1, Entries: 2}, {Op: membroker.Receive, N: 1, Entries: 7}, {Op: membroker.Send, N: 2, Entries: 1}}
		if fmt.Sprint(seen) != fmt.Sprint(want) {
			t.Fatalf("seen %v, want %v", seen, want)
		}
	})
}

// A receive that found nothing has nothing to return when its context ends before the reply.
func TestFaultReplyDelayEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := faulty(t, membroker.Receive, membroker.Fault{ReplyDelay: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ms, err := q.Receive(ctx, broker.ReceiveOptions{Max: 1}); ms != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(ms, err)
		}
	})
}
