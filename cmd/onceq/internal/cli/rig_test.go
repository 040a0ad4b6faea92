package cli

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/internal/testserver/testsqlite"
	"github.com/onceq/onceq/sqsfake"
)

// rig is a place to work on: sqsfake with a queue and its dead-letter queue, and a store.
type rig struct {
	*testing.T
	server   *sqsfake.Server
	queue    broker.Broker
	dead     broker.Broker
	store    dedupe.Store
	db       *sql.DB // of a store in SQLite
	storeURL string
	dir      string
	file     string // the configuration
	env      map[string]string
	now      func() time.Time

	patience time.Duration // of a completion

	// what a person types, and whether one is there
	typed    string
	terminal bool
	screen   bool
	size     [2]int
}

// newRig makes one on SQLite. The queue moves a message away after 40 receives.
func newRig(t *testing.T) *rig {
	t.Helper()
	path := testsqlite.Path(t)
	db, store := testsqlite.Open(t, path, &sqlitestore.Options{BusyTimeout: 10 * time.Second})
	r := rigOn(t, store, "sqlite://"+filepath.ToSlash(path))
	r.db = db
	return r
}

func rigOn(t *testing.T, store dedupe.Store, storeURL string) *rig {
	t.Helper()
	s := sqsfake.Start(t, &sqsfake.Options{ShortPolls: sqsfake.ShortPollsWhole})
	r := &rig{T: t, server: s, store: store, storeURL: storeURL, dir: t.TempDir(), env: map[string]string{}, now: time.Now, size: [2]int{80, 24}}
	r.dead = r.open("orders-dead", nil)
	policy := `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:orders-dead","maxReceiveCount":40}`
	r.queue = r.open("orders", map[string]string{"RedrivePolicy": policy})
	r.config(fmt.Sprintf(`profiles:
  test:
    store: %s
    queues:
      orders:
        url: sqs+%s/orders
        scopes: [orders, "orders:charge"]
    links: {logs: "https://logs.example/?q={key}"}
`, storeURL, s.URL))
	return r
}

// config replaces the configuration file.
func (r *rig) config(text string) {
	r.Helper()
	path := filepath.Join(r.dir, "onceq.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
	r.env["ONCEQ_CONFIG"], r.file = path, text
}

func (r *rig) open(name string, attributes map[string]string) *awssqs.Broker {
	r.Helper()
	return r.openWith(name, attributes, nil)
}

func (r *rig) openWith(name string, attributes map[string]string, o *awssqs.Options) *awssqs.Broker {
	r.Helper()
	url, err := r.server.CreateQueue(name, attributes)
	if err != nil {
		r.Fatal(err)
	}
	return must.Get(awssqs.New(r.client(), url, o))
}

func (r *rig) client() *sqs.Client {
	return testaws.FakeClient(r.server)
}

// answer is what a run of the command came to.
type answer struct {
	*rig
	args     string
	code     int
	out, err string
}

func (r *rig) io(out, errs *bytes.Buffer) *IO {
	return &IO{
		In: strings.NewReader(r.typed), Out: &locked{w: out}, Err: &locked{w: errs},
		Env:  func(name string) (string, bool) { v, ok := r.env[name]; return v, ok },
		Home: r.dir, Terminal: r.terminal, Screen: r.screen, Now: r.now, Patience: r.patience, LetterWait: 100 * time.Millisecond,
		Size: func() (int, int) { return r.size[0], r.size[1] },
		Raw:  func() (func(), error) { return func() {}, nil },
	}
}

// locked is a buffer that several goroutines may write to.
type locked struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// run runs the command.
func (r *rig) run(args ...string) *answer {
	r.Helper()
	return r.runIn(r.Context(), args...)
}

func (r *rig) runIn(ctx context.Context, args ...string) *answer {
	r.Helper()
	var out, errs bytes.Buffer
	code := Main(ctx, append([]string{"--by", "ana"}, args...), r.io(&out, &errs))
	return &answer{rig: r, args: strings.Join(args, " "), code: code, out: out.String(), err: errs.String()}
}

// want checks the exit code, and texts of the two outputs together.
func (a *answer) want(code int, texts ...string) *answer {
	a.Helper()
	if a.code != code {
		a.Fatalf("onceq %s: exit %d, want %d\n%s%s", a.args, a.code, code, a.out, a.err)
	}
	for _, text := range texts {
		if !strings.Contains(a.out+a.err, text) {
			a.Errorf("onceq %s: no %q in\n%s%s", a.args, text, a.out, a.err)
		}
	}
	return a
}

// not checks that texts are not there.
func (a *answer) not(texts ...string) *answer {
	a.Helper()
	for _, text := range texts {
		if strings.Contains(a.out+a.err, text) {
			a.Errorf("onceq %s: %q stands in\n%s%s", a.args, text, a.out, a.err)
		}
	}
	return a
}

// json reads the output.
func (a *answer) json(v any) *answer {
	a.Helper()
	if err := json.Unmarshal([]byte(a.out), v); err != nil {
		a.Fatalf("onceq %s: %v in\n%s%s", a.args, err, a.out, a.err)
	}
	return a
}

// send sends jobs with the keys.
func (r *rig) send(keys ...string) {
	r.Helper()
	for _, k := range keys {
		m := broker.Outgoing{Body: []byte(`{"order":"` + k + `"}`), Meta: &broker.Meta{Key: k, Type: "charge"}}
		if err := onceq.SendOne(r.Context(), r.queue, &m); err != nil {
			r.Fatal(err)
		}
	}
}

// seat takes a seat with a card, as a worker does.
func (r *rig) seat(owner string, change func(*control.WorkerStatus)) *controlstore.Seat {
	r.Helper()
	s := must.Get(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: "orders", Owner: owner}))
	r.beat(s, change)
	return s
}

