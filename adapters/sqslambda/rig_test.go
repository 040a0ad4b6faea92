package sqslambda_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/sqslambda"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	rigs "github.com/onceq/onceq/internal/rig"
)

const (
	standard = "arn:aws:sqs:us-east-1:123456789012:orders"
	fifo     = "arn:aws:sqs:us-east-1:123456789012:orders.fifo"
)

var errBoom = errors.New("boom")

// rig is a function on a queue in memory, in virtual time.
type rig struct {
	*testing.T
	q, dlq *membroker.Broker
	store  *rigs.Store
	seen   *watched
	log    *rigs.Log
	cfg    onceq.ProcessorConfig
	batch  onceq.BatchConfig
	o      sqslambda.Options
	limit  time.Duration // of an invocation
	arn    string
}

// watched is the queue, as Options.Queue: what is asked of it is kept.
type watched struct {
	broker.Receiver
	arn    string // empty = it is any queue
	limits func(broker.Limits) broker.Limits

	mu             sync.Mutex
	acks           []broker.Receipt
	nacks, extends []broker.Hold
	calls          int
	fault          func(op string, n int) error // n counts the op's calls, from 1
	before         func(op string)
	ns             map[string]int
}

func (w *watched) HasARN(arn string) bool { return w.arn == "" || w.arn == arn }

func (w *watched) Limits() broker.Limits {
	if w.limits == nil {
		return w.Receiver.Limits()
	}
	return w.limits(w.Receiver.Limits())
}

func (w *watched) ask(op string) error {
	w.mu.Lock()
	w.calls++
	if w.ns == nil {
		w.ns = map[string]int{}
	}
	w.ns[op]++
	n, fault, before := w.ns[op], w.fault, w.before
	w.mu.Unlock()
	if before != nil {
		before(op)
	}
	if fault == nil {
		return nil
	}
	return fault(op, n)
}

func (w *watched) count(op string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if op == "" {
		return w.calls
	}
	return w.ns[op]
}

func (w *watched) Ack(ctx context.Context, rs []broker.Receipt) error {
	if err := w.ask("ack"); err != nil {
		return err
	}
	w.mu.Lock()
	w.acks = append(w.acks, rs...)
	w.mu.Unlock()
	return w.Receiver.Ack(ctx, rs)
}

func (w *watched) Nack(ctx context.Context, hs []broker.Hold) error {
	if err := w.ask("nack"); err != nil {
		return err
	}
	w.mu.Lock()
	w.nacks = append(w.nacks, hs...)
	w.mu.Unlock()
	return w.Receiver.Nack(ctx, hs)
}

func (w *watched) Extend(ctx context.Context, hs []broker.Hold) error {
	if err := w.ask("extend"); err != nil {
		return err
	}
	w.mu.Lock()
	w.extends = append(w.extends, hs...)
	w.mu.Unlock()
	return w.Receiver.Extend(ctx, hs)
}

// bubble runs f in virtual time on a rig whose handler is h.
func bubble(t *testing.T, h onceq.HandlerFunc, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newRig(t, h)) })
}

func newRig(t *testing.T, h onceq.HandlerFunc) *rig {
	t.Helper()
	r := &rig{T: t, store: rigs.NewStore(t), log: new(rigs.Log), limit: time.Minute, arn: standard}
	r.queues(membroker.SQSStandard)
	r.cfg = onceq.ProcessorConfig{
		Handler: h, Store: r.store, Scope: "orders",
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return 7 * time.Second }},
	}
	r.o.Logger = r.log.Logger()
	r.cfg.Logger = r.o.Logger
	return r
}

func (r *rig) queues(p membroker.Preset) {
	var err error
	if r.q, err = membroker.New(&membroker.Options{Preset: p}); err != nil {
		r.Fatal(err)
	}
	if r.dlq, err = membroker.New(&membroker.Options{Preset: p}); err != nil {
		r.Fatal(err)
	}
	r.seen = &watched{Receiver: r.q, arn: standard}
	r.batch.DeadLetter = r.dlq
	if p == membroker.SQSFIFO {
		r.arn, r.seen.arn = fifo, fifo
	}
}

func (r *rig) withQueue() { r.o.Queue = r.seen }

