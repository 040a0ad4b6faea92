//go:build unix

package chaos

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/dynamooutbox"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/sqsfake"
)

// This file owns the chaos of the outbox in DynamoDB: relay processes send jobs on to a FIFO queue
// and are killed, each time the one that is sending. The producers, and the worker behind the
// queue, are goroutines of the test. stall does not change once they run.

// tablesVariable makes the test binary a relay of the outbox in DynamoDB.
const tablesVariable = "ONCEQ_CHAOS_TABLES"

const (
	stallLease   = 3 * time.Second // the shortest
	stallKills   = 3
	stallWriters = 6 // each has an account, which is a group
)

// stall tells a process where everything is.
type stall struct {
	Tables                  tablesAt
	Outbox, Orders          string // tables
	Server, Queue           string // the destination
	client                  *dynamodb.Client
	records                 *dynamostore.Store
	outbox                  *dynamooutbox.Outbox
	committed, rolled, runs atomic.Int64
}

func (s *stall) open() (err error) {
	s.client = dynamodb.New(dynamodb.Options{
		BaseEndpoint: &s.Tables.URL, Region: s.Tables.Region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return s.Tables.Keys, nil }),
	})
	if s.records, err = dynamostore.New(s.client, s.Tables.Records, nil); err == nil {
		s.outbox, err = dynamooutbox.New(s.client, s.Outbox, "orders", s.records, &dynamooutbox.Options{
			Partitions: 3, Lease: stallLease, Poll: 50 * time.Millisecond,
		})
	}
	return err
}

// relayTables is a relay's process.
func relayTables(ctx context.Context, s *stall) error {
	if err := s.open(); err != nil {
		return err
	}
	queue, err := openSQS(s.Server, s.Queue)
	if err != nil {
		return err
	}
	return runWorker(ctx, onceq.ProcessorConfig{
		Handler: onceq.Forward(queue), Store: onceq.NoStore, Scope: "outbox", Logger: slog.New(slog.DiscardHandler), CallTimeout: time.Second,
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return mathrand.N(300 * time.Millisecond) }},
	}, s.outbox, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 50, Visibility: stallLease / 3 * 2})
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// place writes an order and its job, the n-th of its account. Where it is to be rolled back, a
// condition of the transaction does not hold.
func (s *stall) place(ctx context.Context, account string, n int64, rollBack bool) error {
	m := onceq.Message("ship", "", []byte(strconv.FormatInt(n, 10)))
	m.Group, m.Attributes = account, map[string]string{dynamooutbox.SequenceAttribute: strconv.FormatInt(n, 10)}
	ms := []broker.Outgoing{m}
	if err := onceq.Fill(ms); err != nil {
		return err
	}
	items, err := s.outbox.Items(ms...)
	if err != nil {
		return err
	}
	order := &types.Put{TableName: &s.Orders, Item: map[string]types.AttributeValue{"id": text(ms[0].Meta.Key), "account": text(account), "n": number(n)}}
	if rollBack {
		order.ConditionExpression = aws.String("attribute_exists(id)")
	}
	_, err = s.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: append(items, types.TransactWriteItem{Put: order})})
	if rollBack && errors.As(err, new(*types.TransactionCanceledException)) {
		s.rolled.Add(1)
		return nil
	}
	if err == nil {
		s.committed.Add(1)
	}
	return err
}

// TestOutboxInDynamoDB: each committed order is shipped once, none that was rolled back is, and
// each account's are shipped in its own order, whatever becomes of the relays and the destination.
func TestOutboxInDynamoDB(t *testing.T) {
	from := drawn(t)
	t.Logf("-seed %d", from)
	db := localstack.DynamoDB(t)
	server := sqsfake.Start(t, &sqsfake.Options{StrandCancelled: true, Seed: from})
	url, err := server.CreateQueue("orders.fifo", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &stall{
		Tables: tablesAt{URL: db.URL, Region: db.Region, Keys: db.Credentials, Records: db.TableName(t, "records"), Payments: db.TableName(t, "shipped")},
		Outbox: db.TableName(t, "outbox"), Orders: db.TableName(t, "orders"), Server: server.URL, Queue: url,
	}
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	s.create(t)
	stop := s.work(t)
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for i := range stallWriters {
		writers.Go(func() {
			rng := mathrand.New(mathrand.NewPCG(from, uint64(i)))
			account := fmt.Sprint("account-", i)
			for n := int64(1); ctx.Err() == nil; n++ {
				if err := s.place(t.Context(), account, n, rng.IntN(5) == 0); err != nil {
					t.Error(err)
					return
				}
				<-time.After(time.Duration(rng.IntN(100)) * time.Millisecond)
			}
		})
	}
	owners := make(map[string]bool)
	crew := []*child.Child{s.start(t), nil}
	s.taken(t, owners)
	crew[1] = s.start(t) // it stands by
	kills := max(stallKills, *rounds/8)
	for n := range kills {
		s.progress(t, 20)
		harm(server, n)
		<-time.After(time.Duration(mathrand.IntN(300)) * time.Millisecond)
		crew[n%2].Kill()
		<-crew[n%2].Done()
		s.taken(t, owners) // by the other one, which is killed next
		crew[n%2] = s.start(t)
		server.SetFaults()
	}
	cancel()
	writers.Wait()
	s.settle(t)
	stop()
	s.audit(t, kills)
}

func harm(server *sqsfake.Server, n int) {
	const send = "SendMessageBatch"
	switch n % 3 {
	case 0: // the entries that were sent before the kill may be there
		server.SetFaults(sqsfake.Fault{Action: send, Rate: 0.5, Reset: true, Applied: true})
	case 1:
		server.SetFaults(sqsfake.Fault{Action: send, Rate: 0.3, Entries: []int{0, 2, 5}})
	case 2:
		server.SetFaults(sqsfake.Fault{Action: send, Reset: true})
	}
}

// create makes the tables.
func (s *stall) create(t *testing.T) {
	t.Helper()
	err := errors.Join(s.records.CreateTable(t.Context()), s.outbox.CreateTable(t.Context()))
	for _, name := range []*string{&s.Orders, &s.Tables.Payments} {
		_, e := s.client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
			TableName: name, BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: new("id"), AttributeType: types.ScalarAttributeTypeS}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: new("id"), KeyType: types.KeyTypeHash}},
		})
		err = errors.Join(err, e, dynamodb.NewTableExistsWaiter(s.client).Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: name}, time.Minute))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// work ships what arrives, in one transaction with the job's end. Each shipment has an id of its
