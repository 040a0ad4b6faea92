package onceq_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// store is a memory store whose calls can be watched, and made to fail.
type store struct {
	dedupe.Store
	t                       *testing.T
	claims, renews, settles atomic.Int64 // calls

	mu       sync.Mutex
	fault    func(c onceqtest.Call) faulty.Faults
	onClaim  func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim
	onRenew  func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed
	onSettle func(ss []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled
	onGet    func() error
	limits   func(l dedupe.Limits) dedupe.Limits
}

func (s *store) set(change func(s *store)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// fails makes every call of the ops answer err, until heals.
func (s *store) fails(err error, ops ...onceqtest.Op) {
	s.set(func(s *store) {
		s.fault = func(c onceqtest.Call) faulty.Faults {
			if slices.Contains(ops, c.Op) {
				return faulty.Fail(err)
			}
			return nil
		}
	})
}

func (s *store) heals() { s.set(func(s *store) { s.fault = nil }) }

// through is the store as the next call of op meets it.
func (s *store) through(op onceqtest.Op, count *atomic.Int64, entries int) dedupe.Store {
	n := int(count.Add(1))
	s.mu.Lock()
	ask := s.fault
	s.mu.Unlock()
	if ask == nil {
		return hooked{s}
	}
	return ask(onceqtest.Call{Op: op, N: n, Entries: entries}).Store(hooked{s})
}

// hooked is the store without its faults, but with the changes of its answers.
type hooked struct{ *store }

func (s hooked) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	cs, err := s.Store.Claim(ctx, rs)
	s.mu.Lock()
	change := s.onClaim
	s.mu.Unlock()
	if change != nil {
		cs = change(rs, cs)
	}
	return cs, err
}

func (s hooked) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	as, err := s.Store.Renew(ctx, rs)
	s.mu.Lock()
	change := s.onRenew
	s.mu.Unlock()
	if change != nil {
		as = change(rs, as)
	}
	return as, err
}

func (s hooked) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	as, err := s.Store.Settle(ctx, ss)
	s.mu.Lock()
	change := s.onSettle
	s.mu.Unlock()
	if change != nil {
		as = change(ss, as)
	}
	return as, err
}

// ordered checks what a batch of claims must be, or two of them might wait for each other.
func (s *store) ordered(rs []dedupe.ClaimRequest) {
	for i := 1; i < len(rs); i++ {
		a, b := rs[i-1].Key, rs[i].Key
		if a.Scope > b.Scope || a.Scope == b.Scope && a.Key >= b.Key {
			s.t.Errorf("a batch of claims has %v before %v: it must be sorted, each key once", a, b)
		}
	}
	s.bounded(len(rs))
}

func (s *store) bounded(n int) {
	if most := s.Limits().MaxBatch; n == 0 || n > most {
		s.t.Errorf("a batch of %d entries, the limit is %d", n, most)
	}
}

func (s *store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	s.ordered(rs)
	return s.through(onceqtest.Claim, &s.claims, len(rs)).Claim(ctx, rs)
}

// Renew is the op Renew here, also where it records a start.
func (s *store) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	s.bounded(len(rs))
	return s.through(onceqtest.Renew, &s.renews, len(rs)).Renew(ctx, rs)
}

func (s *store) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	s.bounded(len(ss))
	return s.through(onceqtest.Settle, &s.settles, len(ss)).Settle(ctx, ss)
}

func (s *store) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	s.bounded(len(ks))
	s.mu.Lock()
	ask := s.onGet
	s.mu.Unlock()
	if ask != nil {
		if err := ask(); err != nil {
			return nil, err
		}
	}
	return s.Store.Get(ctx, ks)
}

func (s *store) Limits() dedupe.Limits {
	l := s.Store.Limits()
	if s.limits != nil {
		l = s.limits(l)
	}
	return l
}

// steal ends a claim as an operator would who forces the key free, and takes it.
func (s *store) steal(t *testing.T, k string) {
	t.Helper()
	rs, err := s.Store.Get(t.Context(), []dedupe.Key{key(k)})
	if err != nil || rs[0] == nil {
		t.Fatal("nothing to steal: ", err)
	}
	if _, err := s.Store.Forget(t.Context(), []dedupe.Forgotten{{Key: key(k), Fence: rs[0].Fence, Force: true}}); err != nil {
		t.Fatal(err)
	}
	s.occupy(t, k, time.Hour, dedupe.Rerun)
}

