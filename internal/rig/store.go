package rig

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/instant"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/onceqtest"
)

// Store and Queue stand between what is tested and its memory back ends. They count its calls,
// check what each batch must be, and go wrong as a test says. They are called from many goroutines:
// a test changes a store through Set, and reads a queue through its methods, which hold the lock.

// Scope is that of [Key].
const Scope = "test"

// ErrBoom is an error of no class.
var ErrBoom = errors.New("boom")

// NewBroker is a memory queue that can be made to fail.
func NewBroker(t testing.TB, o membroker.Options) *faulty.Broker {
	t.Helper()
	b := must.Get(membroker.New(&o))
	return &faulty.Broker{Broker: b}
}

// Key is a key in Scope.
func Key(k string) dedupe.Key { return dedupe.Key{Scope: Scope, Key: k} }

// NewStore is on an empty store in memory.
func NewStore(t testing.TB) *Store {
	t.Helper()
	st := must.Get(memstore.New(nil))
	return &Store{Store: st, T: t}
}

// Store is a memory store whose calls can be watched, and made to fail.
type Store struct {
	dedupe.Store
	mark
	T testing.TB

	Claims, Renews, Settles, Gets, Lists, Forgets atomic.Int64 // calls

	Mu           sync.Mutex
	Fault        func(c onceqtest.Call) faulty.Faults
	OnClaim      func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim
	OnRenew      func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed
	OnSettle     func(ss []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled
	OnGet        func() error
	ChangeLimits func(l dedupe.Limits) dedupe.Limits
}

type mark = instant.Mark

// IsInstant makes the store one that never waits, as one in memory is by itself: where a flow has
// one slot, who has a run makes its calls. From then on they may fail, or panic, but not wait.
func (s *Store) IsInstant() { s.mark = instant.Of(s) }

// Set changes the store under its lock.
func (s *Store) Set(change func(s *Store)) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	change(s)
}

// Fails makes every call of the ops answer err, until Heals. No ops = all.
func (s *Store) Fails(err error, ops ...onceqtest.Op) { s.Befalls(faulty.Fail(err), ops...) }

// Befalls lets every call of the ops go wrong, until Heals. No ops = all.
func (s *Store) Befalls(fs faulty.Faults, ops ...onceqtest.Op) {
	s.SetFault(func(c onceqtest.Call) faulty.Faults {
		if len(ops) == 0 || slices.Contains(ops, c.Op) {
			return fs
		}
		return nil
	})
}

// FailsAs makes each call answer the error that f names, if it names one.
func (s *Store) FailsAs(f func(op onceqtest.Op) error) {
	s.SetFault(func(c onceqtest.Call) faulty.Faults {
		if err := f(c.Op); err != nil {
			return faulty.Fail(err)
		}
		return nil
	})
}

// SetFault replaces the function that is asked about each call.
func (s *Store) SetFault(f func(c onceqtest.Call) faulty.Faults) {
	s.Set(func(s *Store) { s.Fault = f })
}

// Heals ends what goes wrong.
func (s *Store) Heals() { s.SetFault(nil) }

func (s *Store) counters() []*atomic.Int64 {
	return []*atomic.Int64{&s.Claims, &s.Renews, &s.Settles, &s.Gets, &s.Lists, &s.Forgets}
}

// Calls is how often the store was called.
func (s *Store) Calls() (n int) {
	for _, c := range s.counters() {
		n += int(c.Load())
	}
	return n
}

// Recount forgets the calls so far.
func (s *Store) Recount() {
	for _, c := range s.counters() {
		c.Store(0)
	}
}

// through is the store as the next call of op meets it.
func (s *Store) through(op onceqtest.Op, count *atomic.Int64, entries int) dedupe.Store {
	n := int(count.Add(1))
	s.Mu.Lock()
	ask := s.Fault
	s.Mu.Unlock()
	if ask == nil {
		return hooked{s}
	}
	fs := ask(onceqtest.Call{Op: op, N: n, Entries: entries})
	if instant.Is(s) && Waits(fs) {
		s.T.Errorf("%s: a store that is instant waits", op)
		fs = faulty.Fail(ErrBoom)
	}
	return fs.Store(hooked{s})
}

// Waits reports whether a call with the faults takes time.
func Waits(fs faulty.Faults) bool {
	return slices.ContainsFunc(fs, func(f onceqtest.Fault) bool { return f.Delay > 0 })
}

// hooked is the store without its faults, but with the changes of its answers.
type hooked struct{ *Store }

// changed is what a test's function makes of a call's answers.
func changed[Q, A any](s hooked, on *func([]Q, []A) []A, qs []Q, as []A) []A {
	s.Mu.Lock()
	change := *on
	s.Mu.Unlock()
	if change == nil {
		return as
	}
	return change(qs, as)
}

