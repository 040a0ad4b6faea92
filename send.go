package onceq

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/jointctx"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/values"
)

// This file owns sending: what Send fills in, how it cuts messages into batches, and what it offers
// again. Users call it, producers mostly, in their own goroutine. It holds no lock: sending is one
// call of Send.

// sendTries is how often Send offers an entry that the broker throttles.
const sendTries = 5

// Send puts the messages into the queue, in batches as large as the broker takes. Where they are
// missing, it fills in Meta.ID, Meta.Created and Meta.Key (= ID), in ms itself, and as [Fill] says,
// Meta.NotBefore of a long Delay. Meta.CorrelationID becomes that of the job whose handler's
// context ctx is, and else Meta.ID, unless the message is larger than half of what the queue takes;
// one above 64 bytes is not passed on. So a caller that sends ms again after an error sends the
// same jobs, which run once. A Meta that Send has to fill in is replaced by a copy, so that many
// messages may be made from one Meta.
//
// The error answers by position, as a [*broker.BatchError]. After any other error nothing was sent:
// that one tells of a mistake in ms. Send offers throttled entries again a few times. It repeats
// nothing else.
//
// Where the broker orders groups, Send keeps the order within a group:
//
//   - When a message of a group was not sent, no later batch has anything of that group.
//   - A throttled message is not offered again when others of its batch and group have overtaken
//     it. Its error says so.
func Send(ctx context.Context, s broker.Sender, ms []broker.Outgoing) error {
	if values.IsNil(s) {
		return errors.New("onceq: Send: the broker is nil")
	}
	l := s.Limits()
	if err := fill(ms, func(m *broker.Outgoing) string {
		if l.MaxBody > 0 && sizeOf(m) > l.MaxBody/2 {
			return "" // what just has room shall be sent
		}
		return cmp.Or(correlationIn(ctx), m.Meta.ID)
	}); err != nil {
		return err
	}
	errs := make([]error, len(ms))
	most := max(1, l.SendBatch)
	on := &sending{s: s, ordered: l.OrderedGroups}
	for from := 0; from < len(ms); from += most {
		to := min(from+most, len(ms))
		on.batch(ctx, ms[from:to], errs[from:to])
	}
	return broker.JoinEntries(errs)
}

// SendOne is Send for one message; its error is the entry's own.
func SendOne(ctx context.Context, s broker.Sender, m *broker.Outgoing) error {
	if m == nil {
		return errors.New("onceq: SendOne: the message is nil")
	}
	one := [1]broker.Outgoing{*m}
	err := Send(ctx, s, one[:])
	m.Meta = one[0].Meta
	return broker.ErrAt(err, 0)
}

// sending is one call of Send.
type sending struct {
	s       broker.Sender
	ordered bool
	broken  map[string]bool // groups of which a message was not sent, so nothing more of them is
}

var (
	errBehind   = errors.New("onceq: not sent: an earlier message of its group was not")
	errOvertake = errors.New("onceq: later messages of its group were accepted; sending it again puts it behind them")
)

// batch sends one batch, in several calls where it is too large for one.
func (o *sending) batch(ctx context.Context, ms []broker.Outgoing, errs []error) {
	letter.InParts(len(ms), func(from, to int) bool { return o.part(ctx, ms[from:to], errs[from:to]) })
}

// part sends a part of a batch. It offers again what was throttled, as long as that keeps the order
// of groups. It reports whether the part was too large for one call.
func (o *sending) part(ctx context.Context, ms []broker.Outgoing, errs []error) (tooMuch bool) {
	if o.skips(ctx, ms, errs) {
		return false
	}
	err := sendOnce(ctx, o.s, ms)
	switch {
	case err == nil:
		return false
	case letter.IsTooMuch(err, len(ms)):
		return true
	}
	for i := range ms {
		errs[i] = broker.ErrAt(err, i)
	}
	for try := 1; try < sendTries; try++ {
		var again []broker.Outgoing
		var at []int
		for i, e := range errs {
			if errors.Is(e, broker.ErrThrottled) && !o.overtaken(i, ms, errs) {
				again, at = append(again, ms[i]), append(at, i)
			}
		}
		if len(again) == 0 {
			break
		}
		if retry.Rest(ctx, retry.Pause(try)); ctx.Err() != nil {
			break
		}
		err := sendOnce(ctx, o.s, again)
		for n, i := range at {
			errs[i] = broker.ErrAt(err, n)
		}
	}
	o.note(ms, errs)
	return false
}

