package onceqtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/onceqtest"
)

var errOwn = errors.New("own error")

func newStore(t *testing.T) *memstore.Store {
	return must.Get(memstore.New(nil))
}

func newQueue(t *testing.T) *membroker.Broker {
	return must.Get(membroker.New(&membroker.Options{Visibility: time.Minute}))
}

func request(key string) dedupe.ClaimRequest {
	return dedupe.ClaimRequest{Key: dedupe.Key{Scope: "s", Key: key}, Token: dedupe.Token{1, key[0]}, TTL: time.Minute}
}

// stored are the keys that the store has records of.
func stored(t *testing.T, s dedupe.Store) string {
	t.Helper()
	var keys []string
	for r, err := range s.List(t.Context(), dedupe.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, r.Key.Key)
	}
	return strings.Join(keys, "")
}

// TestFaultKinds: what each kind does to a claim, and what its caller sees.
func TestFaultKinds(t *testing.T) {
	for _, c := range []struct {
		fault onceqtest.Fault
		want  string // the keys that are stored
		err   error
		dead  bool
		took  time.Duration
	}{
		{onceqtest.Fault{}, "a", nil, false, 0},
		{onceqtest.Fault{Kind: onceqtest.CrashBefore}, "", onceqtest.ErrDead, true, 0},
		{onceqtest.Fault{Kind: onceqtest.CrashAfter}, "a", onceqtest.ErrDead, true, 0},
		{onceqtest.Fault{Kind: onceqtest.Fail}, "", onceqtest.ErrFault, false, 0},
		{onceqtest.Fault{Kind: onceqtest.Fail, Err: errOwn}, "", errOwn, false, 0},
		{onceqtest.Fault{Kind: onceqtest.LoseReply}, "a", onceqtest.ErrFault, false, 0},
		{onceqtest.Fault{Kind: onceqtest.LoseReply, Err: errOwn}, "a", errOwn, false, 0},
		{onceqtest.Fault{Kind: onceqtest.Cancel}, "", context.Canceled, false, 0},
		{onceqtest.Fault{Kind: onceqtest.Cancel, Delay: time.Second}, "a", nil, false, 0},
		{onceqtest.Fault{Kind: onceqtest.Slow, Delay: 4 * time.Second}, "a", nil, false, 4 * time.Second},
		{onceqtest.Fault{Kind: onceqtest.Slow, Delay: 6 * time.Second}, "", context.DeadlineExceeded, false, 5 * time.Second},
		{onceqtest.Fault{Kind: onceqtest.Late, Delay: 4 * time.Second}, "a", nil, false, 4 * time.Second},
		{onceqtest.Fault{Kind: onceqtest.Late, Delay: 6 * time.Second}, "a", context.DeadlineExceeded, false, 5 * time.Second},
		{onceqtest.Fault{Kind: onceqtest.Stall, Delay: 4 * time.Second}, "a", nil, false, 4 * time.Second},
		{onceqtest.Fault{Kind: onceqtest.Stall, Delay: 6 * time.Second}, "", context.DeadlineExceeded, false, 6 * time.Second},
	} {
		t.Run(fmt.Sprint(c.fault, c.fault.Err, c.fault.Delay), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := newStore(t), new(onceqtest.Process)
				if c.fault.Kind != 0 {
					p.At(c.fault)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				begun := time.Now()
				cs, err := p.Store(s).Claim(ctx, []dedupe.ClaimRequest{request("a")})
				took := time.Since(begun)
				<-time.After(10 * time.Second) // for what comes late
				if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || (err == nil) != (len(cs) == 1) {
					t.Errorf("answered %v, %v; want %v", cs, err, c.err)
				}
				if took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if got := stored(t, s); got != c.want {
					t.Errorf("stored is %q, want %q", got, c.want)
				}
				if got := isDead(p); got != c.dead {
					t.Errorf("dead %v, want %v", got, c.dead)
				}
				if n := len(p.Missed()); n != 0 {
					t.Errorf("%d faults were missed", n)
				}
				tr := p.Trace()
				if len(tr) != 1 || tr[0].Fault != c.fault.Kind || tr[0].Ended == c.dead || tr[0].Entries != 1 || tr[0].Took != c.took {
					t.Errorf("trace %v", tr)
				}
			})
		})
	}
}

