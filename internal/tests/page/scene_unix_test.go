//go:build unix

package page

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/webonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/chromium"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/ops"
	"github.com/onceq/onceq/sqsfake"
)

// This file owns the scene: what an outage has left in five queues, the workers that go on, and the
// page with people who look at it. Each test has one of its own. mu guards what handlers count.

// queueNames are the scene's queues.
var queueNames = []string{"orders", "invoices", "mails", "refunds", "exports"}

// place is where queues and records are: all that another process needs to serve the page, too.
// Hold is for how long letters are hidden that a process has and does not prolong; default 30 s.
type place struct {
	SQS, File string
	Hold      time.Duration
}

// world is a place that this process has open.
type world struct {
	db          *sql.DB
	store       *sqlitestore.Store
	queue, dead map[string]*awssqs.Broker
	ops         *ops.Ops
}

// open opens a place. end closes what this process has of it.
func (p place) open(ctx context.Context) (w *world, end func(), err error) {
	// Processes die here, and no machine: what the system has taken stays. So nothing waits for a
	// disk, which on a busy machine takes seconds.
	db, err := sql.Open("sqlite", strings.Replace(sqlitestore.DSN(p.File), "synchronous=FULL", "synchronous=OFF", 1))
	if err != nil {
		return nil, nil, err
	}
	w = &world{db: db, queue: map[string]*awssqs.Broker{}, dead: map[string]*awssqs.Broker{}}
	if w.store, err = sqlitestore.New(db, &sqlitestore.Options{BusyTimeout: time.Minute}); err != nil {
		return nil, nil, err
	}
	end = func() { _ = errors.Join(w.store.Close(), db.Close()) }
	if err := w.store.Migrate(ctx); err != nil {
		return nil, end, err
	}
	client := testaws.ClientOf(p.SQS)
	var ts []ops.Target
	for _, name := range queueNames {
		url := p.SQS + "/000000000000/" + name
		q, err := awssqs.New(client, url, &awssqs.Options{LongPoll: time.Second})
		if err != nil {
			return nil, end, err
		}
		d, err := awssqs.New(client, url+"-dead", nil)
		if err != nil {
			return nil, end, err
		}
		letters, err := dlq.New(d, &dlq.Options{Wait: 150 * time.Millisecond, Visibility: cmp.Or(p.Hold, 30*time.Second)})
		if err != nil {
			return nil, end, err
		}
		w.queue[name], w.dead[name] = q, d
		ts = append(ts, ops.Target{Name: name, Queue: q, DeadLetters: d, Letters: letters, Store: w.store, Scopes: []string{name + ":charge", name + ":refund"}})
	}
	w.ops, err = ops.New(ts, &ops.Options{By: "the scene"})
	return w, end, err
}

// canaries is how many jobs the page sends first.
const canaries = 5

// scene is a place with its server, its workers and its page.
type scene struct {
	*testing.T
	*world
	place
	server *sqsfake.Server
	page   *webonceq.Page
	url    string
	n      int   // letters so far
	stays  int64 // those of them that nobody replays
	seats  map[string]*controlstore.Seat

	stay  chan struct{} // where set: the jobs after the first canaries wait until it is closed
	mu    sync.Mutex
	begun int
	ran   map[string]int // effects by key
}

