//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/localstack"
)

const (
	workers = 3
	orders  = 40 // of a round, of which each fifth is sent twice
	// moreRounds is how many are added at most, where a mode's rounds have not shown what they are
	// there for: a process may have been stopped where it holds the file's or a row's write lock,
	// so that nobody can take over.
	moreRounds = 10
	roundLimit = 2 * time.Minute
)

// scene is what outlives the processes of a mode: the queues, the database, the API.
type scene struct {
	*testing.T
	mode        mode
	rng         *rand.Rand
	a           assignment
	queue, dead broker.Broker
	// depth and letterDepth tell how many messages the queues have.
	depth, letterDepth func(context.Context) (broker.Depth, error)
	books              books
	api                *api
	log                *log
	lives              int
	crew               []*process
	sent               []string // keys

	// The ways of the workers, by their places in the crew. toStore is empty where there is no
	// server.
	toQueue, toStore []*proxy
	server           *server // PostgreSQL's, of this scene alone
	disk             *disk   // of the database
	noServer, noDisk string  // why there is none
	deck             *deck
	trouble          *troubles
	restored         atomic.Bool // the store went back in time in this round

	kills, stops, drains int
	pauses               int // rules that workers have made because the store went back in time
	cutOff               int // handlers that ran when their process was killed
	// Claims that were taken from a stopped process, and those of them whose transaction was
	// refused.
	takeovers, stale int
}

