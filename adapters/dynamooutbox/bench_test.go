package dynamooutbox

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// counted is a destination that takes 10 ms a call, and says when it has got all.
type counted struct {
	left  atomic.Int64
	calls atomic.Int64
	all   chan struct{}
}

func (d *counted) Limits() broker.Limits { return (&destination{}).Limits() }

func (d *counted) Send(_ context.Context, ms []broker.Outgoing) ([]string, error) {
	d.calls.Add(1)
	pass(10 * time.Millisecond)
	if d.left.Add(-int64(len(ms))) <= 0 {
		close(d.all)
	}
	return make([]string, len(ms)), nil
}

// BenchmarkRelay sends on from a filled outbox on DynamoDB Local, or on what the environment names,
// in turns with the requests that this takes at least, by hand: a Query for a hundred messages and
// a BatchWriteItem for 25, from one goroutine a partition. One operation is 3,000 messages.
func BenchmarkRelay(b *testing.B) {
	const messages = 3000
	server := testaws.NewDynamoDB(b)
	c := server.Client(b)
	records, err := dynamostore.New(c, server.TableName(b, "records"), nil)
	if err == nil {
		err = records.CreateTable(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	table := server.TableName(b, "outbox")
	var took [2]time.Duration
	var calls int64
	for n := range b.N {
		for way := range took {
			o := newOutbox(b, c, table, fmt.Sprint("bench-", n, "-", way), records, nil)
			if err := o.CreateTable(b.Context()); err != nil {
				b.Fatal(err)
			}
			fillOutbox(b, c, o, messages)
			began := time.Now()
			if way == 0 {
				to := &counted{all: make(chan struct{})}
				to.left.Store(messages)
				end := relay(b, o, to)
				<-to.all
				end() // all are deleted then
				calls += to.calls.Load()
			} else {
				byHand(b, c, o)
			}
			took[way] += time.Since(began)
			if d, err := o.rest.Query(b.Context(), &dynamodb.QueryInput{
				TableName: &table, KeyConditionExpression: aws.String("pk = :pk"),
				ExpressionAttributeValues: item{":pk": text(o.pk(0))}, ConsistentRead: aws.Bool(true),
			}); err != nil || len(d.Items) > 0 {
				b.Fatalf("%d messages are left, %v", len(d.Items), err)
			}
		}
	}
	rate := func(d time.Duration) float64 { return float64(b.N) * messages / d.Seconds() }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rate(took[0]), "msgs/s")
	b.ReportMetric(rate(took[1]), "byhand-msgs/s")
	b.ReportMetric(float64(calls)/float64(b.N)/messages, "calls/msg")
}

func fillOutbox(b *testing.B, c *dynamodb.Client, o *Outbox, n int) {
	b.Helper()
	b.StopTimer()
	defer b.StartTimer()
	for from := 0; from < n; from += 100 {
		var ms []broker.Outgoing
		for i := range min(100, n-from) {
			ms = append(ms, keyed(fmt.Sprint("order-", from+i)))
		}
		put(b, c, o, ms...)
	}
}

// byHand reads and deletes all partitions at once.
func byHand(b *testing.B, c *dynamodb.Client, o *Outbox) {
	b.Helper()
	var all sync.WaitGroup
	for n := range o.o.Partitions {
		all.Go(func() {
			for {
				out, err := c.Query(b.Context(), &dynamodb.QueryInput{
					TableName: &o.table, KeyConditionExpression: aws.String("pk = :pk"), Limit: aws.Int32(100),
					ExpressionAttributeValues: item{":pk": text(o.pk(n))}, ConsistentRead: aws.Bool(true),
				})
				if err != nil {
					b.Error(err)
				}
				if err != nil || len(out.Items) == 0 {
					return
				}
				for items := out.Items; len(items) > 0; items = items[min(25, len(items)):] {
					var rs []types.WriteRequest
					for _, it := range items[:min(25, len(items))] {
						rs = append(rs, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: item{attrPK: it[attrPK], attrSK: it[attrSK]}}})
					}
					if _, err := c.BatchWriteItem(b.Context(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{o.table: rs}}); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
}
