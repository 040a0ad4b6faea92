package ops

import (
	"context"
	"iter"

	"github.com/onceq/onceq/dlq"
)

// This file owns looking at dead letters. Tools call it; nothing is locked. Each call goes through
// the dead-letter queue, and each letter has one receive more then.

// Letters lists a queue's dead letters, as [dlq.Queue.List] does. Options.Redact has changed them.
func (o *Ops) Letters(ctx context.Context, queue string, f dlq.Filter) iter.Seq2[dlq.Entry, error] {
	return func(yield func(dlq.Entry, error) bool) {
		q, err := o.lettersOf(queue)
		if err != nil {
			yield(dlq.Entry{}, err)
			return
		}
		for e, err := range q.List(ctx, f) {
			if err == nil {
				e.Message = o.shown(e.Message)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Groups counts a queue's dead letters by kind of failure, as [dlq.Queue.Group] does.
// Options.Redact has changed the texts and keys that they show.
func (o *Ops) Groups(ctx context.Context, queue string, f dlq.Filter) (dlq.Groups, error) {
	q, err := o.lettersOf(queue)
	if err != nil {
		return nil, err
	}
	return q.GroupWith(ctx, dlq.GroupOptions{Filter: f, Show: o.shown})
}

// LetterQuery names the letters of one job.
type LetterQuery struct {
	// Queue is a Target's name.
	Queue string
	// Job is the job's key, its id, or the id of a letter's message. Required.
	Job string
}

// Letter gives the letters of one job, as [dlq.Queue.Get] does. Options.Redact has changed them.
func (o *Ops) Letter(ctx context.Context, lq LetterQuery) ([]dlq.Entry, error) {
	q, err := o.lettersOf(lq.Queue)
	if err != nil {
		return nil, err
	}
	found, err := q.Get(ctx, lq.Job)
	for i := range found {
		found[i].Message = o.shown(found[i].Message)
	}
	return found, err
}

func (o *Ops) lettersOf(queue string) (*dlq.Queue, error) {
	t, err := o.target(queue)
	if err != nil {
		return nil, err
	}
	return t.letters()
}

// ActSpec is an act of a tool's own.
type ActSpec struct {
	// Queue is a Target's name.
	Queue string
	// Act is what is done, such as "redrive". Required; at most 64 bytes.
	Act string
	// Reason is why. Required; at most 256 bytes.
	Reason string
	// Detail is what else the audit is to have of the intent.
	Detail map[string]string
}

// Act does something of a tool's own to a queue, with an audit record around it, as all acts have
// one. do answers what came of it. The id is the record's.
func (o *Ops) Act(ctx context.Context, spec ActSpec, do func(context.Context) (map[string]string, error)) (audit string, err error) {
	t, err := o.target(spec.Queue)
	if err != nil {
		return "", err
	}
	return o.act(ctx, t.Store, AuditEntry{Act: spec.Act, Reason: spec.Reason, Queue: t.known, Detail: spec.Detail}, do)
}