func (r *rig) function() sqslambda.Func {
	r.Helper()
	p := must.Get(onceq.NewProcessor(r.cfg))
	b := must.Get(p.Batches(r.batch))
	h, err := sqslambda.Handler(b, &r.o)
	if err != nil {
		r.Fatal(err)
	}
	return h
}

// send puts a message for each "group/key" or "key"; the body is the key.
func (r *rig) send(texts ...string) {
	r.Helper()
	for _, s := range texts {
		group, key, ok := strings.Cut(s, "/")
		if !ok {
			group, key = "", s
		}
		m := broker.Outgoing{Body: []byte(key), Group: group, Meta: &broker.Meta{Key: key}}
		if err := onceq.SendOne(r.Context(), r.q, &m); err != nil {
			r.Fatal(err)
		}
	}
}

// receive is what Lambda's poller receives.
func (r *rig) receive(visibility time.Duration) (e events.SQSEvent) {
	r.Helper()
	for {
		ms, err := r.q.Receive(r.Context(), broker.ReceiveOptions{Max: 10, Visibility: visibility})
		if err != nil {
			r.Fatal(err)
		}
		for _, m := range ms {
			e.Records = append(e.Records, record(r.arn, m))
		}
		if len(ms) == 0 {
			return e
		}
	}
}

func record(arn string, m *broker.Message) events.SQSMessage {
	as := map[string]string{
		"ApproximateReceiveCount": strconv.Itoa(m.Attempt), "SentTimestamp": strconv.FormatInt(m.Published.UnixMilli(), 10),
	}
	if m.Group != "" {
		as["MessageGroupId"] = m.Group
	}
	meta := broker.EncodeMeta(m.Meta)
	return events.SQSMessage{
		MessageId: m.ID, ReceiptHandle: string(m.Receipt), Body: string(m.Body), Attributes: as,
		MessageAttributes: map[string]events.SQSMessageAttribute{broker.MetaAttribute: {DataType: "String", StringValue: &meta}},
		EventSourceARN:    arn, EventSource: "aws:sqs",
	}
}

// invoke calls the function, and checks that it leaves nothing behind.
func (r *rig) invoke(h sqslambda.Func, e events.SQSEvent) (failed []string, err error) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), r.limit)
	defer cancel()
	begin := time.Now()
	resp, err := h(ctx, e)
	if took := time.Since(begin); took >= r.limit {
		r.Errorf("the function took %v of %v", took, r.limit)
	}
	keys := map[string]string{}
	for i := range e.Records {
		keys[e.Records[i].MessageId] = e.Records[i].Body
	}
	for _, f := range resp.BatchItemFailures {
		k, ok := keys[f.ItemIdentifier]
		if !ok {
			r.Errorf("the failure %q is no record's id", f.ItemIdentifier)
		}
		failed = append(failed, k)
	}
	if err == nil && resp.BatchItemFailures == nil {
		r.Error("the list of failures is null")
	}
	return failed, err
}

// quiet checks that nothing happens any more, whatever time passes.
func (r *rig) quiet() {
	r.Helper()
	before, queue := r.store.Calls(), r.seen.count("")
	rigs.Pass(24 * time.Hour)
	if n := r.store.Calls() - before; n != 0 {
		r.Errorf("%d calls of the store after the answer", n)
	}
	if n := r.seen.count("") - queue; n != 0 {
		r.Errorf("%d calls of the queue after the answer", n)
	}
}

func (r *rig) want(failed []string, err error, want ...string) {
	r.Helper()
	if err != nil {
		r.Errorf("the function failed: %v", err)
	}
	if !slices.Equal(failed, want) {
		r.Errorf("the failures are %q, want %q", failed, want)
	}
}

func (r *rig) record(k string) dedupe.Record {
	r.Helper()
	return r.store.Record(dedupe.Key{Scope: "orders", Key: k})
}

// letters are the classes of the dead letters that are new.
func (r *rig) letters() []string {
	r.Helper()
	return rigs.Classes(r, r.dlq)
}

func numbered(n int) (ks []string) {
	for i := range n {
		ks = append(ks, fmt.Sprintf("k%03d", i))
	}
	return ks
}