func (r *rig) beat(s *controlstore.Seat, change func(*control.WorkerStatus)) {
	r.Helper()
	now := time.Now()
	c := &control.WorkerStatus{
		Host: "host-1", PID: 7, Version: "v0.9.2", Scope: "orders", Types: []string{"charge"}, Started: now.Add(-time.Hour), At: now,
		Slots: 100, Busy: 80, State: "running", Outcomes: map[string]uint64{"done": 996, "retried": 3, "failed": 1}, Rate: 601, HeadWait: 900 * time.Millisecond,
		Durations: map[string]control.Quantiles{"charge": {P50: 200 * time.Millisecond, P95: 800 * time.Millisecond, Max: 2 * time.Second}},
		Jobs:      []control.RunningJob{{Key: "B-12", Type: "charge", At: now.Add(-41 * time.Second), Attempt: 1, Fence: 9}},
	}
	if change != nil {
		change(c)
	}
	if err := s.Beat(r.Context(), c); err != nil {
		r.Fatal(err)
	}
}

// claim wins a key.
func (r *rig) claim(k dedupe.Key, ttl time.Duration, policy dedupe.Policy) dedupe.Claim {
	r.Helper()
	q := dedupe.ClaimRequest{Key: k, Token: token(), TTL: ttl, Policy: policy, Owner: "w-3/1", MessageID: "m-1#x", Sent: time.Now().Add(-4 * time.Second)}
	for {
		as, err := r.store.Claim(r.Context(), []dedupe.ClaimRequest{q})
		if err == nil && errors.Is(as[0].Err, dedupe.ErrBusy) {
			continue // a short lease waits for the file's lock for a moment alone
		}
		if err != nil || as[0].Err != nil || as[0].Outcome != dedupe.Won {
			r.Fatal(err, as)
		}
		return as[0]
	}
}

func (r *rig) settle(c dedupe.Claim, to dedupe.Status, class, text string) {
	r.Helper()
	as, err := r.store.Settle(r.Context(), []dedupe.Settlement{{Key: c.Lease.Key, Token: c.Lease.Token, To: to, ErrClass: class, ErrText: text}})
	if err != nil || as[0].Err != nil {
		r.Fatal(err, as)
	}
}

var drawn struct {
	sync.Mutex
	n byte
}

func token() (t dedupe.Token) {
	drawn.Lock()
	defer drawn.Unlock()
	drawn.n++
	t[0], t[1] = drawn.n, 1
	return t
}

// charge is a key of the rig's jobs.
func charge(key string) dedupe.Key { return dedupe.Key{Scope: "orders:charge", Key: key} }

var errBank = errors.New("context deadline exceeded")