func (s hooked) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	cs, err := s.Store.Store.Claim(ctx, rs)
	return changed(s, &s.OnClaim, rs, cs), err
}

func (s hooked) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	as, err := s.Store.Store.Renew(ctx, rs)
	return changed(s, &s.OnRenew, rs, as), err
}

func (s hooked) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	as, err := s.Store.Store.Settle(ctx, ss)
	return changed(s, &s.OnSettle, ss, as), err
}

func (s hooked) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	s.Mu.Lock()
	ask := s.OnGet
	s.Mu.Unlock()
	if ask != nil {
		if err := ask(); err != nil {
			return nil, err
		}
	}
	return s.Store.Store.Get(ctx, ks)
}

func (s hooked) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return s.Store.Store.List(ctx, q)
}

func (s hooked) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	return s.Store.Store.Forget(ctx, fs)
}

// ordered checks what a batch of claims must be, or two of them might wait for each other.
func (s *Store) ordered(rs []dedupe.ClaimRequest) {
	for i := 1; i < len(rs); i++ {
		a, b := rs[i-1].Key, rs[i].Key
		if a.Scope > b.Scope || a.Scope == b.Scope && a.Key >= b.Key {
			s.T.Errorf("a batch of claims has %v before %v: it must be sorted, each key once", a, b)
		}
	}
	s.bounded(len(rs))
}

func (s *Store) bounded(n int) {
	if most := s.Limits().MaxBatch; n == 0 || n > most {
		s.T.Errorf("a batch of %d entries, the limit is %d", n, most)
	}
}

func (s *Store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	s.ordered(rs)
	return s.through(onceqtest.Claim, &s.Claims, len(rs)).Claim(ctx, rs)
}

// Renew is the op Renew here, also where it records a start.
func (s *Store) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	s.bounded(len(rs))
	return s.through(onceqtest.Renew, &s.Renews, len(rs)).Renew(ctx, rs)
}

func (s *Store) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	s.bounded(len(ss))
	return s.through(onceqtest.Settle, &s.Settles, len(ss)).Settle(ctx, ss)
}

func (s *Store) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	s.bounded(len(ks))
	return s.through(onceqtest.Get, &s.Gets, len(ks)).Get(ctx, ks)
}

func (s *Store) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return s.through(onceqtest.List, &s.Lists, 0).List(ctx, q)
}

func (s *Store) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	s.bounded(len(fs))
	return s.through(onceqtest.Forget, &s.Forgets, len(fs)).Forget(ctx, fs)
}

func (s *Store) Limits() dedupe.Limits {
	l := s.Store.Limits()
	if s.ChangeLimits != nil {
		l = s.ChangeLimits(l)
	}
	return l
}

// Record is what the store keeps for the key; the zero Record where there is none. Nothing that
// goes wrong befalls the look.
func (s *Store) Record(k dedupe.Key) dedupe.Record {
	s.T.Helper()
	rs, err := s.Store.Get(s.T.Context(), []dedupe.Key{k})
	if err != nil {
		s.T.Fatal(err)
	}
	if rs[0] == nil {
		return dedupe.Record{}
	}
	return *rs[0]
}

// Steal ends a claim as an operator would who forces the key free, and takes it.
func (s *Store) Steal(t *testing.T, k string) {
	t.Helper()
	rs, err := s.Store.Get(t.Context(), []dedupe.Key{Key(k)})
	if err != nil || rs[0] == nil {
		t.Fatal("nothing to steal: ", err)
	}
	if _, err := s.Store.Forget(t.Context(), []dedupe.Forgotten{{Key: Key(k), Fence: rs[0].Fence, Force: true}}); err != nil {
		t.Fatal(err)
	}
	s.Occupy(t, k, time.Hour, dedupe.Rerun)
}

// Occupy claims the key for somebody else.
func (s *Store) Occupy(t *testing.T, k string, ttl time.Duration, p dedupe.Policy, message ...string) dedupe.ClaimRequest {
	t.Helper()
	q := dedupe.ClaimRequest{Key: Key(k), Token: dedupe.Token{1}, TTL: ttl, Policy: p, Owner: "another", MessageID: strings.Join(message, "")}
	cs, err := s.Store.Claim(t.Context(), []dedupe.ClaimRequest{q})
	if err != nil || cs[0].Outcome != dedupe.Won {
		t.Fatalf("occupy %q: %+v, %v", k, cs, err)
	}
	return q
}