// own: under the order's, a second one would hide behind the first.
func (s *stall) work(t *testing.T) (stop func()) {
	t.Helper()
	queue := must.Get(openSQS(s.Server, s.Queue))
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: "orders", Store: s.records, Logger: slog.New(slog.DiscardHandler), Defaults: onceq.JobOptions{MaxAttempts: -1},
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return s.records.Commit(ctx, j, nil, types.TransactWriteItem{Put: &types.Put{
				TableName: &s.Tables.Payments,
				Item:      map[string]types.AttributeValue{"id": text(rand.Text()), "order": text(j.Key().Key), "at": number(s.runs.Add(1))},
			}})
		}),
	}))
	w := must.Get(p.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 2 * stallWriters}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// start runs a relay.
func (s *stall) start(t *testing.T) *child.Child {
	t.Helper()
	return begin(t, self(tablesVariable, s), nil)
}

// taken waits until a relay reads that has read nothing before.
func (s *stall) taken(t *testing.T, owners map[string]bool) {
	t.Helper()
	for end := time.Now().Add(outboxLimit); ; <-time.After(50 * time.Millisecond) {
		for r, err := range s.records.List(t.Context(), dedupe.Query{Scope: ":outbox"}) {
			if err != nil {
				t.Fatal(err)
			}
			if !owners[r.Owner] {
				owners[r.Owner] = true
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("nobody takes over from %v", owners)
		}
	}
}

// progress waits until so many more runs have begun.
func (s *stall) progress(t *testing.T, more int64) {
	t.Helper()
	from := s.runs.Load()
	for end := time.Now().Add(outboxLimit); s.runs.Load() < from+more; <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d orders are committed, and nothing moves: %d runs", s.committed.Load(), s.runs.Load())
		}
	}
}

// rows are the items of a table.
func (s *stall) rows(t *testing.T, table string) (all []map[string]types.AttributeValue) {
	t.Helper()
	pages := dynamodb.NewScanPaginator(s.client, &dynamodb.ScanInput{TableName: &table, ConsistentRead: new(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Items...)
	}
	return all
}

// settle waits until the outbox is empty and as much was shipped as was committed.
func (s *stall) settle(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(outboxLimit); ; <-time.After(100 * time.Millisecond) {
		d, err := s.outbox.Depth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		shipped := len(s.rows(t, s.Tables.Payments))
		if d.Visible+d.InFlight+d.Delayed == 0 && int64(shipped) >= s.committed.Load() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the outbox holds %+v, and %d of %d are shipped", d, shipped, s.committed.Load())
		}
	}
}

func textOf(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	}
	return ""
}

func numberOf(v types.AttributeValue) int64 {
	n, _ := strconv.ParseInt(textOf(v), 10, 64)
	return n
}

// audit compares what was ordered with what was shipped.
func (s *stall) audit(t *testing.T, kills int) {
	t.Helper()
	type order struct {
		account string
		n       int64
		times   int
	}
	orders := make(map[string]*order)
	for _, it := range s.rows(t, s.Orders) {
		orders[textOf(it["id"])] = &order{account: textOf(it["account"]), n: numberOf(it["n"])}
	}
	shipped := s.rows(t, s.Tables.Payments)
	slices.SortFunc(shipped, func(a, b map[string]types.AttributeValue) int {
		return cmp.Compare(numberOf(a["at"]), numberOf(b["at"]))
	})
	last := make(map[string]int64)
	for _, it := range shipped {
		o := orders[textOf(it["order"])]
		if o == nil {
			t.Errorf("the order %q was shipped, which nobody has committed", textOf(it["order"]))
			continue
		}
		if o.times++; o.times > 1 {
			t.Errorf("the order %d of %s was shipped %d times", o.n, o.account, o.times)
		}
		if n, ok := last[o.account]; ok && n > o.n {
			t.Errorf("%s: %d was shipped behind %d", o.account, o.n, n)
		}
		last[o.account] = o.n
	}
	t.Logf("%d orders, %d rolled back, %d kills, %d runs", len(orders), s.rolled.Load(), kills, s.runs.Load())
	if len(orders) < 50 || s.rolled.Load() == 0 || int64(len(orders)) != s.committed.Load() {
		t.Errorf("%d orders are there, %d were committed: the rounds prove nothing", len(orders), s.committed.Load())
	}
}