func isDead(p *onceqtest.Process) bool {
	select {
	case <-p.Dead():
		return true
	default:
		return false
	}
}

// TestSlowReply: the call is applied at once, and who does not wait for the answer does not get it.
func TestSlowReply(t *testing.T) {
	for _, patience := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s, p := newStore(t), new(onceqtest.Process)
			p.At(onceqtest.Fault{Op: onceqtest.Claim, Kind: onceqtest.SlowReply, Delay: 10 * time.Second})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			begin := time.Now()
			applied := time.AfterFunc(time.Millisecond, func() {
				if got := stored(t, s); got != "a" {
					t.Errorf("the store has %q while the answer is under way", got)
				}
			})
			defer applied.Stop()
			_, err := p.Store(s).Claim(ctx, []dedupe.ClaimRequest{request("a")})
			if late := patience < 10*time.Second; errors.Is(err, context.DeadlineExceeded) != late || time.Since(begin) != min(patience, 10*time.Second) {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		})
	}
}

// TestFaultOfAReceive: the messages whose reply was lost are in flight.
func TestFaultOfAReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t), new(onceqtest.Process)
		if _, err := q.Send(t.Context(), []broker.Outgoing{one("a")}); err != nil {
			t.Fatal(err)
		}
		p.At(onceqtest.Fault{Op: onceqtest.Receive, Kind: onceqtest.LoseReply, Entries: []int{0}})
		r := p.Receiver(q)
		ms, err := r.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
		if len(ms) != 0 || !errors.Is(err, onceqtest.ErrFault) {
			t.Errorf("%v, %v", ms, err)
		}
		if d, err := q.Depth(t.Context()); err != nil || d.InFlight != 1 {
			t.Errorf("the queue has %+v, %v", d, err)
		}
		<-time.After(2 * time.Minute)
		if ms, err = r.Receive(t.Context(), broker.ReceiveOptions{Max: 1}); len(ms) != 1 || err != nil {
			t.Errorf("%v, %v", ms, err)
		}
		if tr := p.Trace(); tr[0].Entries != 0 || tr[1].Entries != 1 {
			t.Errorf("trace %v", tr)
		}
	})
}

// TestWhichCall: the faults find their calls by number.
func TestWhichCall(t *testing.T) {
	for _, c := range []struct {
		faults []onceqtest.Fault
		want   string // of seven calls, a b a b a b a: f = failed
	}{
		{[]onceqtest.Fault{{Op: "a", Kind: onceqtest.Fail}}, "f......"},
		{[]onceqtest.Fault{{Op: "a", N: 3, Kind: onceqtest.Fail}}, "....f.."},
		{[]onceqtest.Fault{{Op: "b", N: 2, Times: 2, Kind: onceqtest.Fail}}, "...f.f."},
		{[]onceqtest.Fault{{Op: "a", N: 2, Times: -1, Kind: onceqtest.Fail}}, "..f.f.f"},
		{[]onceqtest.Fault{{N: 4, Times: 2, Kind: onceqtest.Fail}}, "...ff.."},
		{[]onceqtest.Fault{{Kind: onceqtest.Fail}, {Op: "b", Kind: onceqtest.Fail}}, "ff....."},
		{[]onceqtest.Fault{{Op: "c", Kind: onceqtest.Fail}}, "......."},
		{[]onceqtest.Fault{{Op: "a", N: 2, Kind: onceqtest.Fail, Err: errOwn}, {Op: "a", N: 2, Kind: onceqtest.CrashBefore}}, "..f...."},
		{[]onceqtest.Fault{{Op: "b", N: 2, Kind: onceqtest.CrashBefore}}, "...ffff"},
	} {
		var p onceqtest.Process
		p.At(c.faults...)
		var got strings.Builder
		for i := range 7 {
			err := p.Call(t.Context(), onceqtest.Op([]string{"a", "b"}[i%2]), func(context.Context) error { return nil })
			got.WriteString(map[bool]string{true: ".", false: "f"}[err == nil])
		}
		if got.String() != c.want {
			t.Errorf("%v: %s, want %s", c.faults, got.String(), c.want)
		}
		missed := slices.ContainsFunc(c.faults, func(f onceqtest.Fault) bool { return f.Op == "c" })
		if (len(p.Missed()) == 1) != missed && c.faults[0].Err == nil {
			t.Errorf("%v: missed %v", c.faults, p.Missed())
		}
	}
}

