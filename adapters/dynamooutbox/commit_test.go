package dynamooutbox

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/internal/storetest"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// TestCommit on DynamoDB: a job completes and sends the next one, or does neither. So does a
// transaction of the user's own, whose token makes a repeat nothing.
func TestCommit(t *testing.T) {
	t.Parallel()
	server := testaws.NewDynamoDB(t)
	c := server.Client(t)
	store, err := dynamostore.New(c, server.TableName(t, "records"), nil)
	if err == nil {
		err = store.CreateTable(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	b := newOutbox(t, c, server.TableName(t, "outbox"), "mail", store, &Options{Partitions: 2})
	for range 2 { // it may be there already
		if err := b.CreateTable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	q := storetest.Request("order-1")
	j := &storetest.Job{Of: storetest.Claim(t, store, q), Keep: time.Hour}
	next, err := b.Items(broker.Outgoing{Body: []byte("ship"), Meta: &broker.Meta{Key: "ship-1"}}, inGroup("g", 1, "bill"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // its answer was lost
		if err := store.Commit(t.Context(), j, nil, next...); err != nil {
			t.Fatal(err)
		}
	}
	ms := receive(t, b, 10)
	if len(ms) != 2 {
		t.Fatalf("%q came after the commit", bodies(ms))
	}
	ack(t, b, ms...)

	// A worker whose claim is over sends nothing.
	late, err := b.Items(broker.Outgoing{Body: []byte("twice")})
	if err == nil {
		err = store.Commit(t.Context(), j, nil, late...)
	}
	if !errors.Is(err, dedupe.ErrLeaseLost) {
		t.Fatal(err)
	}
	// Nor does a transaction that is cancelled.
	none := types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName: &b.table, Key: item{attrPK: text("no"), attrSK: text("no")}, ConditionExpression: aws.String("attribute_exists(pk)"),
	}}
	if _, err := c.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: append(late, none)}); !errors.As(err, new(*types.TransactionCanceledException)) {
		t.Fatal(err)
	}
	want(t, b, 10, "")

	full := []broker.Outgoing{{Body: make([]byte, maxBody), Group: string(make([]byte, maxGroup))}, {Body: nil, Delay: longest}}
	again, err := b.Items(full...)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		in := &dynamodb.TransactWriteItemsInput{TransactItems: again, ClientRequestToken: aws.String("full")}
		if _, err := c.TransactWriteItems(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := b.Depth(t.Context()); err != nil || d.Visible != 1 || d.Delayed != 1 || d.Oldest.IsZero() {
		t.Errorf("depth %+v, %v", d, err)
	}
	for m, err := range b.Peek(t.Context(), 1) {
		if err != nil || len(m.Body) != maxBody || m.Receipt != "" {
			t.Error(err)
		}
	}
	if ms := receive(t, b, 10); len(ms) != 1 || len(ms[0].Body) != maxBody || len(ms[0].Group) != maxGroup {
		t.Errorf("%d messages came", len(ms))
	}
}