func newScene(t *testing.T, m mode, rng, dealt *rand.Rand) *scene {
	t.Helper()
	s := &scene{T: t, mode: m, rng: rng, api: newAPI(), log: newLog()}
	http := httptest.NewServer(s.api)
	t.Cleanup(http.Close)
	s.a = assignment{Store: m.store, API: http.URL, Effect: m.effect, Database: s.ground()}
	s.a.place, s.depth, s.letterDepth = m.queue.serve(t, rng.Uint64())
	s.deck = newDeck(s, dealt)
	for _, line := range s.deck.lacks {
		name(t, line)
	}
	for range workers {
		s.toQueue = append(s.toQueue, newProxy(t, host(s.a.Address)))
		if m.store != "sqlite" {
			s.toStore = append(s.toStore, newProxy(t, host(s.a.Database)))
		}
	}
	var err error
	if s.queue, s.dead, err = s.a.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.books, err = openBooks(t.Context(), m.store, s.a.Database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.books.close)
	if err := s.books.migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// ground is the address of the scene's database: on a server of its own, and on a small disk,
// where these can be had.
func (s *scene) ground() string {
	if !strings.Contains(files, s.mode.store) {
		return database(s.T, s.mode.store)
	}
	size := "8m"
	if s.mode.store == "postgres" {
		size = "256m"
	}
	dir, err := os.MkdirTemp("", "onceq-chaos-") // t.TempDir lets no other user pass
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	if s.disk, err = newDisk(s.T, dir, size); err != nil {
		s.noDisk = "a small disk cannot be mounted: " + err.Error()
	}
	if s.mode.store == "sqlite" {
		return filepath.Join(dir, "chaos.db")
	}
	if s.server, err = newServer(s.T, dir); err != nil {
		s.server, s.disk, s.noServer, s.noDisk = nil, nil, err.Error(), err.Error()
		return database(s.T, s.mode.store)
	}
	return s.server.url
}

// host is the host and port in an address.
var hosts = regexp.MustCompile(`(127\.0\.0\.1|localhost|\[::1\]):\d+`)

func host(address string) string { return hosts.FindString(address) }

// through is what a worker is told: the ways of its place lead through the proxies.
func (s *scene) through(place int) assignment {
	a := s.a
	swap := func(text *string, from string, p *proxy) { *text = strings.ReplaceAll(*text, from, p.address()) }
	from := host(a.Address)
	for _, text := range []*string{&a.Address, &a.Queue, &a.Dead} {
		swap(text, from, s.toQueue[place])
	}
	if len(s.toStore) > 0 {
		swap(&a.Database, host(a.Database), s.toStore[place])
	}
	return a
}

// database is the address of a new one.
func database(t *testing.T, store string) string {
	t.Helper()
	switch store {
	case "sqlite":
		return filepath.Join(t.TempDir(), "chaos.db")
	case "postgres":
		return localstack.Postgres(t).URL
	case "dynamodb":
		return tables(t)
	case "firestore":
		return collections(t)
	}
	t.Fatalf("no database %q", store)
	return ""
}

// run lets the workers work through the rounds, and asks at the end what must hold for all of them.
func (s *scene) run(rounds int) {
	for n := range workers {
		s.crew = append(s.crew, s.start(n))
	}
	for n := 0; n < rounds || !s.shown() && n < rounds+moreRounds; n++ {
		s.round(n, n >= rounds)
	}
	for _, p := range s.crew {
		s.drain(p)
	}
	s.audit(s.sent)
	s.Logf("%d kills cut off %d handlers; %d drains; %d stops, in which others took %d claims; the store refused %d transactions; %d handlers ran for %d orders; outcomes %v",
		s.kills, s.cutOff, s.drains, s.stops, s.takeovers, s.stale, s.log.progress(), len(s.sent), s.log.outcomes)
	if !s.shown() {
		s.Errorf("no round has shown a claim that was taken from a stopped process, and what its late effect comes to: the rounds prove nothing")
	}
}

// round sends orders, hits one of the workers while they work, and waits until they are done.
func (s *scene) round(n int, added bool) {
	ctx, cancel := context.WithTimeoutCause(s.Context(), roundLimit, errors.New("the round takes too long"))
	defer cancel()
	first := len(s.sent)
	victim := s.rng.IntN(workers)
	moment := s.log.progress() + 1 + s.rng.IntN(orders/2) // handlers that have begun
	later := time.Duration(s.rng.Int64N(int64(pause)))
	strike, trouble := s.deck.deal(n, added)
	s.Logf("round %d: a worker is hit: %s; %s", n, strike.name, trouble.name)
	s.trouble = s.meet(ctx, trouble, newDraw(s.deck.rng)) // before it is sent: it counts the handlers
	s.send(ctx, n)
	for s.log.progress() < moment {
		s.wait(ctx, time.Millisecond)
	}
	s.wait(ctx, later)
	// One whose transaction is under way already can be hit, too, but it shows nothing where it has
	// been committed. In trouble it may be a while until somebody runs.
	for tries := 0; tries < 100 || tries < 3000 && s.trouble.on.Load(); tries++ {
		if s.mode.effect != inTx && len(s.crew[victim].running()) > 0 || s.crew[victim].waiting() > 0 {
			break
		}
		s.wait(ctx, time.Millisecond)
	}
	strike.strike(s, ctx, victim)
	select {
	case <-s.trouble.done:
	case <-ctx.Done():
		s.wait(ctx, 0)
	}
	s.settle(ctx, n)
	for {
		depth, err := s.depth(ctx)
		if err != nil && ctx.Err() == nil {
			s.Fatal(err)
		}
		if err == nil && depth == (broker.Depth{}) {
			break
		}
		s.look(n)
		s.wait(ctx, 20*time.Millisecond)
	}
	s.look(n)
	s.audit(s.sent[first:])
	if s.Failed() {
		s.Fatalf("in round %d", n)
	}
}

// settle brings the scene's own ends back after a trouble, and sends again what a store that was
// restored may have forgotten.
func (s *scene) settle(ctx context.Context, n int) {
	if s.server != nil { // connections of the time before it was restarted
		s.books.close()
		var err error
		if s.books, err = openBooks(ctx, s.mode.store, s.a.Database); err != nil {
			s.Fatal(err)
		}
	}
	if !s.restored.Swap(false) {
		return
	}
	s.log.forgive(fmt.Sprintf("r%d-", n))
	// Until all workers have seen that the store went back, they pause.
	for end := time.Now().Add(3 * controlled); time.Now().Before(end); {
		s.wait(ctx, controlled/4)
		s.resume(ctx)
	}
	sent := len(s.sent)
	s.send(ctx, n)
	s.sent = s.sent[:sent]
}

// look asks whether a worker has ended by itself. One that was started in trouble may: its place is
// taken, as whoever runs it would.
func (s *scene) look(n int) {
	for i, p := range s.crew {
		select {
		case <-p.Done():
			if !p.rough {
				s.Fatalf("round %d: %s has ended by itself: %v", n, p.name, p.Err())
			}
			s.crew[i] = s.start(i)
		default:
		}
	}
}

// wait lets time go by.
func (s *scene) wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
		s.stuck()
		s.Fatal(context.Cause(ctx))
	}
}