// TestEpisode: a fault that lasts befalls all calls of its Op that begin meanwhile, and no other.
func TestEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p onceqtest.Process
		ok := func(op onceqtest.Op) bool {
			return p.Call(t.Context(), op, func(context.Context) error { return nil }) == nil
		}
		ok("a") // whose number it would have
		p.At(onceqtest.Fault{Op: "a", N: 1, Times: 1, For: time.Minute, Kind: onceqtest.Fail})
		if len(p.Missed()) != 1 {
			t.Error("a call was befallen before it came")
		}
		for s := range 70 {
			if got, want := ok("a"), s >= 60; got != want {
				t.Errorf("after %d s the call was answered %v, want %v", s, got, want)
			}
			if !ok("b") {
				t.Error("another call was befallen")
			}
			<-time.After(time.Second)
		}
		if len(p.Missed()) != 0 {
			t.Error("it befell calls, and is told as missed")
		}
	})
}

// TestNextCall: without a number a fault is for the next call.
func TestNextCall(t *testing.T) {
	var p onceqtest.Process
	ok := func(op onceqtest.Op) bool {
		return p.Call(t.Context(), op, func(context.Context) error { return nil }) == nil
	}
	if !ok("a") || !ok("b") {
		t.Error("a call without a fault failed")
	}
	p.At(onceqtest.Fault{Op: "a", Kind: onceqtest.Fail}, onceqtest.Fault{Kind: onceqtest.Fail})
	p.At(onceqtest.Fault{Op: "c", Kind: onceqtest.CrashBefore})
	if ok("d") || ok("a") || !ok("a") || !ok("b") {
		t.Errorf("the faults found other calls: %v", p.Trace())
	}
	if missed := fmt.Sprint(p.Missed()); missed != "[crash-before of c 1]" {
		t.Errorf("missed %v", missed)
	}
	if ok("c") || !isDead(&p) || ok("d") || p.Calls("d") != 1 || p.Calls("c") != 1 {
		t.Errorf("the process lives: %v", p.Trace())
	}
}

// TestReads: Get and List have names too, and an end of the caller's own.
func TestReads(t *testing.T) {
	s := newStore(t)
	if _, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("a"), request("b")}); err != nil {
		t.Fatal(err)
	}
	list := func(p *onceqtest.Process) (keys string, err error) {
		for r, err := range p.Store(s).List(t.Context(), dedupe.Query{}) {
			if err != nil {
				return keys, err
			}
			keys += r.Key.Key
		}
		return keys, nil
	}
	var p onceqtest.Process
	p.At(
		onceqtest.Fault{Op: onceqtest.List, N: 2, Kind: onceqtest.Fail, Err: errOwn}, onceqtest.Fault{Op: onceqtest.List, N: 3, Kind: onceqtest.Cancel},
		onceqtest.Fault{Op: onceqtest.Get, N: 2, Kind: onceqtest.Fail, Entries: []int{0}},
	)
	for i, want := range []error{nil, errOwn, context.Canceled, nil} {
		keys, err := list(&p)
		if !errors.Is(err, want) || (err == nil) != (keys == "ab") {
			t.Errorf("list %d: %q, %v", i+1, keys, err)
		}
	}
	for i, want := range []error{nil, onceqtest.ErrFault, nil} {
		rs, err := p.Store(s).Get(t.Context(), []dedupe.Key{request("a").Key})
		if !errors.Is(err, want) || (err == nil) != (len(rs) == 1) {
			t.Errorf("get %d: %v, %v", i+1, rs, err)
		}
	}
	for range p.Store(s).List(t.Context(), dedupe.Query{}) {
		break // and no more
	}
	p.Kill()
	if _, err := list(&p); !errors.Is(err, onceqtest.ErrDead) {
		t.Errorf("a dead process listed: %v", err)
	}
}

