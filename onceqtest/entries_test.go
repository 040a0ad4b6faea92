package onceqtest_test

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
	"github.com/onceq/onceq/onceqtest"
)

// TestFirstEntryOfStores: the first entry fails alone, applied or not, and the others are as they
// are.
func TestFirstEntryOfStores(t *testing.T) {
	ops := []struct {
		op    onceqtest.Op
		call  func(dedupe.Store, []dedupe.ClaimRequest) ([]error, error)
		apply func(*dedupe.Record) bool // whether the call was applied to the record
	}{
		{onceqtest.Claim, func(s dedupe.Store, rs []dedupe.ClaimRequest) ([]error, error) {
			for i := range rs {
				rs[i].Token[2]++ // the claims before are dead by now
			}
			as, err := s.Claim(context.Background(), rs)
			return errsOf(as, func(a dedupe.Claim) error { return a.Err }), err
		}, func(r *dedupe.Record) bool { return r.Attempt == 2 }},
		{onceqtest.Renew, renews(false), func(r *dedupe.Record) bool { return time.Until(r.LeaseUntil) > 0 }},
		{onceqtest.Start, renews(true), func(r *dedupe.Record) bool { return r.Started }},
		{onceqtest.Settle, func(s dedupe.Store, rs []dedupe.ClaimRequest) ([]error, error) {
			var ss []dedupe.Settlement
			for _, r := range rs {
				ss = append(ss, dedupe.Settlement{Key: r.Key, Token: r.Token, To: dedupe.Done})
			}
			as, err := s.Settle(context.Background(), ss)
			return errsOf(as, func(a dedupe.Settled) error { return a.Err }), err
		}, func(r *dedupe.Record) bool { return r.Status == dedupe.Done }},
		{onceqtest.Forget, func(s dedupe.Store, rs []dedupe.ClaimRequest) ([]error, error) {
			got, err := s.Get(context.Background(), []dedupe.Key{rs[0].Key, rs[1].Key})
			if err != nil {
				return nil, err
			}
			return s.Forget(context.Background(), []dedupe.Forgotten{{Key: rs[0].Key, Fence: got[0].Fence}, {Key: rs[1].Key, Fence: got[1].Fence}})
		}, func(r *dedupe.Record) bool { return r == nil }},
	}
	for _, o := range ops {
		for _, kind := range []onceqtest.FaultKind{onceqtest.Fail, onceqtest.LoseReply} {
			t.Run(fmt.Sprint(o.op, " ", kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, p := newStore(t), new(onceqtest.Process)
					rs := []dedupe.ClaimRequest{request("a"), request("b")}
					if _, err := s.Claim(t.Context(), rs); err != nil {
						t.Fatal(err)
					}
					<-time.After(time.Hour)
					p.At(onceqtest.Fault{Op: o.op, Kind: kind, Entries: []int{0}, Err: errOwn})
					errs, err := o.call(p.Store(s), rs)
					if err != nil || len(errs) != 2 || !errors.Is(errs[0], errOwn) || errs[1] != nil {
						t.Fatalf("answered %v, %v", errs, err)
					}
					got, err := s.Get(t.Context(), []dedupe.Key{rs[0].Key, rs[1].Key})
					if err != nil {
						t.Fatal(err)
					}
					if first := o.apply(got[0]); first != (kind == onceqtest.LoseReply) || !o.apply(got[1]) {
						t.Errorf("applied %v and %v", first, o.apply(got[1]))
					}
					if tr := p.Trace(); !errors.Is(tr[len(tr)-1].Err, errOwn) {
						t.Errorf("trace %v", tr)
					}
				})
			})
		}
	}
}

func renews(started bool) func(dedupe.Store, []dedupe.ClaimRequest) ([]error, error) {
	return func(s dedupe.Store, rs []dedupe.ClaimRequest) ([]error, error) {
		var ns []dedupe.Renewal
		for _, r := range rs {
			ns = append(ns, dedupe.Renewal{Key: r.Key, Token: r.Token, TTL: time.Minute, Started: started})
		}
		as, err := s.Renew(context.Background(), ns)
		return errsOf(as, func(a dedupe.Renewed) error { return a.Err }), err
	}
}

func errsOf[A any](as []A, of func(A) error) (errs []error) {
	for _, a := range as {
		errs = append(errs, of(a))
	}
	return errs
}

