package dynamostore

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

const region = "us-east-1"

func credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "onceq", SecretAccessKey: "onceq"}, nil
}

// openClient is a client of a DynamoDB that tests may use as they like.
func openClient(tb testing.TB, settings ...func(*dynamodb.Options)) *dynamodb.Client {
	tb.Helper()
	return testaws.NewDynamoDB(tb).Client(tb, settings...)
}

// newTable is a table's name that no other test has. What is made under it is deleted at the end.
func newTable(tb testing.TB) string {
	tb.Helper()
	return testaws.NewDynamoDB(tb).TableName(tb, "records")
}

// newStore makes a store with its table, which may be there already.
func newStore(tb testing.TB, c *dynamodb.Client, table string) *Store {
	tb.Helper()
	s, err := New(c, table, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.CreateTable(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s
}

// openStore is a store with a table of its own.
func openStore(tb testing.TB) *Store {
	tb.Helper()
	return newStore(tb, openClient(tb), newTable(tb))
}

// second is another worker's store on the same table.
func second(tb testing.TB, s *Store) *Store {
	tb.Helper()
	o, err := New(openClient(tb), s.table, &Options{TTLAttribute: s.ttl})
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

func newToken() (t dedupe.Token) {
	rand.Read(t[:])
	return t
}

func request(key string) dedupe.ClaimRequest {
	return dedupe.ClaimRequest{
		Key: dedupe.Key{Scope: "orders", Key: key}, Token: newToken(), TTL: time.Minute,
		Owner: "worker-1", MessageID: "m-" + key,
	}
}

// claimAll claims a batch in which every entry is to be answered.
func claimAll(tb testing.TB, s dedupe.Store, qs ...dedupe.ClaimRequest) []dedupe.Claim {
	tb.Helper()
	cs, err := s.Claim(tb.Context(), qs)
	if err == nil {
		for _, c := range cs {
			err = errors.Join(err, c.Err)
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	return cs
}

// claimOne wins the key or fails the test.
func claimOne(tb testing.TB, s dedupe.Store, q dedupe.ClaimRequest) dedupe.Lease {
	tb.Helper()
	c := claimAll(tb, s, q)[0]
	if c.Outcome != dedupe.Won {
		tb.Fatalf("claim of %v: %v, want won", q.Key, c.Outcome)
	}
	return c.Lease
}

// get reads the record, which must be there.
func get(tb testing.TB, s dedupe.Store, k dedupe.Key) *dedupe.Record {
	tb.Helper()
	rs, err := s.Get(tb.Context(), []dedupe.Key{k})
	if err != nil {
		tb.Fatal(err)
	}
	if rs[0] == nil {
		tb.Fatalf("no record under %v", k)
	}
	return rs[0]
}

// settle settles one claim.
func settle(tb testing.TB, s dedupe.Store, t dedupe.Settlement) (dedupe.Status, error) {
	tb.Helper()
	as, err := s.Settle(tb.Context(), []dedupe.Settlement{t})
	if err != nil {
		tb.Fatal(err)
	}
	return as[0].Status, as[0].Err
}

func settleOne(tb testing.TB, s dedupe.Store, l dedupe.Lease, to dedupe.Status) {
	tb.Helper()
	st, err := settle(tb, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: to, Result: []byte(`"ok"`)})
	if err != nil || st != to {
		tb.Fatalf("settle %v to %v: %v, %v", l.Key, to, st, err)
	}
}

func renewOne(tb testing.TB, s dedupe.Store, n dedupe.Renewal) error {
	tb.Helper()
	rs, err := s.Renew(tb.Context(), []dedupe.Renewal{n})
	if err != nil {
		tb.Fatal(err)
	}
	return rs[0].Err
}

// rawItem is the item under k; empty where there is none.
func rawItem(tb testing.TB, s *Store, k dedupe.Key) item {
	tb.Helper()
	out, err := s.client.GetItem(tb.Context(), &dynamodb.GetItemInput{TableName: &s.table, Key: keyOf(k), ConsistentRead: aws.Bool(true)})
	if err != nil {
		tb.Fatal(err)
	}
	return out.Item
}

func putRaw(tb testing.TB, s *Store, it item) {
	tb.Helper()
	if _, err := s.client.PutItem(tb.Context(), &dynamodb.PutItemInput{TableName: &s.table, Item: it}); err != nil {
		tb.Fatal(err)
	}
}

func deleteRaw(tb testing.TB, s *Store, k dedupe.Key) {
	tb.Helper()
	if _, err := s.client.DeleteItem(tb.Context(), &dynamodb.DeleteItemInput{TableName: &s.table, Key: keyOf(k)}); err != nil {
		tb.Fatal(err)
	}
}

// age lets d go by for the record under k.
func age(tb testing.TB, s *Store, k dedupe.Key, d time.Duration) {
	tb.Helper()
	it := rawItem(tb, s, k)
	if len(it) == 0 {
		return
	}
	dec := decoder{it: it}
	for _, attr := range []string{attrLease, attrCreated, attrClaimed, attrUpdated, attrFinished} {
		if it[attr] != nil {
			it[attr] = number(dec.integer(attr) - d.Microseconds())
		}
	}
	if it[s.ttl] != nil {
		it[s.ttl] = number(dec.integer(s.ttl) - int64(d/time.Second))
	}
	putRaw(tb, s, it)
}

// job is a running job, as the processor shows it.
type job struct {
	lease  dedupe.Lease
	retain time.Duration
	joined atomic.Bool
}

func (j *job) Lease() dedupe.Lease   { return j.lease }
func (j *job) Retain() time.Duration { return j.retain }
func (j *job) Join()                 { j.joined.Store(true) }