func newScene(t *testing.T, o *webonceq.Options) *scene {
	t.Helper()
	server := sqsfake.Start(t, &sqsfake.Options{ShortPolls: sqsfake.ShortPollsWhole})
	for _, name := range queueNames {
		for _, q := range []string{name + "-dead", name} {
			if _, err := server.CreateQueue(q, map[string]string{"MessageRetentionPeriod": "1209600"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := &scene{T: t, server: server, place: place{SQS: server.URL, File: filepath.Join(t.TempDir(), "keys.db")}, ran: map[string]int{}, seats: map[string]*controlstore.Seat{}}
	w, end, err := s.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	s.world = w
	s.page, s.url = serve(t, w.ops, o)
	return s
}

// serve serves a page of o until the test ends.
func serve(t testing.TB, o *ops.Ops, options *webonceq.Options) (*webonceq.Page, string) {
	t.Helper()
	page, h, err := handler(o, options)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := page.Close(ctx); err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
	})
	return page, server.URL
}

// handler is a page of o. Who comes by ?as=NAME is let in by that name; nobody else is.
func handler(o *ops.Ops, options *webonceq.Options) (*webonceq.Page, http.Handler, error) {
	var with webonceq.Options
	if options != nil {
		with = *options
	}
	with.Title = "prod"
	with.Access = func(r *http.Request) (webonceq.Access, error) {
		c, err := r.Cookie("as")
		if err != nil {
			return webonceq.Access{}, err
		}
		return webonceq.Access{Name: c.Value, May: webonceq.All}, nil
	}
	page, err := webonceq.New(o, &with)
	return page, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if as := r.URL.Query().Get("as"); as != "" {
			http.SetCookie(w, &http.Cookie{Name: "as", Value: as, HttpOnly: true})
			http.Redirect(w, r, r.URL.Path, http.StatusSeeOther)
			return
		}
		page.ServeHTTP(w, r)
	}), err
}

// A failure is what n letters of a queue have in common.
type failure struct {
	queue, typ, class, text string
	n                       int
	body                    string // %d = a number
	key                     string // the keys' begin; default: the queue's name
	status                  dedupe.Status
}

// scope is that of the workers' Mux.
func (f *failure) scope() string {
	if f.typ == "refund" {
		return f.queue + ":refund"
	}
	return f.queue + ":charge"
}

var timeout = failure{queue: "orders", typ: "charge", class: "timeout", text: `Post "https://bank/%d": context deadline exceeded`, body: `{"cents":%d}`}

// fail has jobs fail, and puts their letters: what workers leave, without their attempts.
func (s *scene) fail(f failure) {
	s.Helper()
	if f.status == 0 {
		f.status = dedupe.Failed
	}
	if f.key == "" {
		f.key = f.queue + "-"
	}
	number := func(text string) string {
		if strings.Contains(text, "%d") {
			return fmt.Sprintf(text, s.n)
		}
		return text
	}
	for left := f.n; left > 0; {
		some := min(left, s.store.Limits().MaxBatch, 10)
		left -= some
		var claims []dedupe.ClaimRequest
		for range some {
			s.n++
			claims = append(claims, dedupe.ClaimRequest{
				Key: dedupe.Key{Scope: f.scope(), Key: fmt.Sprint(f.key, s.n)}, Token: dedupe.Token{1, byte(s.n), byte(s.n >> 8), byte(s.n >> 16)}, TTL: time.Minute, Owner: "w-1/1",
				Sent: time.Now().Add(-4 * time.Second),
			})
		}
		won, err := s.store.Claim(s.Context(), claims)
		if err != nil {
			s.Fatal(err)
		}
		var ends []dedupe.Settlement
		var letters []broker.Outgoing
		for i, c := range won {
			k := claims[i].Key
			ends = append(ends, dedupe.Settlement{Key: k, Token: c.Lease.Token, To: f.status, ErrClass: f.class, ErrText: number(f.text)})
			letters = append(letters, broker.Outgoing{Body: []byte(number(f.body)), Meta: &broker.Meta{
				ID: "job-" + k.Key, Type: f.typ, Key: k.Key, Created: time.Now().Add(-time.Minute), Dead: &broker.Letter{
					Fence: c.Lease.Fence, Class: f.class, FirstErr: number(f.text), LastErr: number(f.text), Attempts: 10,
					Source: f.queue, Scope: k.Scope, Key: k.Key, At: time.Now().Add(-time.Duration(i) * time.Minute),
				},
			}})
		}
		rs, err := s.store.Settle(s.Context(), ends)
		if err != nil || rs[0].Err != nil {
			s.Fatal(err, rs)
		}
		if _, err := s.dead[f.queue].Send(s.Context(), letters); err != nil {
			s.Fatal(err)
		}
	}
}