// TestFirstEntryOfBrokers is the same for queues, whose one error speaks for the entries.
func TestFirstEntryOfBrokers(t *testing.T) {
	for _, o := range []struct {
		op   onceqtest.Op
		call func(*onceqtest.Process, *membroker.Broker, []*broker.Message) error
		want broker.Depth // where it is applied to one of two
		both broker.Depth // where it is applied to both
	}{
		{onceqtest.Ack, func(p *onceqtest.Process, q *membroker.Broker, ms []*broker.Message) error {
			return p.Receiver(q).Ack(context.Background(), []broker.Receipt{ms[0].Receipt, ms[1].Receipt})
		}, broker.Depth{InFlight: 1}, broker.Depth{}},
		{onceqtest.Nack, func(p *onceqtest.Process, q *membroker.Broker, ms []*broker.Message) error {
			return p.Receiver(q).Nack(context.Background(), []broker.Hold{{Receipt: ms[0].Receipt}, {Receipt: ms[1].Receipt}})
		}, broker.Depth{InFlight: 1, Visible: 1}, broker.Depth{Visible: 2}},
		{onceqtest.Letter, func(p *onceqtest.Process, q *membroker.Broker, _ []*broker.Message) error {
			_, err := p.Sender(q).Send(context.Background(), []broker.Outgoing{one("c"), one("d")})
			return err
		}, broker.Depth{InFlight: 2, Visible: 1}, broker.Depth{InFlight: 2, Visible: 2}},
		{onceqtest.Send, func(p *onceqtest.Process, q *membroker.Broker, _ []*broker.Message) error {
			ids, err := p.Producer(q).Send(context.Background(), []broker.Outgoing{one("c"), one("d")})
			if len(ids) != 2 || ids[0] != "" || ids[1] == "" {
				return fmt.Errorf("the ids are %q", ids)
			}
			return err
		}, broker.Depth{InFlight: 2, Visible: 1}, broker.Depth{InFlight: 2, Visible: 2}},
		{onceqtest.Extend, func(p *onceqtest.Process, q *membroker.Broker, ms []*broker.Message) error {
			err := p.Receiver(q).Extend(context.Background(), []broker.Hold{{Receipt: ms[0].Receipt, For: time.Hour}, {Receipt: ms[1].Receipt, For: time.Hour}})
			<-time.After(30 * time.Minute)
			return err
		}, broker.Depth{InFlight: 1, Visible: 1}, broker.Depth{InFlight: 2}},
	} {
		for _, kind := range []onceqtest.FaultKind{onceqtest.Fail, onceqtest.LoseReply} {
			t.Run(fmt.Sprint(o.op, " ", kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q, p := newQueue(t), new(onceqtest.Process)
					if _, err := q.Send(t.Context(), []broker.Outgoing{one("a"), one("b")}); err != nil {
						t.Fatal(err)
					}
					ms, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 2})
					if err != nil || len(ms) != 2 {
						t.Fatal(ms, err)
					}
					p.At(onceqtest.Fault{Op: o.op, Kind: kind, Entries: []int{0}, Err: errOwn})
					err = o.call(p, q, ms)
					var b *broker.BatchError
					if !errors.As(err, &b) || !errors.Is(broker.ErrAt(err, 0), errOwn) || broker.ErrAt(err, 1) != nil {
						t.Errorf("answered %v", err)
					}
					want := o.want
					if kind == onceqtest.LoseReply {
						want = o.both
					}
					if d, err := q.Depth(t.Context()); err != nil || d != want {
						t.Errorf("the queue has %+v, %v; want %+v", d, err, want)
					}
				})
			})
		}
	}
}

// TestEntries: the entries that are named fail, wherever they stand; a position beyond the batch
// names nothing.
func TestEntries(t *testing.T) {
	for _, kind := range []onceqtest.FaultKind{onceqtest.Fail, onceqtest.LoseReply} {
		synctest.Test(t, func(t *testing.T) {
			s, p := newStore(t), new(onceqtest.Process)
			p.At(onceqtest.Fault{Op: onceqtest.Claim, Kind: kind, Entries: []int{1, 3, 9}, Err: errOwn})
			cs, err := p.Store(s).Claim(t.Context(), []dedupe.ClaimRequest{request("a"), request("b"), request("c"), request("d")})
			if err != nil || len(cs) != 4 {
				t.Fatal(cs, err)
			}
			for i, c := range cs {
				if hit := i == 1 || i == 3; errors.Is(c.Err, errOwn) != hit || !hit && (c.Err != nil || c.Outcome != dedupe.Won) {
					t.Errorf("%v: entry %d is answered %+v", kind, i, c)
				}
			}
			want := "ac"
			if kind == onceqtest.LoseReply {
				want = "abcd"
			}
			if got := stored(t, s); got != want {
				t.Errorf("%v: the store has %q, want %q", kind, got, want)
			}
		})
	}
}
