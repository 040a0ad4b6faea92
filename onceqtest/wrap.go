package onceqtest

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns the wrappers of a store and of brokers. A worker calls them, from many goroutines.
// Each call becomes a request of fault.go, which a fault may befall. There is no lock here; the
// Process has one.

// batch makes a call with entries that have answers of their own. do may keep the entries that it
// gets.
func batch[Q, A any](ctx context.Context, p *Process, op Op, qs []Q, do func(context.Context, []Q) ([]A, error), failed func(error) A, of func(A) error) ([]A, error) {
	qs = slices.Clone(qs) // a late request outlives its caller
	r := request[[]A]{
		p: p, op: op, n: len(qs),
		do:   func(ctx context.Context) ([]A, error) { return do(ctx, qs) },
		seen: func(as []A) error { return joined(as, of) },
	}
	if len(qs) > 0 {
		r.rest = func(ctx context.Context, hit []int, err error) ([]A, error) {
			var as []A
			var whole error
			if left := without(qs, hit); len(left) > 0 {
				as, whole = do(ctx, left)
			}
			return filled(as, len(qs), hit, failed(err)), whole
		}
		r.spoil = func(ctx context.Context, hit []int, err error) ([]A, error) {
			as, whole := do(ctx, qs)
			for i := range as {
				if slices.Contains(hit, i) {
					as[i] = failed(err)
				}
			}
			return as, whole
		}
	}
	return r.run(ctx)
}

// without is qs except for the entries that are hit.
func without[Q any](qs []Q, hit []int) (left []Q) {
	for i, q := range qs {
		if !slices.Contains(hit, i) {
			left = append(left, q)
		}
	}
	return left
}

// filled is the answers to n entries. The entries that are hit were not asked for, and are answered
// a. The others have their answers in others, in order.
func filled[A any](others []A, n int, hit []int, a A) (as []A) {
	for i := range n {
		switch {
		case slices.Contains(hit, i):
			as = append(as, a)
		case len(others) > 0:
			as, others = append(as, others[0]), others[1:]
		}
	}
	return as
}

// Store is s as this process sees it. It has no power of s beyond those of a [dedupe.Store], and of
// a [dedupe.BusyTeller], because no fault would befall what is asked of s itself.
func (p *Process) Store(s dedupe.Store) dedupe.Store { return &store{s, p} }

type store struct {
	dedupe.Store
	p *Process
}

// Unsteered keeps a Processor from reading rules and writing cards, unless its Control says so: a
// test counts the calls of its jobs.
func (*store) Unsteered() {}

// Storeless reports whether it is onceq.NoStore that is wrapped, decorated or not.
func (s *store) Storeless() bool {
	n, ok := broker.As[interface{ Storeless() bool }](s.Store)
	return ok && n.Storeless()
}

// IsBusy does no I/O, so no fault befalls it.
func (s *store) IsBusy(err error) bool {
	t, ok := broker.As[dedupe.BusyTeller](s.Store)
	return ok && t.IsBusy(err)
}

func (s *store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	s.p.noteClaims(rs)
	return batch(ctx, s.p, Claim, rs, s.Store.Claim,
		func(err error) dedupe.Claim { return dedupe.Claim{Err: err} }, func(c dedupe.Claim) error { return c.Err })
}

func (s *store) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	op := Renew
	if slices.ContainsFunc(rs, func(r dedupe.Renewal) bool { return r.Started }) {
		op = Start
	}
	return batch(ctx, s.p, op, rs, s.Store.Renew,
		func(err error) dedupe.Renewed { return dedupe.Renewed{Err: err} }, func(a dedupe.Renewed) error { return a.Err })
}

func (s *store) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	return batch(ctx, s.p, Settle, ss, s.Store.Settle,
		func(err error) dedupe.Settled { return dedupe.Settled{Err: err} }, func(a dedupe.Settled) error { return a.Err })
}

func (s *store) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	same := func(err error) error { return err }
	return batch(ctx, s.p, Forget, fs, s.Store.Forget, same, same)
}

func (s *store) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	ks = slices.Clone(ks)
	r := request[[]*dedupe.Record]{p: s.p, op: Get, n: len(ks), do: func(ctx context.Context) ([]*dedupe.Record, error) { return s.Store.Get(ctx, ks) }}
	return r.run(ctx)
}

// List is one call: what goes wrong goes wrong before the first record.
func (s *store) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	r := request[iter.Seq2[*dedupe.Record, error]]{
		p: s.p, op: List,
		do: func(call context.Context) (iter.Seq2[*dedupe.Record, error], error) {
			// The records are read after the call has ended, and with it its context.
			return s.Store.List(ctx, q), call.Err()
		},
	}
	return func(yield func(*dedupe.Record, error) bool) {
		records, err := r.run(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for rec, err := range records {
			if !yield(rec, err) {
				return
			}
		}
	}
}