// work runs a worker of a queue, until the test ends. Each job that ends well is an effect.
func (s *scene) work(queue, owner string) (stop func()) {
	s.Helper()
	var m onceq.Mux
	do := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
		s.mu.Lock()
		s.begun++
		waits := s.begun > canaries && s.stay != nil
		s.mu.Unlock()
		if waits {
			select {
			case <-s.stay:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ran[j.Key().Key]++
		return nil
	})
	m.On("charge", do, nil)
	m.On("refund", do, nil)
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: &m, Store: s.store, Scope: queue, Queue: queue, Owner: owner,
		Control: onceq.ControlOptions{Every: 2 * time.Second}, Defaults: onceq.JobOptions{MaxAttempts: 3},
	}))
	w := must.Get(p.Worker(s.queue[queue], onceq.WorkerConfig{DeadLetter: s.dead[queue], Concurrency: 16, DrainTimeout: time.Second}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	s.Cleanup(stop)
	s.until("a seat", func() bool { return w.Health().Seat != "" })
	return stop
}

// card is a worker that lives by its card alone.
func (s *scene) card(queue, owner string, change func(*control.WorkerStatus)) {
	s.Helper()
	seat := s.seats[queue+" "+owner]
	if seat == nil {
		var err error
		if seat, err = controlstore.NewSeat(s.store, controlstore.SeatOptions{Queue: queue, Owner: owner}); err != nil {
			s.Fatal(err)
		}
		s.seats[queue+" "+owner] = seat
	}
	now := time.Now()
	c := &control.WorkerStatus{
		Host: "host-1", PID: 7, Version: "v2.4.0", Scope: queue, Types: []string{"charge", "refund"}, Started: now.Add(-70 * time.Hour), At: now,
		Slots: 100, Busy: 80, State: "running", Outcomes: map[string]uint64{"done": 99_600, "retried": 300, "failed": 100}, Minute: &control.Runs{Runs: 600, Errors: 186},
		Rate: 601, HeadWait: 41 * time.Second, Durations: map[string]control.Quantiles{"charge": {P50: 200 * time.Millisecond, P95: 800 * time.Millisecond, Max: 2 * time.Second}},
		Jobs: []control.RunningJob{{Key: "B-12", Type: "charge", At: now.Add(-41 * time.Second), Attempt: 1, Fence: 9}},
	}
	if change != nil {
		change(c)
	}
	if err := seat.Beat(s.Context(), c); err != nil {
		s.Fatal(err)
	}
}

// outage is the whole scene: 2,000 letters, workers of two versions, a dead one, parked keys, a
// rule in force, and acts in the audit.
func (s *scene) outage(letters int) {
	s.Helper()
	f := timeout
	f.n = letters * 85 / 100
	s.fail(f)
	s.fail(failure{queue: "orders", typ: "charge", class: "permanent", text: `pq: duplicate key value violates unique constraint "orders_pkey"`, body: `{"cents":%d,"to":{"iban":"DE89 3704","bic":"COBADEFF"}}`, n: letters * 9 / 100})
	s.fail(failure{queue: "invoices", typ: "refund", class: "attempts", text: "no such customer %d", body: `{"invoice":%d}`, n: letters * 5 / 100})
	s.fail(failure{queue: "refunds", typ: "refund", class: "interrupted", text: "its worker died amid the effect", body: `{"refund":%d}`, key: "R-", n: max(3, letters/100), status: dedupe.Parked})
	s.crew(0)
	ben := s.ops.As("ben")
	if _, err := ben.Pause(s.Context(), control.Rule{Queue: "mails", Type: "refund", Until: time.Now().Add(30 * time.Minute), Reason: "INC-311: the bank is down"}, &ops.RuleOptions{Follow: -1}); err != nil {
		s.Fatal(err)
	}
}

// crew is what the workers of the outage tell at the beat n.
func (s *scene) crew(n int) {
	s.Helper()
	for i := range 7 {
		s.card("orders", fmt.Sprintf("w-%d/1", i+1), func(c *control.WorkerStatus) {
			c.Busy, c.Rate = 12*i+3, 600+float64(n*n*37%250)
			c.Jobs[0].Key = fmt.Sprint("B-", 12+7*i)
		})
	}
	s.card("orders", "w-8/1", func(c *control.WorkerStatus) { c.Scope, c.Version = "order", "v2.3.0" })
	for _, q := range []string{"invoices", "mails"} {
		s.card(q, "w-1/1", func(c *control.WorkerStatus) {
			c.Minute, c.Rate, c.Busy, c.Jobs, c.HeadWait = &control.Runs{Runs: 18}, 18+float64(n%5), 1, nil, 200*time.Millisecond
		})
	}
}

// until waits for what workers bring about.
func (s *scene) until(what string, holds func() bool) {
	s.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-late:
			s.Fatal("it never came: " + what)
		}
	}
}

