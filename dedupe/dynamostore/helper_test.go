package dynamostore

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/storetest"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// What the tests of all stores say.
type job = storetest.Job

var (
	newToken  = storetest.Token
	request   = storetest.Request
	claimAll  = storetest.ClaimAll
	claimOne  = storetest.Claim
	get       = storetest.Get
	settle    = storetest.Settle
	settleOne = storetest.End
	renewOne  = storetest.Renew
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
	s := must.Get(New(c, table, nil))
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
	return must.Get(New(openClient(tb), s.table, &Options{TTLAttribute: s.ttl}))
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
