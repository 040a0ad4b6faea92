package dynamooutbox

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/tablequeue/tabletest"
)

func credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "onceq", SecretAccessKey: "onceq"}, nil
}

// shared is a memory store that several relays of one process share, as processes share a table.
type shared struct{ *memstore.Store }

func (s shared) Limits() dedupe.Limits {
	l := s.Store.Limits()
	l.Durable = true
	return l
}

func newLeases(tb testing.TB) dedupe.Store {
	tb.Helper()
	s := must.Get(memstore.New(nil))
	return shared{s}
}

// world is a table in memory, with the claims beside it.
type world struct {
	testing.TB
	f      *fake
	leases dedupe.Store
}

const (
	testTable = "outbox"
	testQueue = "orders"
)

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{TB: tb, f: newFake(), leases: newLeases(tb)}
	// The table is there, with another queue.
	if err := newOutbox(tb, w.f.client(), testTable, "other", nil, nil).CreateTable(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return w
}

// outbox is an Outbox as another process makes it.
func (w *world) outbox(o *Options) *Outbox {
	w.Helper()
	b := newOutbox(w, w.f.client(), testTable, testQueue, w.leases, o)
	if err := b.CreateTable(w.Context()); err != nil {
		w.Fatal(err)
	}
	return b
}

func newOutbox(tb testing.TB, c *dynamodb.Client, table, queue string, leases dedupe.Store, o *Options) *Outbox {
	tb.Helper()
	b := must.Get(New(c, table, queue, leases, o))
	tb.Cleanup(func() { _ = b.Close() })
	return b
}

// put sends messages through b's Items, in a transaction of their own.
func put(tb testing.TB, c *dynamodb.Client, b *Outbox, ms ...broker.Outgoing) {
	tb.Helper()
	items, err := b.Items(ms...)
	if err == nil {
		_, err = c.TransactWriteItems(tb.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: items})
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func (w *world) put(b *Outbox, ms ...broker.Outgoing) {
	w.Helper()
	put(w, w.f.client(), b, ms...)
}

// pass lets time go by, in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// inGroup is a message of a group; a sequence below 0 is none.
func inGroup(group string, sequence int, body string) broker.Outgoing {
	m := onceq.Message("", "", []byte(body))
	if m.Group = group; sequence >= 0 {
		m.Attributes = map[string]string{SequenceAttribute: fmt.Sprint(sequence)}
	}
	return m
}

// What the tests of all queues in tables say.
var (
	receive = tabletest.Receive
	ack     = tabletest.Ack
)

func bodies(ms []*broker.Message) string {
	var bs []string
	for _, m := range ms {
		bs = append(bs, string(m.Body))
	}
	return strings.Join(bs, " ")
}

// want checks the bodies of what a receive brings.
func want(tb testing.TB, b *Outbox, n int, wanted string) []*broker.Message {
	tb.Helper()
	ms := receive(tb, b, n)
	if got := bodies(ms); got != wanted {
		tb.Fatalf("the receive brought %q, want %q", got, wanted)
	}
	return ms
}

// queue is an Outbox that also sends, as the contract's suite asks: each message in a transaction
// of its batch. What the suite says of sends holds for Items then.
type queue struct {
	*Outbox
	c *dynamodb.Client
}

// suiteDelay is the longest delay in the suite, which waits for it: looking each Poll for ten years
// takes too long, also in virtual time.
const suiteDelay = time.Hour

// Limits are the outbox's, with a shorter delay.
func (q *queue) Limits() broker.Limits {
	l := q.Outbox.Limits()
	l.MaxDelay = suiteDelay
	return l
}

// Send puts what Items would put, with the metadata as they are.
func (q *queue) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	if err := q.ready(ctx, "Send", len(ms), q.Limits().SendBatch); err != nil || len(ms) == 0 {
		return nil, err
	}
	ids, errs := make([]string, len(ms)), make([]error, len(ms))
	var as []types.TransactWriteItem
	for i := range ms {
		it, err := q.itemAsIs(&ms[i], i)
		if err != nil {
			errs[i] = err
			continue
		}
		as = append(as, types.TransactWriteItem{Put: &types.Put{TableName: &q.table, Item: it}})
		pk := textOf(it[attrPK])
		ids[i] = pk[strings.LastIndexByte(pk, '#')+1:] + "/" + textOf(it[attrSK])
	}
	if len(as) > 0 {
		if _, err := q.c.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: as}); err != nil {
			return nil, q.explain(ctx, "Send", err)
		}
		q.Wake()
	}
	return ids, broker.JoinEntries(errs)
}

func (q *queue) itemAsIs(o *broker.Outgoing, i int) (item, error) {
	if _, err := check(o); err != nil {
		return nil, err
	}
	if _, ok := o.Attributes[broker.MetaAttribute]; ok && o.Meta != nil {
		return nil, broker.ErrBadMeta
	}
	if o.Delay > suiteDelay {
		return nil, unsupported("a Delay of %v", o.Delay)
	}
	filled := *o
	if filled.Meta = o.Meta.Clone(); filled.Meta == nil {
		filled.Meta = &broker.Meta{}
	}
	// The suite's own ids repeat, as do its times.
	given := *filled.Meta
	filled.Meta.ID, filled.Meta.Key, filled.Meta.Created, filled.Meta.Expires = "", "", time.Time{}, time.Time{}
	one := []broker.Outgoing{filled}
	// What Fill adds counts as an attribute, and the suite sends as many as there may be.
	one[0].Attributes = nil
	if err := onceq.Fill(one); err != nil {
		return nil, err
	}
	it, n, _, err := q.item(&one[0], i)
	if err != nil {
		return nil, err
	}
	if len(o.Attributes) > 0 {
		as := make(item)
		for name, v := range o.Attributes {
			as[name] = text(v)
		}
		it[attrAttrs] = &types.AttributeValueMemberM{Value: as}
	}
	q.hintAt([]int{n})
	if delete(it, attrMeta); o.Meta != nil {
		it[attrMeta] = text(broker.EncodeMeta(&given))
	}
	if sizeOf(it) > maxItem {
		return nil, broker.ErrTooLarge
	}
	return it, nil
}

// sendRaw puts an item as another program might.
func (q *queue) sendRaw(ctx context.Context, body []byte, attributes map[string]string) error {
	o := broker.Outgoing{Body: body}
	it, err := q.itemAsIs(&o, 0)
	if err != nil {
		return err
	}
	as := make(item)
	for name, v := range attributes {
		if name == broker.MetaAttribute {
			it[attrMeta] = text(v)
			continue
		}
		as[name] = text(v)
	}
	if len(as) > 0 {
		it[attrAttrs] = &types.AttributeValueMemberM{Value: as}
	}
	_, err = q.c.PutItem(ctx, &dynamodb.PutItemInput{TableName: &q.table, Item: it})
	return err
}
