package sqslambda

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/sqswire"
)

// Func is what lambda.Start takes.
type Func = func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)

// Handler makes the function that runs the records of an SQS event through the Processor, for
// lambda.Start. It does no I/O. nil options mean the defaults. Several invocations may call the
// function at once, as Lambda Managed Instances do.
//
// Each record ends in one of these ways:
//
//	left out of the failures, so that Lambda deletes it:
//		done, or found done; failed or parked, with its dead letter stored
//	a failure, so that it comes again:
//		to be tried again; in progress elsewhere; not begun; lease lost;
//		the store did not answer; the handler did not return in time
//
// The event fails as a whole, with an error, when:
//
//   - It is not from SQS.
//   - Its time is too short for anything to begin.
//   - A record that failed has no message id.
//   - A record failed, and Options.FailWhole is set.
func Handler(b *onceq.Batches, o *Options) (Func, error) {
	if o == nil {
		o = &Options{}
	}
	c, err := o.complete(b)
	if err != nil {
		return nil, err
	}
	opener, err := sqswire.NewOpener(sqswire.Envelope(c.Unwrap), c.TrustTopics)
	if err != nil {
		return nil, fmt.Errorf("sqslambda: %w", err)
	}
	h := &handler{b: b, o: c, opener: opener}
	return h.handle, nil
}

type handler struct {
	b       *onceq.Batches
	o       Options
	opener  *sqswire.Opener
	strange sync.Once   // records of another queue have been logged
	asked   atomic.Bool // the queue for its visibility timeout
}

func (h *handler) handle(ctx context.Context, e events.SQSEvent) (r events.SQSEventResponse, err error) {
	if err := check(e.Records); err != nil {
		return r, err
	}
	begin := time.Now()
	end, ok := ctx.Deadline()
	if !ok {
		end = begin.Add(NoDeadline)
	}
	t, err := h.o.plan(begin, end)
	if err != nil {
		return r, err
	}
	v := newInvocation(ctx, h, e.Records, t)
	ds := make([]onceq.Delivery, len(e.Records))
	for i := range ds {
		ds[i] = onceq.Delivery{Message: message(&e.Records[i], h.opener), Until: t.until}
	}
	v.hold()
	if ok {
		v.check()
	}
	h.b.Process(ctx, ds, &onceq.BatchOptions{
		Concurrency: h.o.Concurrency,
		Unordered:   !v.ordered,
		Deadline:    t.cut,
		MinTime:     t.least,
		Outage:      outage,
		OneLease:    true,
	}, v.ended)
	v.settle() //nolint:contextcheck // the queue is told when ctx has ended, too
	return v.response()
}

// outage is how long the function waits for a store that does not answer: two calls of the
// Processor's default. That time is billed, and the messages' visibility timeout must have room for
// it.
const outage = 2 * onceq.DefaultCallTimeout

// response reports the failures. An id that Lambda does not know, or an empty one, would fail the
// whole batch.
func (v *invocation) response() (r events.SQSEventResponse, err error) {
	r.BatchItemFailures = []events.SQSBatchItemFailure{} // and not null
	seen := map[string]bool{}
	for i := range v.records {
		id := v.records[i].MessageId
		switch {
		case v.items[i].action == onceq.Ack || seen[id]:
			continue
		case id == "":
			return events.SQSEventResponse{}, fmt.Errorf("sqslambda: record %d failed and has no message id; the whole batch fails", i)
		}
		seen[id] = true
		r.BatchItemFailures = append(r.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: id})
	}
	if n := len(r.BatchItemFailures); n > 0 && v.h.o.FailWhole {
		return events.SQSEventResponse{}, fmt.Errorf("sqslambda: %d of %d records failed, the first is %s; the whole batch comes again (Options.FailWhole)",
			n, len(v.records), r.BatchItemFailures[0].ItemIdentifier)
	}
	return r, nil
}

func (v *invocation) warn(text string, as ...slog.Attr) {
	v.h.o.Logger.LogAttrs(v.ctx, slog.LevelWarn, "sqslambda: "+text, as...)
}
