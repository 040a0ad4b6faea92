package dynamooutbox

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/sdkhttp"
)

// This file owns the Outbox: its construction, its limits and its end. An Outbox may be used by
// many goroutines: what New sets never changes, and mu guards the partitions (partition.go), which
// receives, settlements and Wake share. It is never held during a request.

const (
	receiveBatch = 100
	// settleBatch is what DynamoDB takes in one BatchWriteItem.
	settleBatch = 25
	minHold     = 100 * time.Millisecond
	maxNack     = 12 * time.Hour
	maxWait     = 20 * time.Second
	// callTimeout bounds a request whatever the network does.
	callTimeout = 10 * time.Second
)

// Outbox is one queue's outbox in a table of DynamoDB. Make one with [New]. Its methods may be
// called from many goroutines.
type Outbox struct {
	// calls repeats nothing: the worker does. rest has the retries of the user's client.
	calls, rest  *dynamodb.Client
	table, queue string
	region       string
	leases       dedupe.Store
	owner        string
	o            Options
	// wall is the host's clock, with which the times of delayed messages are compared. What a relay
	// measures, such as its claims, it measures by itself.
	wall func() time.Time

	wakes   wakes
	checked atomic.Bool   // the table's own settings are this Outbox's
	keeping chan struct{} // holds one: who has taken it renews and claims

	mu    sync.Mutex
	parts []*partition // those of Options.Partitions, then strays
	turn  int          // where the next receive begins
	n     uint64       // numbers deliveries; begins at random
	// hinted are the partitions that Items has named since the last Wake.
	hinted map[int]bool
	keepAt time.Time // a receive asks the store again from then on
	stray  stray
}

var (
	_ broker.Receiver  = (*Outbox)(nil)
	_ broker.Depther   = (*Outbox)(nil)
	_ broker.Redriver  = (*Outbox)(nil)
	_ broker.Peeker    = (*Outbox)(nil)
	_ broker.Describer = (*Outbox)(nil)
)

// New returns the outbox of that queue in table, a DynamoDB table's name or ARN. The queue's name,
// 1 to 255 bytes of UTF-8 without '#', tells outboxes in one table apart. New does no I/O: call
// [Outbox.CreateTable] at each start. nil options mean the defaults; an error names the field and
// its limit.
//
// leases is the store in which relays claim partitions, under the scope ":outbox": the dynamostore,
// or any other whose records outlive the process. All relays of a queue must have the same one. A
// producer that receives nothing gives nil.
//
// The outbox works on copies of client. What a worker repeats by itself, receives and acks, is sent
// once, whatever client's Retryer says.
func New(client *dynamodb.Client, table, queue string, leases dedupe.Store, o *Options) (*Outbox, error) {
	if err := checkClient(client); err != nil {
		return nil, err
	}
	if err := checkTable(table); err != nil {
		return nil, err
	}
	if err := checkQueue(queue); err != nil {
		return nil, err
	}
	if err := checkLeases(leases); err != nil {
		return nil, err
	}
	if o == nil {
		o = &Options{}
	}
	c, err := o.complete()
	if err != nil {
		return nil, err
	}
	b := &Outbox{
		table: table, queue: queue, region: regionOf(table, client.Options().Region), leases: leases, owner: newOwner(), o: c, wall: time.Now,
		keeping: make(chan struct{}, 1), n: rand.Uint64N(1 << 62), hinted: make(map[int]bool),
	}
	b.rest = dynamodb.New(client.Options(), func(o *dynamodb.Options) { o.HTTPClient = sdkhttp.Sound(o.HTTPClient) })
	b.calls = dynamodb.New(b.rest.Options(), func(o *dynamodb.Options) { o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0 })
	b.wakes.init()
	for n := range c.Partitions {
		b.parts = append(b.parts, b.newPartition(n))
	}
	b.stray.next = c.Partitions
	return b, nil
}

// regionOf is the region of an ARN, or the client's.
func regionOf(table, region string) string {
	if fields := strings.Split(table, ":"); len(fields) > 3 && fields[3] != "" {
		return fields[3]
	}
	return region
}

// tableName is the table's name without the rest of its ARN.
func (b *Outbox) tableName() string { return b.table[strings.LastIndexByte(b.table, '/')+1:] }

// Close ends the outbox: waiting receives and later calls answer [broker.ErrClosed], and the claims
// of partitions are given back, so that another relay goes on within [Options].Lease / 3 instead of
// a whole one. Call it after the worker's Run has returned. Calls under way go on, and the client
// stays as it is. It takes up to 5 s, where the store is away. It may be called more than once.
func (b *Outbox) Close() error {
	if !b.wakes.close() || b.leases == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return b.giveBack(ctx)
}

const closeTimeout = 5 * time.Second

// Limits says what the outbox can do.
func (b *Outbox) Limits() broker.Limits {
	return broker.Limits{
		ReceiveBatch: receiveBatch, SettleBatch: settleBatch, SendBatch: maxActions,
		MinHold: minHold, MaxHold: b.o.maxHold(), MaxNack: maxNack, MaxDelay: longest, MaxWait: maxWait,
		MaxBody: maxBody, MaxAttributes: maxAttributes,
		Attempts: true, OrderedGroups: true, Extends: true, Durable: true,
	}
}

// Describe names the outbox.
func (b *Outbox) Describe() broker.Description {
	if b == nil {
		return broker.Description{}
	}
	return broker.Description{System: "aws_dynamodb", Name: b.queue, Address: b.region + "/" + b.tableName() + "/" + b.queue}
}

// Redrive answers that no message is ever moved away, nor removed by its age.
func (b *Outbox) Redrive(ctx context.Context) (broker.RedrivePolicy, error) {
	return broker.RedrivePolicy{}, b.ready(ctx, "Redrive", 1, 1)
}

// ready tells why a call of n entries cannot begin.
func (b *Outbox) ready(ctx context.Context, call string, n, most int) error {
	switch {
	case b.wakes.isClosed():
		return b.wrap(call, broker.ErrClosed)
	case n > most:
		return b.wrap(call, unsupported("%d entries; a batch has at most %d", n, most))
	case ctx.Err() != nil:
		return b.wrap(call, ctx.Err())
	}
	return nil
}

// Wake lets a waiting receive of this Outbox look at once into the partitions of the messages that
// [Outbox.Items] has packed since the last Wake, or into all where there are none. Call it after
// the transaction, where producer and relay share the Outbox: the message is then sent in
// milliseconds instead of half a Poll. It does no I/O that the caller waits for, and may be called
// at any time.
func (b *Outbox) Wake() {
	b.mu.Lock()
	for _, p := range b.parts {
		if len(b.hinted) == 0 || b.hinted[p.n] {
			p.soon = true
		}
	}
	clear(b.hinted)
	b.mu.Unlock()
	b.wakes.wake()
}

// hintAt remembers where messages will be.
func (b *Outbox) hintAt(parts []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range parts {
		b.hinted[n] = true
	}
}