// EndClaim ends somebody else's claim.
func (s *Store) EndClaim(t *testing.T, q dedupe.ClaimRequest, to dedupe.Settlement) {
	t.Helper()
	to.Key, to.Token = q.Key, q.Token
	as, err := s.Store.Settle(t.Context(), []dedupe.Settlement{to})
	if err != nil || as[0].Err != nil {
		t.Fatalf("settle: %+v, %v", as, err)
	}
}

// Queue is a memory queue whose deliveries are watched.
type Queue struct {
	*faulty.Broker

	mu           sync.Mutex
	receipts     map[broker.Receipt]string // to the body
	receives     map[string]int            // by body
	nacks        map[string][]time.Duration
	acks         map[string]int
	extends      map[string]int
	unable       int
	OnReceive    func(ms []*broker.Message) []*broker.Message
	ChangeLimits func(l broker.Limits) broker.Limits
}

// NewQueue is an empty queue.
func NewQueue(t testing.TB, o membroker.Options) *Queue {
	t.Helper()
	return &Queue{
		Broker: NewBroker(t, o), receipts: make(map[broker.Receipt]string), receives: make(map[string]int),
		nacks: make(map[string][]time.Duration), acks: make(map[string]int), extends: make(map[string]int),
	}
}

func (q *Queue) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	ms, err := q.Broker.Receive(ctx, o)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range ms {
		q.receipts[m.Receipt] = string(m.Body)
		q.receives[string(m.Body)]++
	}
	if q.OnReceive != nil {
		ms = q.OnReceive(ms)
	}
	return ms, err
}

func (q *Queue) Ack(ctx context.Context, rs []broker.Receipt) error {
	q.mu.Lock()
	for _, r := range rs {
		q.acks[q.receipts[r]]++
	}
	q.mu.Unlock()
	return q.Broker.Ack(ctx, rs)
}

func (q *Queue) Nack(ctx context.Context, hs []broker.Hold) error {
	q.mu.Lock()
	for _, h := range hs {
		b := q.receipts[h.Receipt]
		q.nacks[b] = append(q.nacks[b], h.For)
	}
	q.mu.Unlock()
	return q.Broker.Nack(ctx, hs)
}

func (q *Queue) Extend(ctx context.Context, hs []broker.Hold) error {
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

// Refused is how many extensions the broker could not do.
func (q *Queue) Refused() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.unable
}

func (q *Queue) Limits() broker.Limits {
	l := q.Broker.Limits()
	if q.ChangeLimits != nil {
		l = q.ChangeLimits(l)
	}
	return l
}

// Received is how often the message with this body was delivered.
func (q *Queue) Received(body string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.receives[body]
}

// Delays are those of the message's nacks.
func (q *Queue) Delays(body string) []time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]time.Duration(nil), q.nacks[body]...)
}

func (q *Queue) Acked(body string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.acks[body]
}

func (q *Queue) Extended(body string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.extends[body]
}

// Expire ends the message's present delivery, as a timeout would that nobody extended.
func (q *Queue) Expire(t *testing.T, body string) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	for r, b := range q.receipts {
		if b == body {
			_ = q.Broker.Nack(t.Context(), []broker.Hold{{Receipt: r}})
		}
	}
}

// TakeAll takes all messages out of a queue.
func TakeAll(t testing.TB, b broker.Receiver) (all []*broker.Message) {
	t.Helper()
	for {
		ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: b.Limits().ReceiveBatch})
		if err != nil {
			t.Fatal(err)
		}
		if len(ms) == 0 {
			return all
		}
		all = append(all, ms...)
		var rs []broker.Receipt
		for _, m := range ms {
			rs = append(rs, m.Receipt)
		}
		for chunk := range slices.Chunk(rs, b.Limits().SettleBatch) {
			if err := b.Ack(t.Context(), chunk); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Classes are those of all dead letters in a queue, which are taken out.
func Classes(t testing.TB, dead broker.Receiver) (classes []string) {
	t.Helper()
	for _, m := range TakeAll(t, dead) {
		classes = append(classes, m.Meta.Dead.Class)
	}
	slices.Sort(classes)
	return classes
}

// Outages are the ways in which a store does not answer.
var Outages = map[string]faulty.Faults{
	"error": faulty.Fail(ErrBoom),
	"hang":  faulty.Hang(),
	"panic": faulty.Panic("store"),
	"full":  faulty.Fail(dedupe.ErrFull),
}

// Bads are the first n calls of the op, each with the fault.
func Bads(op onceqtest.Op, n int, f faulty.Faults) func(onceqtest.Call) faulty.Faults {
	return func(c onceqtest.Call) faulty.Faults {
		if c.Op == op && c.N <= n {
			return f
		}
		return nil
	}
}
