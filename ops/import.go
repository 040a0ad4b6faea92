package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns the way back of what was purged or exported. Tools call it with what
// dlq.ImportJSON reads. Nothing is locked.

// Imported counts what an import did.
type Imported struct {
	// Sent is how many messages were sent.
	Sent int
	// Refused are the errors of lines that could not be read.
	Refused []error
}

// ImportLetters puts letters into a queue's dead-letter queue, as they were: with the same ids,
// keys, fences and signatures. ms are mostly those of [dlq.ImportJSON]; an error among them is
// counted, and the import goes on. It writes an audit record where the target has a store.
//
// It does no harm to import a letter that is there still, or was replayed since: of each failure
// one letter runs. Run an import that ended with an error again.
func (o *Ops) ImportLetters(ctx context.Context, queue string, ms iter.Seq2[broker.Outgoing, error], reason string) (got Imported, audit string, err error) {
	t, err := o.target(queue)
	if err != nil {
		return got, "", err
	}
	if t.DeadLetters == nil {
		return got, "", fmt.Errorf("%w: %s has no dead-letter queue", ErrMissing, t.label())
	}
	return o.bringBack(ctx, t, t.DeadLetters, "import letters", ms, reason)
}

// SendBack sends messages to a queue as they were, with the same ids, keys and limits. The rest is
// as in ImportLetters: a message whose key is done already is acked by the worker that gets it.
func (o *Ops) SendBack(ctx context.Context, queue string, ms iter.Seq2[broker.Outgoing, error], reason string) (got Imported, audit string, err error) {
	t, err := o.target(queue)
	if err != nil {
		return got, "", err
	}
	q, err := t.queue()
	if err != nil {
		return got, "", err
	}
	return o.bringBack(ctx, t, q, "send back", ms, reason)
}

func (o *Ops) bringBack(ctx context.Context, t *target, to broker.Sender, act string, ms iter.Seq2[broker.Outgoing, error], reason string) (got Imported, audit string, err error) {
	if t.Store == nil {
		return got, "", bring(ctx, to, ms, &got)
	}
	e := AuditEntry{Act: act, Reason: cmp.Or(reason, "brought back by hand"), Queue: t.known}
	audit, err = o.act(ctx, t.Store, e, func(ctx context.Context) (map[string]string, error) {
		err := bring(ctx, to, ms, &got)
		result := map[string]string{"sent": strconv.Itoa(got.Sent)}
		if n := len(got.Refused); n > 0 {
			result["refused"] = strconv.Itoa(n)
		}
		return result, err
	})
	return got, audit, err
}

func bring(ctx context.Context, to broker.Sender, ms iter.Seq2[broker.Outgoing, error], got *Imported) error {
	most := max(1, to.Limits().SendBatch)
	var batch []broker.Outgoing
	for m, err := range ms {
		if err != nil {
			got.Refused = append(got.Refused, err)
			continue
		}
		if batch = append(batch, m); len(batch) < most {
			continue
		}
		if err := bringBatch(ctx, to, batch, got); err != nil {
			return err
		}
		batch = batch[:0]
	}
	return bringBatch(ctx, to, batch, got)
}

// bringTries is how often what is not known to have been sent is sent.
const bringTries = 4

// bringBatch sends a batch. It repeats what is not known to have been sent, because a copy does no
// harm.
func bringBatch(ctx context.Context, to broker.Sender, ms []broker.Outgoing, got *Imported) error {
	for try := 1; len(ms) > 0; try++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		errs := make([]error, len(ms))
		letter.InParts(len(ms), func(from, to1 int) bool {
			_, err := to.Send(ctx, ms[from:to1])
			if letter.IsTooMuch(err, to1-from) {
				return true
			}
			for i := from; i < to1; i++ {
				errs[i] = broker.ErrAt(err, i-from)
			}
			return false
		})
		var left []broker.Outgoing
		var last error
		for i, err := range errs {
			if err != nil {
				left, last = append(left, ms[i]), err
			} else {
				got.Sent++
			}
		}
		if last != nil && (try == bringTries || letter.IsUnfit(last) || errors.Is(last, broker.ErrClosed) || errors.Is(last, broker.ErrNotFound)) {
			return fmt.Errorf("%d messages may not have been sent: %w", len(left), last)
		}
		if ms = left; len(ms) > 0 {
			retry.Rest(ctx, retry.Pause(try))
		}
	}
	return nil
}
