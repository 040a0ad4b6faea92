//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/ops"
)

// This file owns cancels whose operator, or whose job's worker, is killed amid them.

// cancelVariable makes the test binary an operator, who cancels one job.
const cancelVariable = "ONCEQ_CHAOS_CANCEL"

type cancelling struct{ Store, Database, Key string }

// The lines of an operator. It begins when it is told to drain.
const (
	lineReady    = "ready"
	lineCancels  = "cancels"
	lineAnswered = "answered" // and: nil, refused, or error
)

func cancelOne(ctx context.Context, a cancelling) error {
	books, err := openBooks(ctx, a.Store, a.Database)
	if err != nil {
		return err
	}
	defer books.close()
	child.Tell(lineReady)
	<-ctx.Done()
	child.Tell(lineCancels)
	child.Tell(lineAnswered + " " + heard(cancelBy(context.WithoutCancel(ctx), books, a.Key)))
	return nil
}

func cancelBy(ctx context.Context, b books, key string) error {
	o, err := ops.New([]ops.Target{{Name: "orders", Store: b.store()}}, &ops.Options{By: "ana"})
	if err != nil {
		return err
	}
	_, err = o.Cancel(ctx, ops.CancelSpec{Key: dedupe.Key{Scope: scope, Key: key}, Reason: "withdrawn"})
	return err
}

func heard(err error) string {
	switch {
	case err == nil:
		return "nil"
	case errors.Is(err, ops.ErrRefused):
		return "refused"
	}
	return "error"
}

// killed is who is killed amid a cancel.
type killed struct{ operator, worker bool }

// walkCancels: each job is cancelled while it runs, and the operator's process dies amid that, the
// worker's after it, or both. When the operator, or another one who asks again, has been answered
// nil, the job's transaction never commits and no handler begins any more; where he was refused, it
// has committed once. It answers what was otherwise.
func walkCancels(t *testing.T, m mode, jobs int, rng, dealt *rand.Rand) (wrong []string) {
	t.Helper()
	s := newScene(t, m, rng, dealt)
	for n := range workers {
		s.crew = append(s.crew, s.start(n))
	}
	var way *proxy
	if m.store != "sqlite" {
		way = newProxy(t, host(s.a.Database))
	}
	kills := []killed{{true, false}, {false, true}, {true, true}, {true, false}}
	answers := map[string]int{}
	for n := range jobs {
		ctx, cancel := context.WithTimeoutCause(t.Context(), roundLimit, errors.New("the cancel takes too long"))
		bad, answer := s.cancelAmid(ctx, fmt.Sprint("c", n), way, kills[n%len(kills)])
		cancel()
		wrong = append(wrong, bad...)
		answers[answer]++
	}
	for _, p := range s.crew {
		s.drain(p)
	}
	t.Logf("%d cancels, answered %v", jobs, answers)
	return wrong
}

func (s *scene) cancelAmid(ctx context.Context, key string, way *proxy, d killed) (wrong []string, answer string) {
	o := s.operator(ctx, key, way)
	defer o.Kill()
	m := broker.Outgoing{Body: []byte(bodyLong), Meta: &broker.Meta{Key: key}}
	if err := onceq.Send(ctx, s.queue, []broker.Outgoing{m, m}); err != nil {
		s.Fatal(err)
	}
	for s.log.last(key) == 0 {
		s.wait(ctx, time.Millisecond)
	}
	s.wait(ctx, time.Duration(s.rng.Int64N(int64(long+pause))))
	owner := s.log.owner(key)
	said, did := s.operate(ctx, o, way, d.operator)
	if d.worker {
		s.wait(ctx, time.Duration(s.rng.Int64N(int64(pause))))
		for i, p := range s.crew {
			if p.name == owner {
				s.kill(i)
			}
		}
	}
	answer = heard(cancelBy(ctx, s.books, key)) // as one does whose answer was lost
	for {
		depth, err := s.depth(ctx)
		if err != nil {
			s.Fatal(err)
		}
		if depth == (broker.Depth{}) {
			break
		}
		s.wait(ctx, 20*time.Millisecond)
	}
	rs, err := s.books.store().Get(ctx, []dedupe.Key{{Scope: scope, Key: key}})
	if err != nil || rs[0] == nil {
		s.Fatalf("%s: %v, %v", key, rs, err)
	}
	paid, err := s.books.paid(ctx)
	if err != nil {
		s.Fatal(err)
	}
	if s.mode.effect != inTx {
		paid, _ = s.api.paid()
	}
	rec, n, last := rs[0], len(paid[key]), s.log.last(key)
	what := fmt.Sprintf("%s: the operator's process %s and heard %q, then %q was answered; %v with %d payments, and the last handler had the fence %d of %d",
		key, did, said, answer, rec.Status, n, last, rec.Fence)
	switch {
	case answer == "error" || said == "error" && !d.operator:
		wrong = append(wrong, "no answer: "+what)
	case answer == "nil" && (n != 0 || !ops.IsCancelled(rec) || last > rec.Fence):
		wrong = append(wrong, "cancelled, and yet: "+what)
	case answer == "refused" && (n != 1 || rec.Status != dedupe.Done || said == "nil"):
		wrong = append(wrong, "refused, and yet: "+what)
	}
	return wrong, answer
}

// operator is a process that is about to cancel a job.
type operator struct {
	*child.Child
	cancels  chan struct{}
	answered string // when it is done
}

func (s *scene) operator(ctx context.Context, key string, way *proxy) *operator {
	a := cancelling{Store: s.mode.store, Database: s.a.Database, Key: key}
	if way != nil {
		a.Database = strings.ReplaceAll(a.Database, host(a.Database), way.address())
	}
	o, ready := &operator{cancels: make(chan struct{})}, make(chan struct{})
	o.Child = begin(s.T, self(cancelVariable, a), func(line string) {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case lineReady:
			close(ready)
		case lineCancels:
			close(o.cancels)
		case lineAnswered:
			o.answered = rest
		}
	})
	select {
	case <-ready:
	case <-o.Done():
		s.Fatal(o.Err())
	case <-ctx.Done():
		s.Fatal(context.Cause(ctx))
	}
	return o
}

// operate lets the operator cancel. It answers what that has said, "" = nothing, and what became of
// it.
func (s *scene) operate(ctx context.Context, o *operator, way *proxy, dies bool) (said, did string) {
	if way != nil && dies {
		way.take()
		way.setAfter(s.rng.IntN(30), []weather{stalls, loses}[s.rng.IntN(2)], 0)
		defer way.set(clear, 0)
	}
	go o.Drain(ctx) //nolint:errcheck // Err tells
	did = "has ended"
	if dies {
		select {
		case <-o.cancels:
		case <-o.Done():
		case <-ctx.Done():
		}
		for end := time.Now().Add(5 * time.Second); way != nil && !way.met() && !over(o.Child) && time.Now().Before(end); {
			s.wait(ctx, time.Millisecond)
		}
		if way == nil {
			s.wait(ctx, time.Duration(s.rng.Int64N(int64(pause/10))))
		}
		if o.Kill() {
			did = "was killed"
		}
	}
	select {
	case <-o.Done():
	case <-ctx.Done():
		s.Fatal(context.Cause(ctx))
	}
	return o.answered, did
}

func over(c *child.Child) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}
