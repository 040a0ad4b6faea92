//go:build unix

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

const (
	scope = "chaos"
	// hold is how long a claim holds without a beat, and a delivery on SQS: the shortest it knows.
	hold = time.Second
	// pause is the longest, of those before an effect and after it together.
	pause = 200 * time.Millisecond
	// controlled is how often workers read the operators' rules.
	controlled = 2 * time.Second
	// bodyLong is of an order that takes longer than its lease.
	bodyLong = "pay slowly"
	long     = 2 * hold
)

// assignment is what a worker process is told.
type assignment struct {
	place
	Name            string
	Store, Database string
	API             string
	Effect          effect
}

// The first words of the lines that a worker writes, each with the key and the fence.
const (
	lineBegan    = "began"    // a handler
	linePays     = "pays"     // from now on
	lineReturned = "returned" // a handler
	lineRefused  = "refused"  // a transaction, by the store
	lineEnded    = "ended"    // a delivery, with the outcome
)

func sqsClient(endpoint string) *sqs.Client {
	return testaws.ClientOf(endpoint)
}

// work is a worker process.
func work(ctx context.Context, a assignment) error {
	books, err := openBooks(ctx, a.Store, a.Database)
	if err != nil {
		return err
	}
	defer books.close()
	queue, dead, err := a.open(ctx)
	if err != nil {
		return err
	}
	policy := dedupe.Rerun
	if a.Effect == parked {
		policy = dedupe.Park
	}
	return runWorker(ctx, onceq.ProcessorConfig{
		Handler: &handler{a, books}, Store: books.store(), Scope: scope, Owner: a.Name,
		Defaults: onceq.JobOptions{
			MaxAttempts: -1, Interrupted: policy, Backoff: func(int, error) time.Duration { return 0 },
		},
		Lease: hold, Observer: teller{}, Control: onceq.ControlOptions{Every: controlled},
	}, queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 8, Visibility: a.Service.visibility()})
}

// runWorker runs a worker until ctx ends.
func runWorker(ctx context.Context, c onceq.ProcessorConfig, queue broker.Receiver, o onceq.WorkerConfig) error {
	p, err := onceq.NewProcessor(c)
	if err != nil {
		return err
	}
	w, err := p.Worker(queue, o)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

type handler struct {
	a     assignment
	books books
}

// Handle lets the effect happen, whatever has become of the lease meanwhile.
func (h *handler) Handle(ctx context.Context, j *onceq.Job) error {
	ctx = context.WithoutCancel(ctx)
	key := j.Key().Key
	child.Tell(lineBegan+" %s %d", key, j.Fence())
	defer child.Tell(lineReturned+" %s %d", key, j.Fence())
	if string(j.Message.Body) == bodyLong {
		<-time.After(long)
	}
	// A transaction matters until it is committed, an effect elsewhere from then on: there the
	// moments lie.
	before := pause / 4
	if h.a.Effect == inTx {
		before = pause - before
	}
	<-time.After(rand.N(before))
	child.Tell(linePays+" %s %d", key, j.Fence())
	err := h.pay(ctx, j)
	if errors.Is(err, dedupe.ErrLeaseLost) {
		child.Tell(lineRefused+" %s %d", key, j.Fence())
	}
	<-time.After(rand.N(pause - before))
	return err
}

func (h *handler) pay(ctx context.Context, j *onceq.Job) error {
	if h.a.Effect == inTx {
		return h.books.pay(ctx, j)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.a.API, nil)
	if err != nil {
		return err
	}
	req.Header.Set(headerOrder, j.Key().Key)
	req.Header.Set(headerFence, strconv.FormatUint(j.Fence(), 10))
	if h.a.Effect == byKey {
		req.Header.Set(headerKey, j.EffectKey("pay"))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return onceq.Unknown(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return onceq.Unknown(fmt.Errorf("the API answers %s", res.Status))
	}
	return nil
}

type teller struct{}

func (teller) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

func (teller) JobEnded(_ context.Context, r *onceq.JobReport) {
	// A delivery that was lost before its claim has no key.
	child.Tell(lineEnded+" %s %d %s", cmp.Or(r.Key.Key, "-"), r.Fence, r.Outcome)
}
