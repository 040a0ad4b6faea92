package dynamooutbox

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/broker/brokertest"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/internal/testserver"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// TestMain lets more tests wait at a time than there are processors: in real time they wait for
// timeouts.
func TestMain(m *testing.M) {
	if err := testserver.Together(64); err != nil {
		panic(err)
	}
	m.Run()
}

// TestConformanceInMemory runs each case in virtual time, where the long holds cost nothing. Cases
// about sends check Items, which [queue] puts by a transaction.
func TestConformanceInMemory(t *testing.T) {
	brokertest.Run(t, brokertest.Harness{
		// A message is visible again at the next look, a Poll later at most.
		Virtual: true, Visibility: 30 * time.Second, Slack: virtualPoll, StaleReceiptsVoid: true,
		Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
			f := newFake()
			return opened(t, f.client(), "outbox", newLeases(t), Options{Partitions: 2, Poll: virtualPoll, Visibility: o.Visibility})
		},
		Missing: func(t testing.TB) broker.Broker {
			c := newFake().client()
			return &queue{newOutbox(t, c, "no-such-table", "missing", newLeases(t), nil), c}
		},
	})
}

const virtualPoll = 5 * time.Second

// TestConformance runs the cases on DynamoDB Local, or on what the environment names, with the
// claims in a dynamostore.
func TestConformance(t *testing.T) {
	server := testaws.NewDynamoDB(t)
	c := server.Client(t)
	table, records := server.TableName(t, "outbox"), server.TableName(t, "records")
	leases, err := dynamostore.New(c, records, nil)
	if err == nil {
		err = leases.CreateTable(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	brokertest.Run(t, brokertest.Harness{
		// A Java that shares two processors with the tests answers within seconds.
		Visibility: 10 * time.Second, Slack: 5 * time.Second, StaleReceiptsVoid: true,
		Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
			return opened(t, c, table, leases, Options{Partitions: 1, Poll: 100 * time.Millisecond, Visibility: o.Visibility})
		},
		Missing: func(t testing.TB) broker.Broker {
			return &queue{newOutbox(t, c, "no-such-table", "missing", leases, nil), c}
		},
	})
}

// opened is a new queue in the table, which may be there already.
func opened(t testing.TB, c *dynamodb.Client, table string, leases dedupe.Store, o Options) brokertest.Queue {
	name := t.Name()
	q := &queue{newOutbox(t, c, table, name, leases, &o), c}
	if err := q.CreateTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return brokertest.Queue{Broker: q, Close: q.Close, SendRaw: q.sendRaw}
}