// occupy claims the key for somebody else.
func (s *store) occupy(t *testing.T, k string, ttl time.Duration, p dedupe.Policy, message ...string) dedupe.ClaimRequest {
	t.Helper()
	q := dedupe.ClaimRequest{Key: key(k), Token: dedupe.Token{1}, TTL: ttl, Policy: p, Owner: "another", MessageID: strings.Join(message, "")}
	cs, err := s.Store.Claim(t.Context(), []dedupe.ClaimRequest{q})
	if err != nil || cs[0].Outcome != dedupe.Won {
		t.Fatalf("occupy %q: %+v, %v", k, cs, err)
	}
	return q
}

// settle ends somebody else's claim.
func (s *store) settle(t *testing.T, q dedupe.ClaimRequest, to dedupe.Settlement) {
	t.Helper()
	to.Key, to.Token = q.Key, q.Token
	as, err := s.Store.Settle(t.Context(), []dedupe.Settlement{to})
	if err != nil || as[0].Err != nil {
		t.Fatalf("settle: %+v, %v", as, err)
	}
}

// queue is a memory queue whose deliveries are watched.
type queue struct {
	*faulty.Broker

	mu        sync.Mutex
	receipts  map[broker.Receipt]string // to the body
	receives  map[string]int            // by body
	nacks     map[string][]time.Duration
	acks      map[string]int
	extends   map[string]int
	unable    int
	onReceive func(ms []*broker.Message) []*broker.Message
	limits    func(l broker.Limits) broker.Limits
}

func newQueue(t *testing.T, o membroker.Options) *queue {
	t.Helper()
	return &queue{
		Broker: newBroker(t, o), receipts: make(map[broker.Receipt]string), receives: make(map[string]int),
		nacks: make(map[string][]time.Duration), acks: make(map[string]int), extends: make(map[string]int),
	}
}

func (q *queue) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	ms, err := q.Broker.Receive(ctx, o)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range ms {
		q.receipts[m.Receipt] = string(m.Body)
		q.receives[string(m.Body)]++
	}
	if q.onReceive != nil {
		ms = q.onReceive(ms)
	}
	return ms, err
}

func (q *queue) Ack(ctx context.Context, rs []broker.Receipt) error {
	q.mu.Lock()
	for _, r := range rs {
		q.acks[q.receipts[r]]++
	}
	q.mu.Unlock()
	return q.Broker.Ack(ctx, rs)
}

func (q *queue) Nack(ctx context.Context, hs []broker.Hold) error {
	q.mu.Lock()
	for _, h := range hs {
		b := q.receipts[h.Receipt]
		q.nacks[b] = append(q.nacks[b], h.For)
	}
	q.mu.Unlock()
	return q.Broker.Nack(ctx, hs)
}

func (q *queue) Extend(ctx context.Context, hs []broker.Hold) error {
	q.mu.Lock()
	for _, h := range hs {
		q.extends[q.receipts[h.Receipt]]++
	}
	q.mu.Unlock()
	err := q.Broker.Extend(ctx, hs)
	if errors.Is(err, broker.ErrUnsupported) {
		q.mu.Lock()
		q.unable++
		q.mu.Unlock()
	}
	return err
}

// refused is how many extensions the broker could not do.
func (q *queue) refused() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.unable
}

func (q *queue) Limits() broker.Limits {
	l := q.Broker.Limits()
	if q.limits != nil {
		l = q.limits(l)
	}
	return l
}

// received is how often the message with this body was delivered.
func (q *queue) received(body string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.receives[body]
}

// delays are those of the message's nacks.
func (q *queue) delays(body string) []time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]time.Duration(nil), q.nacks[body]...)
}

func (q *queue) acked(body string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.acks[body]
}

func (q *queue) extended(body string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.extends[body]
}

// expire ends the message's present delivery, as a timeout would that nobody extended.
func (q *queue) expire(t *testing.T, body string) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	for r, b := range q.receipts {
		if b == body {
			_ = q.Broker.Nack(t.Context(), []broker.Hold{{Receipt: r}})
		}
	}
}