// TestPowersOfABroker: they pass through, and are answered where there are none.
func TestPowersOfABroker(t *testing.T) {
	var p onceqtest.Process
	q := newQueue(t)
	p.At(onceqtest.Fault{Op: onceqtest.Depth, N: 2, Kind: onceqtest.Fail}, onceqtest.Fault{Op: onceqtest.Redrive, N: 2, Kind: onceqtest.LoseReply})
	for i := range 2 {
		r := p.Receiver(q)
		if _, err := r.(broker.Depther).Depth(t.Context()); (err == nil) != (i == 0) {
			t.Errorf("depth %d: %v", i+1, err)
		}
		if policy, err := r.(broker.Redriver).Redrive(t.Context()); (err == nil) != (i == 0) || err != nil && policy != (broker.RedrivePolicy{}) {
			t.Errorf("redrive policy %d: %v", i+1, err)
		}
		r = p.Receiver(struct{ broker.Receiver }{q})
		if _, err := r.(broker.Depther).Depth(t.Context()); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("depth of a queue that tells none: %v", err)
		}
		if _, err := r.(broker.Redriver).Redrive(t.Context()); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("redrive policy of a queue that has none: %v", err)
		}
	}
}

// TestStallHoldsAllCalls: also those begun while the process stands still; and one that dies
// meanwhile goes on with nothing.
func TestStallHoldsAllCalls(t *testing.T) {
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var p onceqtest.Process
			p.At(onceqtest.Fault{Op: "a", Kind: onceqtest.Stall, Delay: time.Minute})
			begun := time.Now()
			go func() { // under way when the process begins to stand still: its answer waits
				err := p.Call(t.Context(), "poll", func(context.Context) error { <-time.After(10 * time.Second); return nil })
				if took, want := time.Since(begun), map[bool]time.Duration{false: time.Minute, true: 40 * time.Second}[dies]; took != want || (err != nil) != dies {
					t.Errorf("poll: %v after %v, want %v", err, took, want)
				}
			}()
			synctest.Wait()
			call := func(op onceqtest.Op) (took time.Duration, err error) {
				err = p.Call(t.Context(), op, func(context.Context) error { return nil })
				return time.Since(begun), err
			}
			go func() {
				<-time.After(20 * time.Second)
				if dies {
					time.AfterFunc(20*time.Second, p.Kill)
				}
				took, err := call("b")
				if want := map[bool]time.Duration{false: time.Minute, true: 40 * time.Second}[dies]; took != want || (err != nil) != dies {
					t.Errorf("b: %v after %v, want %v", err, took, want)
				}
			}()
			if _, err := call("a"); (err != nil) != dies {
				t.Errorf("a: %v", err)
			}
			if took, err := call("c"); !dies && (took != time.Minute || err != nil) {
				t.Errorf("c: %v after %v", err, took)
			}
			synctest.Wait()
		})
	}
}

// TestLateOutlivesTheProcess: nobody can take back a packet that is on its way, and its entries
// stay what they were.
func TestLateOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newStore(t), new(onceqtest.Process)
		p.At(onceqtest.Fault{Op: onceqtest.Claim, Kind: onceqtest.Late, Delay: time.Minute})
		time.AfterFunc(time.Second, p.Kill)
		begun := time.Now()
		rs := []dedupe.ClaimRequest{request("a")}
		if _, err := p.Store(s).Claim(t.Context(), rs); !errors.Is(err, onceqtest.ErrDead) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		rs[0] = request("b")
		<-time.After(time.Hour)
		if got := stored(t, s); got != "a" {
			t.Errorf("stored is %q", got)
		}
	})
}