// depth is how many messages a queue has.
func (s *scene) depth(b *awssqs.Broker) int64 {
	s.Helper()
	d, err := b.Depth(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return d.Visible + d.InFlight + d.Delayed
}

// once fails the test unless each of n jobs has run, and once.
func (s *scene) once(n int) {
	s.Helper()
	// First the letters: between two looks the other way round a letter may have become a job.
	s.until("no letters", func() bool { return s.depth(s.dead["orders"]) == s.stays })
	s.until("no jobs", func() bool { return s.depth(s.queue["orders"]) == 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, times := range s.ran {
		if times != 1 {
			s.Errorf("%s ran %d times", key, times)
		}
	}
	if len(s.ran) != n {
		s.Errorf("%d jobs have run, want %d", len(s.ran), n)
	}
}

// acts are the audit's.
func (s *scene) acts() (all []ops.AuditEntry) {
	s.Helper()
	for e, err := range s.ops.Audit(s.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Minute)) {
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// enter opens the page for somebody, in a tab of his own.
func (s *scene) enter(t *testing.T, b *chromium.Browser, name string, look chromium.Look) *chromium.Page {
	t.Helper()
	p := b.Person(t).Tab(t, look)
	p.Go(s.url + "/?as=" + name)
	return p
}

var phone = chromium.Look{Width: 360, Height: 640, Touch: true}

// fetch gets a screen as a browser would, without one.
func (s *scene) fetch(path string) (text string) {
	s.Helper()
	status, text := s.ask(path)
	if status != http.StatusOK {
		s.Fatal(path, status, text)
	}
	return text
}

func (s *scene) ask(path string) (status int, text string) {
	s.Helper()
	q := must.Get(http.NewRequestWithContext(s.Context(), http.MethodGet, s.url+path, nil))
	q.AddCookie(&http.Cookie{Name: "as", Value: "ana"})
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	body := must.Get(io.ReadAll(res.Body))
	return res.StatusCode, string(body)
}

// groups are the names of a queue's groups, as the page has them.
func (s *scene) groups(queue string) (names []string) {
	s.Helper()
	s.fetch("/q/" + queue + "/letters") // the first visit begins a look
	s.until("a look at the letters of "+queue, func() bool {
		var v struct {
			Ended  *time.Time
			Groups []struct{ Group string }
		}
		status, text := s.ask("/api/letters.json?queue=" + queue)
		if status == http.StatusNotFound {
			return false // it has not begun
		}
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			s.Fatal(err, text)
		}
		names = nil
		for _, g := range v.Groups {
			names = append(names, g.Group)
		}
		return v.Ended != nil && !v.Ended.IsZero()
	})
	return names
}