// Receiver is r as this process sees it. It has the powers of a [broker.Depther] and of a
// [broker.Redriver], and answers [broker.ErrUnsupported] where r has not. [broker.As] finds
// r's other powers, and no fault befalls those.
func (p *Process) Receiver(r broker.Receiver) broker.Receiver { return &receiver{r, p} }

type receiver struct {
	broker.Receiver
	p *Process
}

var (
	_ broker.Depther  = (*receiver)(nil)
	_ broker.Redriver = (*receiver)(nil)
)

func (r *receiver) Unwrap() any { return r.Receiver }

func (r *receiver) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	q := request[[]*broker.Message]{
		p: r.p, op: Receive,
		do:    func(ctx context.Context) ([]*broker.Message, error) { return r.Receiver.Receive(ctx, o) },
		count: func(ms []*broker.Message) int { return len(ms) },
	}
	return q.run(ctx)
}

func (r *receiver) Ack(ctx context.Context, rs []broker.Receipt) error {
	return settling(ctx, r.p, Ack, rs, r.Receiver.Ack)
}

func (r *receiver) Nack(ctx context.Context, hs []broker.Hold) error {
	return settling(ctx, r.p, Nack, hs, r.Receiver.Nack)
}

func (r *receiver) Extend(ctx context.Context, hs []broker.Hold) error {
	return settling(ctx, r.p, Extend, hs, r.Receiver.Extend)
}

func (r *receiver) Depth(ctx context.Context) (broker.Depth, error) {
	d, ok := broker.As[broker.Depther](r.Receiver)
	if !ok {
		return broker.Depth{}, fmt.Errorf("onceqtest: %T tells no depth: %w", r.Receiver, broker.ErrUnsupported)
	}
	q := request[broker.Depth]{p: r.p, op: Depth, do: d.Depth}
	return q.run(ctx)
}

func (r *receiver) Redrive(ctx context.Context) (broker.RedrivePolicy, error) {
	d, ok := broker.As[broker.Redriver](r.Receiver)
	if !ok {
		return broker.RedrivePolicy{}, fmt.Errorf("onceqtest: %T tells no redrive policy: %w", r.Receiver, broker.ErrUnsupported)
	}
	q := request[broker.RedrivePolicy]{p: r.p, op: Redrive, do: d.Redrive}
	return q.run(ctx)
}

// settling makes a call with one error that speaks for all entries.
func settling[Q any](ctx context.Context, p *Process, op Op, qs []Q, do func(context.Context, []Q) error) error {
	_, err := answered(ctx, p, op, qs, func(ctx context.Context, qs []Q) ([]string, error) { return nil, do(ctx, qs) })
	return err
}

// answered is settling with an id for each entry.
func answered[Q any](ctx context.Context, p *Process, op Op, qs []Q, do func(context.Context, []Q) ([]string, error)) ([]string, error) {
	qs = slices.Clone(qs)
	errs := func(err error, n int) []error {
		es := make([]error, n)
		for i := range es {
			es[i] = broker.ErrAt(err, i)
		}
		return es
	}
	r := request[[]string]{p: p, op: op, n: len(qs), do: func(ctx context.Context) ([]string, error) { return do(ctx, qs) }}
	if len(qs) > 0 {
		r.rest = func(ctx context.Context, hit []int, err error) (ids []string, _ error) {
			left := without(qs, hit)
			var others error
			if len(left) > 0 {
				ids, others = do(ctx, left)
			}
			if ids != nil {
				ids = filled(ids, len(qs), hit, "")
			}
			return ids, broker.JoinEntries(filled(errs(others, len(left)), len(qs), hit, err))
		}
		r.spoil = func(ctx context.Context, hit []int, err error) ([]string, error) {
			ids, whole := do(ctx, qs)
			es := errs(whole, len(qs))
			for i := range qs {
				if !slices.Contains(hit, i) {
					continue
				}
				es[i] = err
				if i < len(ids) {
					ids[i] = ""
				}
			}
			return ids, broker.JoinEntries(es)
		}
	}
	return r.run(ctx)
}

// Sender is s as this process sees it; its calls are Letter.
func (p *Process) Sender(s broker.Sender) broker.Sender { return &sender{s, p, Letter} }

// Producer is s as this process sees it, for code that sends jobs; its calls are Send.
func (p *Process) Producer(s broker.Sender) broker.Sender { return &sender{s, p, Send} }

type sender struct {
	broker.Sender
	p  *Process
	op Op
}

func (s *sender) Unwrap() any { return s.Sender }

func (s *sender) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	return answered(ctx, s.p, s.op, ms, s.Sender.Send)
}