// skips leaves out the messages of broken groups, if there are any, and sends the others.
func (o *sending) skips(ctx context.Context, ms []broker.Outgoing, errs []error) bool {
	if !slices.ContainsFunc(ms, func(m broker.Outgoing) bool { return o.broken[m.Group] }) {
		return false
	}
	var others []broker.Outgoing
	var at []int
	for i, m := range ms {
		if o.broken[m.Group] {
			errs[i] = errBehind
			continue
		}
		others, at = append(others, m), append(at, i)
	}
	if len(others) == 0 {
		return true
	}
	answers := make([]error, len(others))
	o.batch(ctx, others, answers)
	for n, i := range at {
		errs[i] = answers[n]
	}
	return true
}

// overtaken reports whether a later message of entry i's group is in the queue already, where
// groups are ordered.
func (o *sending) overtaken(i int, ms []broker.Outgoing, errs []error) bool {
	if !o.ordered || ms[i].Group == "" {
		return false
	}
	for j := i + 1; j < len(ms); j++ {
		if ms[j].Group == ms[i].Group && errs[j] == nil {
			return true
		}
	}
	return false
}

// note remembers the groups that are broken, and adds to the errors of messages that were
// overtaken.
func (o *sending) note(ms []broker.Outgoing, errs []error) {
	if !o.ordered {
		return
	}
	for i := range ms {
		if errs[i] == nil || ms[i].Group == "" {
			continue
		}
		if o.broken == nil {
			o.broken = make(map[string]bool)
		}
		o.broken[ms[i].Group] = true
		if o.overtaken(i, ms, errs) {
			errs[i] = fmt.Errorf("%w; %w", errs[i], errOvertake)
		}
	}
}

func sendOnce(ctx context.Context, s broker.Sender, ms []broker.Outgoing) error {
	_, err := engine.Guard(func() ([]string, error) { return s.Send(ctx, ms) })
	return err
}

// Message makes a message with that type and key; each may be empty. The type picks the handler
// under a [Mux]. The key says which messages are one job: without a key, each message that is sent
// is a job of its own. A [Kind] makes messages of Go values.
func Message(typ, key string, body []byte) broker.Outgoing {
	return broker.Outgoing{Body: body, Meta: &broker.Meta{Type: typ, Key: key}}
}

// Fill does to ms what [Send] does before it sends: it fills in Meta.ID, Meta.Created and Meta.Key
// where they are missing, and refuses what Send would refuse, with the position of the message and
// the field. It sends nothing.
//
// Where Delay is above 15 minutes, Fill raises Meta.NotBefore to Created + Delay. Otherwise a
// worker would take the job for an old one when it is due: one that is older than its Retention is
// not run.
//
// An outbox needs it: fill the messages, store them in the transaction that makes the jobs, and
// send what was stored, as often as it takes. All those sends are of the same jobs. Messages that
// were stored without Meta.ID and Meta.Key would be new jobs with each Send.
func Fill(ms []broker.Outgoing) error { return fill(ms, nil) }

// fill is Fill. correlated, where it is given, answers the CorrelationID of a message that has none
// and whose ID is known.
func fill(ms []broker.Outgoing, correlated func(*broker.Outgoing) string) error {
	var ids []byte
	now := time.Now()
	for i := range ms {
		m := &ms[i]
		if m.Meta == nil {
			m.Meta = new(broker.Meta)
		} else if m.Meta.ID == "" || m.Meta.Key == "" || m.Meta.Created.IsZero() || m.Meta.NotBefore.Before(dueBy(m)) || correlated != nil && isUncorrelated(m.Meta) {
			// Another message may share the Meta, and two messages with one id would be one job.
			m.Meta = m.Meta.Clone()
		}
		meta := m.Meta
		if meta.ID == "" {
			if ids == nil {
				ids = make([]byte, 10*(len(ms)-i))
				rand.Read(ids)
			}
			meta.ID = newID(now, ids[:10])
			ids = ids[10:]
		}
		if meta.Key == "" {
			meta.Key = meta.ID
		}
		if meta.Created.IsZero() {
			meta.Created = now
		}
		if due := dueBy(m); meta.NotBefore.Before(due) {
			meta.NotBefore = due
		}
		if correlated != nil && isUncorrelated(meta) {
			if c := correlated(m); len(c) <= maxCorrelation {
				meta.CorrelationID = c
			}
		}
		if err := checkOutgoing(m); err != nil {
			return fmt.Errorf("onceq: message %d: %w", i, err)
		}
	}
	return nil
}

