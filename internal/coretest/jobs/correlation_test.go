package jobs

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// observing makes each handler's context one of its own, as telemetry does.
type observing struct{}

func (observing) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	return context.WithValue(ctx, observing{}, j.ID())
}
func (observing) JobEnded(context.Context, *onceq.JobReport) {}

// TestCorrelation: what a job sends has the correlation of the job, and so on from job to job, also
// through Do and an Observer's context. What nobody correlates has its own id, and a word of the
// user's stays. A batch of several jobs is none of them.
func TestCorrelation(t *testing.T) {
	for name, o := range map[string]onceq.Observer{"bare": nil, "observed": observing{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ok := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				queue, err := membroker.New(&membroker.Options{Name: "orders"})
				ok(err)
				dead, err := membroker.New(nil)
				ok(err)
				store, err := memstore.New(nil)
				ok(err)
				var mu sync.Mutex
				seen := map[string]*broker.Meta{}
				send := func(ctx context.Context, typ, key string) error {
					m := onceq.Message(typ, key, nil)
					return onceq.SendOne(ctx, queue, &m)
				}
				mux := new(onceq.Mux)
				var p *onceq.Processor
				step := func(next func(context.Context) error) onceq.Handler {
					return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
						mu.Lock()
						seen[j.Key().Key] = j.Message.Meta
						mu.Unlock()
						return next(ctx)
					})
				}
				end := func(context.Context) error { return nil }
				mux.On("first", step(func(ctx context.Context) error { return send(ctx, "second", "second") }), nil)
				mux.On("second", step(func(ctx context.Context) error {
					_, err := onceq.Do(ctx, p, dedupe.Key{Key: "once"}, nil, func(ctx context.Context, _ *onceq.Job) (bool, error) {
						return true, send(ctx, "end", "third")
					})
					return err
				}), nil)
				mux.On("named", step(func(ctx context.Context) error { return send(ctx, "end", "after-named") }), nil)
				mux.On("long", step(func(ctx context.Context) error { return send(ctx, "end", "after-long") }), nil)
				mux.On("end", step(end), nil)
				mux.On("bulk", onceq.Bulk(onceq.BulkOptions{Max: 2, Linger: time.Second}, func(ctx context.Context, js []*onceq.Job) []error {
					if err := send(ctx, "end", "after-bulk-"+js[0].Key().Key); err != nil {
						t.Error(err)
					}
					return nil
				}), nil)
				p, err = onceq.NewProcessor(onceq.ProcessorConfig{Handler: mux, Store: store, Scope: "orders", Observer: o})
				ok(err)
				w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
				ok(err)
				ctx, stop := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { _ = w.Run(ctx) })

				ok(send(t.Context(), "first", "first"))
				letter := broker.Outgoing{Meta: &broker.Meta{ID: "i", Type: "end", Key: "letter", Created: time.Now(), Dead: &broker.Letter{Fence: 1}}}
				whole := letter.Meta
				ok(onceq.SendOne(t.Context(), queue, &letter))
				if letter.Meta != whole || whole.CorrelationID != "" {
					t.Errorf("a letter, whose signature is over its metadata, is sent as %+v", letter.Meta)
				}
				narrow, err := membroker.New(&membroker.Options{Preset: membroker.SQSStandard})
				ok(err)
				full := broker.Outgoing{Body: make([]byte, narrow.Limits().MaxBody/2+1)}
				if ok(onceq.SendOne(t.Context(), narrow, &full)); full.Meta.CorrelationID != "" {
					t.Error("a message that has hardly room gets more to carry")
				}
				long := strings.Repeat("x", 65)
				ok(onceq.Send(t.Context(), queue, []broker.Outgoing{
					{Meta: &broker.Meta{Type: "named", Key: "named", CorrelationID: "web-771"}},
					{Meta: &broker.Meta{Type: "long", Key: "long", ID: long}},
					{Meta: &broker.Meta{Type: "bulk", Key: "a"}},
					{Meta: &broker.Meta{Type: "bulk", Key: "b"}},
				}))
				<-time.After(time.Minute)
				stop()
				run.Wait()
				is := func(key, want string) {
					t.Helper()
					if m := seen[key]; m == nil || m.CorrelationID != want {
						t.Errorf("%s has %+v, want %q", key, m, want)
					}
				}
				is("first", seen["first"].ID)
				is("second", seen["first"].ID)
				is("third", seen["first"].ID)
				is("named", "web-771")
				is("after-named", "web-771")
				is("long", "")
				is("after-long", seen["after-long"].ID)
				for key, m := range seen {
					if strings.HasPrefix(key, "after-bulk") {
						is(key, m.ID)
					}
				}
			})
		})
	}
}