// stuck tells what there is to see when a round does not end, and lets the workers show their
// goroutines.
func (s *scene) stuck() {
	depth, err := s.depth(context.WithoutCancel(s.Context()))
	s.Logf("in the queue: %+v, %v", depth, err)
	for _, p := range s.crew {
		s.Logf("%s, process %d, runs %v", p.name, p.Pid(), p.running())
		_ = p.Signal(syscall.SIGCONT)
		_ = p.Signal(syscall.SIGQUIT)
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.Logf("outcomes so far: %v", s.log.outcomes)
}

// send puts the orders of a round into the queue, each fifth twice. In every other round one of
// these takes longer than its lease, so that it lives by heartbeats while its second message asks
// for it.
func (s *scene) send(ctx context.Context, round int) {
	var ms []broker.Outgoing
	for n := range orders {
		key, body := fmt.Sprintf("r%d-%d", round, n), "pay"
		if n == 4 && round%2 == 0 {
			body = bodyLong
		}
		s.sent = append(s.sent, key)
		for range 1 + (n%5)/4 {
			ms = append(ms, broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}})
		}
	}
	s.rng.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	if err := onceq.Send(ctx, s.queue, ms); err != nil {
		s.Fatal(err)
	}
}

// kill ends a worker as kill -9 does. Another one takes its place.
func (s *scene) kill(n int) {
	p := s.crew[n]
	p.Kill()
	<-p.Done()
	s.kills++
	s.cutOff += len(p.running())
	s.crew[n] = s.start(n)
}

// deploy drains a worker, while another one takes its place.
func (s *scene) deploy(n int) {
	p := s.crew[n]
	s.crew[n] = s.start(n)
	s.drain(p)
	s.drains++
}

// stop stops a worker until its claims are over and, if that can be, taken by others; then it goes
// on, and does not know what has happened. Where it holds the write lock of all, that is let be for
// the length of a lease; then it is stopped once more, a moment later.
func (s *scene) stop(ctx context.Context, p *process) {
	s.stops++
	taken, blocked := s.freeze(ctx, p)
	for tries := 1; blocked && len(taken) == 0 && tries < 5; tries++ {
		s.wait(ctx, time.Duration(s.rng.Int64N(int64(pause/10))))
		taken, blocked = s.freeze(ctx, p)
	}
	// Its handlers run to their ends, whatever has become of their claims.
	for s.stillOpen(p, taken) {
		select {
		case <-p.Done():
			s.Fatalf("%s has ended after SIGCONT: %v", p.name, p.Err())
		default:
		}
		s.wait(ctx, 5*time.Millisecond)
	}
	s.takeovers += len(taken)
	s.stale += s.log.refusals(taken)
}

// freeze tells which of the process's claims others have taken while it was stopped, and whether it
// has kept everybody from writing.
func (s *scene) freeze(ctx context.Context, p *process) (taken []claim, blocked bool) {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		s.Fatal(err)
	}
	began := time.Now()
	s.wait(ctx, hold/10) // what it has written before it stopped is heard first
	held := p.running()
	blocked = s.books.blocked(ctx)
	limit := max(s.books.patience(), s.mode.queue.visibility()+4*hold)
	if blocked {
		limit = 0
	}
	for since := time.Duration(0); since < hold+hold/2 || since < limit && s.log.taken(held) == 0; since = time.Since(began) {
		s.wait(ctx, 10*time.Millisecond)
		if s.trouble.on.Load() {
			limit += 10 * time.Millisecond
		}
	}
	for _, c := range held {
		if s.log.taken([]claim{c}) > 0 {
			taken = append(taken, c)
		}
	}
	if err := p.Signal(syscall.SIGCONT); err != nil {
		s.Fatal(err)
	}
	return taken, blocked
}

func (s *scene) stillOpen(p *process, cs []claim) bool {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	for _, c := range cs {
		if _, open := p.open[c]; open {
			return true
		}
	}
	return false
}

// drain ends a worker in good order.
func (s *scene) drain(p *process) {
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	defer cancel()
	if err := p.Drain(ctx); err != nil {
		s.Errorf("%s: %v", p.name, err)
	}
}