// maxCorrelation is the longest CorrelationID that Send sets, in bytes: a queue has little room for
// metadata, and a job's own id is there already.
const maxCorrelation = 64

// sizeOf is what the user has put into a message, in bytes.
func sizeOf(m *broker.Outgoing) int {
	n := len(m.Body)
	for name, value := range m.Attributes {
		n += len(name) + len(value)
	}
	return n
}

// isUncorrelated reports whether a CorrelationID is to be set. A letter's signature is over it,
// too, so one that is sent again stays as it is.
func isUncorrelated(m *broker.Meta) bool { return m.CorrelationID == "" && m.Dead == nil }

// correlationIn is that of the job whose handler's context it is, and the job's id where it has
// none; empty = it is no handler's, or that of a batch of several jobs, or too long.
func correlationIn(ctx context.Context) string {
	m, _ := ctx.Value(jointctx.OfJob{}).(*broker.Message)
	id := engine.IDOf(m)
	if m != nil && m.Meta != nil {
		id = cmp.Or(m.Meta.CorrelationID, id)
	}
	if len(id) > maxCorrelation {
		return ""
	}
	return id
}

// plainDelay is the longest delay that leaves no trace in the metadata. It is SQS's longest. Sends
// of one job with such a delay stay alike, and the sender's clock does not count.
const plainDelay = 15 * time.Minute

// dueBy is when a message with a long Delay is due; zero = its Delay is short. A worker needs to
// know, because it takes a job that is older than Retention for one that may be done. It counts
// from Created, so that a message that is filled twice stays the same.
func dueBy(m *broker.Outgoing) (t time.Time) {
	if m.Delay > plainDelay && !m.Meta.Created.IsZero() {
		t = m.Meta.Created.Add(m.Delay)
	}
	return t
}

func checkOutgoing(m *broker.Outgoing) error {
	meta := m.Meta
	if err := (dedupe.Key{Scope: "s", Key: meta.Key}).Validate(); err != nil {
		return fmt.Errorf("the field Meta.Key: %w", err)
	}
	switch {
	case m.Delay < 0:
		return fmt.Errorf("the field Delay is %v, want 0 or more", m.Delay)
	case meta.Timeout < 0:
		return fmt.Errorf("the field Meta.Timeout is %v, want 0 or more", meta.Timeout)
	case durations.IsBare(meta.Timeout):
		return fmt.Errorf("the field Meta.Timeout: %s", durations.AskUnit(meta.Timeout))
	case !meta.Expires.IsZero() && !dueBy(m).Before(meta.Expires):
		return fmt.Errorf("the field Delay, %v, ends when Meta.Expires, %v, has passed", m.Delay, meta.Expires)
	case !meta.Expires.IsZero() && !meta.NotBefore.IsZero() && !meta.NotBefore.Before(meta.Expires):
		return fmt.Errorf("the field Meta.NotBefore, %v, is not before Meta.Expires, %v", meta.NotBefore, meta.Expires)
	}
	for _, ours := range [...]string{broker.MetaAttribute, dlq.UnreadableAttribute} {
		if _, taken := m.Attributes[ours]; taken {
			return fmt.Errorf("the field Attributes holds %q, the name of our own", ours)
		}
	}
	return nil
}

// newID is a UUID of version 7: its first 48 bits are the time in milliseconds, so that a
// database's index of keys grows at its end.
func newID(now time.Time, random []byte) string {
	var b [16]byte
	ms := uint64(now.UnixMilli())
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	copy(b[6:], random)
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[0:8], b[0:4])
	hex.Encode(s[9:13], b[4:6])
	hex.Encode(s[14:18], b[6:8])
	hex.Encode(s[19:23], b[8:10])
	hex.Encode(s[24:36], b[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}
