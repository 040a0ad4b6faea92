package dynamostore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dedupetest"
	"github.com/onceq/onceq/internal/dynamokit"
	"github.com/onceq/onceq/internal/must"
)

// TestConformance runs each case on a table of its own. The transactions are Commits and, every
// second one, the user's own with CompleteItems.
func TestConformance(t *testing.T) {
	c := openClient(t)
	dedupetest.Run(t, dedupetest.Harness{Open: func(t testing.TB) dedupetest.Subject {
		s := newLasting(t, c)
		ledger := newLedger(t, c)
		begun := 0
		return dedupetest.Subject{
			Store:  s,
			Age:    func(t testing.TB, k dedupe.Key, d time.Duration) { age(t, s, k, d) },
			Second: func(t testing.TB) dedupe.Store { return second(t, s) },
			Begin: func(t testing.TB) dedupetest.Tx {
				begun++
				if begun%2 == 0 {
					return beginItems(t, s, c, ledger)
				}
				return beginCommit(t, s, ledger)
			},
			Rows:  func(t testing.TB) []string { return ledgerRows(t, c, ledger) },
			Close: s.Close,
		}
	}})
}

// newLasting is a store whose table deletes nothing by itself. The suite makes records old by their
// times alone. If DynamoDB deleted one of them, its fence would be gone, though no retention has
// passed: the next fence is another worker's time, which may be some hundred milliseconds behind.
func newLasting(tb testing.TB, c *dynamodb.Client) *Store {
	tb.Helper()
	s := must.Get(New(c, newTable(tb), nil))
	if _, err := dynamokit.Create(tb.Context(), s.client, s.newTable()); err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestAgedRecordsStay: what the suite makes old is not deleted behind its back. DynamoDB Local
// deletes every ten seconds what has expired.
func TestAgedRecordsStay(t *testing.T) {
	t.Parallel()
	s := newLasting(t, openClient(t))
	out, err := s.client.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &s.table})
	if err != nil {
		t.Fatal(err)
	}
	if d := out.TimeToLiveDescription; d != nil && d.TimeToLiveStatus != types.TimeToLiveStatusDisabled {
		t.Errorf("the suite's table deletes by itself what has expired by attribute %q", deref(d.AttributeName))
	}
}

func newLedger(t testing.TB, c *dynamodb.Client) string {
	ledger := newTable(t)
	_, err := c.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &ledger, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("row"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("row"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ledger
}

func ledgerRows(t testing.TB, c *dynamodb.Client, ledger string) (rows []string) {
	out, err := c.Scan(t.Context(), &dynamodb.ScanInput{TableName: &ledger, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range out.Items {
		rows = append(rows, it["row"].(*types.AttributeValueMemberS).Value)
	}
	return rows
}

// line is a put of a row that must not be there yet.
func line(ledger, row string) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &ledger, Item: item{"row": text(row)},
		ConditionExpression: aws.String("attribute_not_exists(#row)"), ExpressionAttributeNames: map[string]string{"#row": "row"},
	}}
}

func beginCommit(t testing.TB, s *Store, ledger string) dedupetest.Tx {
	var items []types.TransactWriteItem
	var owner dedupe.Owned
	var with []byte
	return dedupetest.Tx{
		Insert: func(row string) error {
			items = append(items, line(ledger, row))
			return nil
		},
		Complete: func(ctx context.Context, job dedupe.Owned, result []byte) error {
			owner, with = job, result
			_, err := s.CompleteItems(job, result) // Commit joins as well, but later
			return errors.Join(err, ctx.Err())
		},
		Commit:   func() error { return s.Commit(t.Context(), owner, with, items...) },
		Rollback: func() error { return nil },
	}
}

func beginItems(t testing.TB, s *Store, c *dynamodb.Client, ledger string) dedupetest.Tx {
	var items []types.TransactWriteItem
	return dedupetest.Tx{
		Insert: func(row string) error {
			items = append(items, line(ledger, row))
			return nil
		},
		Complete: func(ctx context.Context, job dedupe.Owned, result []byte) error {
			own, err := s.CompleteItems(job, result)
			items = append(items, own...)
			return errors.Join(err, ctx.Err())
		},
		Commit: func() error {
			_, err := c.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: items})
			var no *types.TransactionCanceledException
			if errors.As(err, &no) && deref(no.CancellationReasons[len(items)-1].Code) == "ConditionalCheckFailed" {
				return dedupe.ErrLeaseLost
			}
			return err
		},
		Rollback: func() error { return nil },
	}
}