// TestDelayedCancel ends the context while the call is under way; a slow call ends with the
// process.
func TestDelayedCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p onceqtest.Process
		p.At(onceqtest.Fault{Op: "a", Kind: onceqtest.Cancel, Delay: time.Second}, onceqtest.Fault{Op: "b", Kind: onceqtest.Slow, Delay: time.Hour})
		begun := time.Now()
		err := p.Call(t.Context(), "a", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if !errors.Is(err, context.Canceled) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		time.AfterFunc(time.Second, p.Kill)
		err = p.Call(t.Context(), "b", func(context.Context) error { t.Error("it was applied"); return nil })
		if !errors.Is(err, onceqtest.ErrDead) || time.Since(begun) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// TestRigAt: the worker repeats a settlement whose reply was lost, and the delivery shows nothing
// of it. A fault that no call comes by is told.
func TestRigAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		rig := onceqtest.New(t, counted(&runs, nil), nil)
		rig.At(onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.LoseReply}, onceqtest.Fault{Op: onceqtest.Ack, Kind: onceqtest.Fail})
		rig.Send(one("a"))
		if got := rig.Deliver(); got.Outcome != "done" || got.Action != onceq.Ack || runs != 1 {
			t.Errorf("%+v after %d runs", got, runs)
		}
		if p := rig.Process(); p.Calls(onceqtest.Settle) != 2 || p.Calls(onceqtest.Ack) != 2 {
			t.Errorf("the calls were %v", p.Trace())
		}
		said := verdict(t, func(tb testing.TB) {
			rig := onceqtest.New(tb, counted(&runs, nil), nil)
			rig.At(onceqtest.Fault{Op: onceqtest.Nack, N: 2, Kind: onceqtest.Fail})
			rig.Send(one("a"), one("b"))
			rig.Deliver()
			rig.Deliver() // for which none is set
		})
		if want := `onceqtest: the worker did not come by "fail of nack 2"`; said != want {
			t.Errorf("the test said %q, want %q", said, want)
		}
	})
}

func TestStrings(t *testing.T) {
	for _, c := range []struct {
		v    fmt.Stringer
		want string
	}{
		{onceqtest.Fault{Op: "claim", N: 2, Kind: onceqtest.LoseReply}, "lose-reply of claim 2"},
		{onceqtest.Fault{Kind: onceqtest.Fail, Entries: []int{0}, Times: 3}, "fail of entry 0 of call and the 2 after it"},
		{onceqtest.Fault{Op: "ack", Kind: onceqtest.Stall, Times: -1}, "stall of ack and all after it"},
		{onceqtest.Fault{Op: "renew", Kind: onceqtest.Fail, For: time.Minute}, "fail of renew for 1m0s"},
		{onceqtest.Fault{Op: "ack", Kind: onceqtest.Fail, Entries: []int{0, 2}}, "fail of entries [0 2] of ack"},
		{onceqtest.SlowReply, "slow-reply"},
		{onceqtest.FaultKind(0), "none"},
		{onceqtest.FaultKind(99), "FaultKind(99)"},
		{onceqtest.Call{Op: "claim", N: 1, Entries: 1, Ended: true}, "claim 1, 1 entry: ok"},
		{onceqtest.Call{Op: "ack", N: 3, Entries: 2, Ended: true, Fault: onceqtest.Fail, Err: errOwn}, "ack 3, 2 entries: fail: own error"},
		{onceqtest.Call{Op: "settle", N: 1, Entries: 1, Fault: onceqtest.CrashAfter}, "settle 1, 1 entry: crash-after: no answer"},
	} {
		if got := c.v.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
