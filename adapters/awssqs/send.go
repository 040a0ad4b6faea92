package awssqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
)

// This file owns Send: which messages share a request, and what each of them is answered.
// Producers, a worker that puts letters, and dlq's replay call it, from many goroutines. A sending
// belongs to one call, so nothing is locked. pack.go makes the entries.

// Send puts the messages, in as few requests as the 1 MiB of a request allows. It goes through the
// client as it was given to New, retries included.
//
// On a FIFO queue the entries behind a request that failed are not sent, so that none overtakes
// another one of its group. They get that request's error. If that error is permanent, they get
// only its text: they were not refused themselves.
//
// A message without a DedupID gets one there. It is made of the Meta (id, type and key) and the
// group, so that a send that is repeated puts the message once. Without a Meta.ID it is a new one.
// The queue's content-based deduplication looks at bodies alone, and is never used.
//
// An entry is answered ErrTooLarge above 1 MiB with its attributes or above ten of these, and
// ErrUnsupported with an attribute's name, a Group, a DedupID or a Delay that SQS does not take. On
// a standard queue Group is the tenant of a fair queue, and DedupID is ignored.
func (b *Broker) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	if err := b.checkBatch(callSend, len(ms)); err != nil {
		return nil, err
	}
	if b.closed() {
		return nil, b.wrap(callSend, broker.ErrClosed)
	}
	s := sending{
		answers: b.answers(callSend, len(ms)),
		ids:     make([]string, len(ms)), entries: make([]types.SendMessageBatchRequestEntry, 0, len(ms)),
	}
	for i := range ms {
		e, size, err := b.pack(&ms[i])
		if err != nil {
			s.set(i, b.wrap(callSend, err))
			continue
		}
		if s.bytes+size > maxBytes {
			s.flush(ctx)
		}
		e.Id = entryIDs[i]
		s.entries, s.bytes = append(s.entries, e), s.bytes+size
	}
	s.flush(ctx)
	if s.whole != nil && s.requests == 1 && s.asked == len(ms) {
		return nil, s.whole
	}
	return s.ids, s.err()
}

// sending is one Send: its entries are gathered until a request is full.
type sending struct {
	*answers
	ids      []string
	entries  []types.SendMessageBatchRequestEntry
	bytes    int
	requests int
	asked    int   // entries in the requests so far
	whole    error // what the last request that failed as a whole was answered
	stopped  error // why nothing more is sent
}

func (s *sending) flush(ctx context.Context) {
	entries := s.entries
	s.entries, s.bytes = s.entries[len(entries):], 0
	if len(entries) > 0 {
		s.put(ctx, entries)
	}
}

// put sends the entries in one request, or in several where the service takes less than 1 MiB at a
// time. Then each message by itself may still be fine, so it must not be called too large: its
// sender would give it up, or would cut it down if it is a letter.
func (s *sending) put(ctx context.Context, entries []types.SendMessageBatchRequestEntry) {
	letter.InParts(len(entries), func(from, to int) bool { return s.part(ctx, entries[from:to]) })
}

// part sends entries in one request, and reports whether they were too much for one.
func (s *sending) part(ctx context.Context, entries []types.SendMessageBatchRequestEntry) (tooMuch bool) {
	if s.stopped != nil {
		s.answer(entries, s.stopped)
		return false
	}
	out, err := s.request(ctx, entries)
	if err != nil && len(entries) > 1 && isTooLong(err) {
		return true
	}
	s.requests++
	s.asked += len(entries)
	if err == nil {
		err = s.read(entries, out)
	} else {
		s.whole = err
		s.answer(entries, err)
	}
	if err != nil && s.b.fifo {
		s.stopped = behind(err)
	}
	return false
}

func (s *sending) request(ctx context.Context, entries []types.SendMessageBatchRequestEntry) (*sqs.SendMessageBatchOutput, error) {
	ctx, cancel, err := s.b.begin(ctx, s.call)
	if err != nil {
		return nil, err
	}
	defer cancel()
	out, err := s.b.sends.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &s.b.url, Entries: entries})
	if err != nil {
		return nil, s.b.failed(ctx, s.call, err)
	}
	return out, nil
}

// behind is the answer to entries that were not sent because of err. Where err says that SQS never
// takes some other message, they do not carry it, because it says nothing of them.
func behind(err error) error {
	const text = "not sent, for an earlier part of the batch failed: "
	if letter.IsUnfit(err) {
		return errors.New(text + err.Error())
	}
	return fmt.Errorf(text+"%w", err)
}

// read answers the entries. Its error is the first of theirs.
func (s *sending) read(entries []types.SendMessageBatchRequestEntry, out *sqs.SendMessageBatchOutput) error {
	for _, e := range out.Successful {
		i := s.applied(e.Id)
		if i < 0 {
			continue
		}
		s.ids[i] = deref(e.MessageId)
		if s.b.fifo || !s.b.checks || e.MD5OfMessageBody == nil {
			// A duplicate may be answered with the checksum of the first, whose body may have been
			// another.
			continue
		}
		for j := range entries {
			if entries[j].Id == entryIDs[i] && !matches([]byte(*entries[j].MessageBody), *e.MD5OfMessageBody) {
				s.set(i, s.b.wrap(s.call, ErrChecksum))
			}
		}
	}
	for _, e := range out.Failed {
		s.failed(e)
	}
	var first error
	for _, e := range entries {
		i := s.at(e.Id)
		if !s.told[i] {
			s.set(i, s.b.unanswered(s.call))
		}
		switch {
		case s.errs == nil || s.errs[i] == nil:
			s.b.counts.sent.Add(1)
		default:
			s.ids[i] = ""
			first = cmp.Or(first, s.errs[i])
		}
	}
	return first
}

func (s *sending) answer(entries []types.SendMessageBatchRequestEntry, err error) {
	for _, e := range entries {
		s.set(s.at(e.Id), err)
	}
}
