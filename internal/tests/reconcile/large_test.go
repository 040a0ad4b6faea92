package reconcile

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/ops"
)

const large = "internal/tests/reconcile: a million keys on PostgreSQL, 100,000 on DynamoDB"

// many are jobs that were due an hour ago; one of them has no record.
func many(n int) iter.Seq2[ops.Expected, error] {
	return func(yield func(ops.Expected, error) bool) {
		for i := range n {
			due := time.Now().Add(-time.Hour)
			k := dedupe.Key{Scope: charges, Key: fmt.Sprint("job-", (i*7919)%n)}
			if i == n/2 {
				k.Key, due = "nobody has begun it", due.Add(-2*time.Hour)
			}
			if !yield(ops.Expected{Key: k, Due: due, Ref: "order"}, nil) {
				return
			}
		}
	}
}

// paid are the effects of all but one of many, and one of them twice.
func paid(n int) iter.Seq2[ops.Effect, error] {
	return func(yield func(ops.Effect, error) bool) {
		for i := range n {
			x := ops.Effect{Key: dedupe.Key{Scope: charges, Key: fmt.Sprint("job-", n-1-i)}, ID: fmt.Sprint("charge-", i), Fence: uint64(n - i), At: time.Now()}
			if !yield(x, nil) {
				return
			}
		}
		yield(ops.Effect{Key: dedupe.Key{Scope: charges, Key: "job-7"}, ID: "again", Fence: 8, At: time.Now()}, nil)
	}
}

// peakMemory is the most that the process has of the system while f runs.
func peakMemory(f func()) uint64 {
	most := uint64(0)
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			metrics.Read(s)
			most = max(most, s[0].Value.Uint64()-s[1].Value.Uint64())
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	f()
	close(stop)
	all.Wait()
	return most
}

func reconciled(t *testing.T, s dedupe.Store, ro ops.ReconcileOptions) *ops.Evidence {
	t.Helper()
	o, err := ops.New([]ops.Target{{Name: "orders", Store: s, Scopes: []string{charges}}}, nil)
	require.NoError(t, err)
	ro.Grace = 2 * time.Hour
	e, err := o.Reconcile(t.Context(), ro)
	require.NoError(t, err)
	return e
}

// TestMillion: a million keys and a million effects are compared at no less than half the rate at
// which the same keys are read, in 200 MB.
func TestMillion(t *testing.T) {
	proof.Only(t, large)
	const n = 1_000_000
	s, pool := postgres(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO onceq_dedupe (scope, key, status, fence, token, attempt, started, policy, owner, message_id,
		error_class, first_error, last_error, created, claimed_at, updated, finished, expires, sent)
		SELECT $2, 'job-' || g, 'done', g + 1, gen_random_uuid(), 1, false, 'rerun', 'worker-7f9c:4711', '', '', '', '', now(), now(), now(), now(),
			now() + interval '31 days', now() FROM generate_series(0, $1::bigint - 1) g`, n, charges)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "VACUUM ANALYZE onceq_dedupe")
	require.NoError(t, err)
	plain := func() time.Duration {
		ks := make([]dedupe.Key, 0, n)
		for x := range many(n) {
			ks = append(ks, x.Key)
		}
		// What is beside each other is read faster.
		slices.SortFunc(ks, func(a, b dedupe.Key) int { return strings.Compare(a.Key, b.Key) })
		began := time.Now()
		for part := range slices.Chunk(ks, s.Limits().MaxBatch) {
			_, err := s.Get(t.Context(), part)
			require.NoError(t, err)
		}
		return time.Since(began)
	}
	before := plain()
	debug.FreeOSMemory()
	began := time.Now()
	var e *ops.Evidence
	memory := peakMemory(func() { e = reconciled(t, s, ops.ReconcileOptions{Expected: many(n), Effects: paid(n)}) })
	took := time.Since(began)
	after := plain()
	t.Logf("plain reads %v and %v, reconcile %v (%.2f of the rate), %d MB", before, after, took, max(before, after).Seconds()/took.Seconds(), memory>>20)
	require.Equal(t, n, e.Expected)
	require.Equal(t, n-2, e.OK)
	require.Equal(t, map[ops.FindingKind]int{ops.FoundMissing: 1, ops.FoundDuplicate: 1}, e.Counts)
	require.LessOrEqual(t, memory, uint64(200<<20))
	require.LessOrEqual(t, took, 2*max(before, after))
}

// reads counts the requests that read an item.
type reads struct {
	dynamodb.HTTPClient
	n atomic.Int64
}

func (r *reads) Do(q *http.Request) (*http.Response, error) {
	if strings.HasSuffix(q.Header.Get("X-Amz-Target"), ".GetItem") {
		r.n.Add(1)
	}
	return r.HTTPClient.Do(q)
}

// billed is a store that bills reads, as the command onceq opens it.
type billed struct {
	*dynamostore.Store
	client *dynamodb.Client
	table  string
}

func (b billed) Unwrap() any { return b.Store }

func (b billed) Size(ctx context.Context) (dedupe.TableSize, error) {
	out, err := b.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &b.table})
	if err != nil {
		return dedupe.TableSize{}, err
	}
	return dedupe.TableSize{Records: *out.Table.ItemCount, Bytes: *out.Table.TableSizeBytes}, nil
}

// TestPrice: what 100,000 keys cost on DynamoDB is told before the first is read, and kept to.
func TestPrice(t *testing.T) {
	proof.Only(t, large)
	const n = 100_000
	server := localstack.DynamoDB(t)
	var counted reads
	client := server.Client(t, func(o *dynamodb.Options) {
		counted.HTTPClient = o.HTTPClient
		if counted.HTTPClient == nil {
			counted.HTTPClient = http.DefaultClient
		}
		o.HTTPClient = &counted
	})
	table := server.TableName(t, "records")
	s, err := dynamostore.New(client, table, nil)
	require.NoError(t, err)
	require.NoError(t, s.CreateTable(t.Context()))
	w := &night{T: t, s: s}
	w.end(w.claim(charges, "job-0", "w-1/1", time.Minute), dedupe.Done)
	copyItems(t, client, table, n)
	told := ops.ReconcileCost{}
	before := int64(0)
	e := reconciled(t, billed{s, client, table}, ops.ReconcileOptions{Expected: many(n), Before: func(c ops.ReconcileCost) error {
		told, before = c, counted.n.Load()
		return nil
	}})
	took := counted.n.Load() - before
	t.Logf("told %d units, %.4f $; read %d items", told.Units, told.Dollars, took)
	require.Equal(t, n, told.Keys)
	require.EqualValues(t, n+32*8, told.Units, "and eight for each day of the retention's audit")
	require.InDelta(t, 0.0125, told.Dollars, 1e-4)
	require.LessOrEqual(t, took, told.Units)
	require.GreaterOrEqual(t, took, int64(n), "else these are not the requests that read")
	require.Equal(t, n-1, e.OK)
	require.Equal(t, map[ops.FindingKind]int{ops.FoundMissing: 1}, e.Counts)
}

// copyItems makes n items of the one that there is.
func copyItems(t *testing.T, c *dynamodb.Client, table string, n int) {
	t.Helper()
	out, err := c.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table})
	require.NoError(t, err)
	require.Len(t, out.Items, 1)
	name := ""
	for k, v := range out.Items[0] {
		if s, ok := v.(*types.AttributeValueMemberS); ok && s.Value == "job-0" {
			name = k
		}
	}
	var all sync.WaitGroup
	const lanes = 8
	for lane := range lanes {
		all.Go(func() {
			for from := 1 + 25*lane; from < n; from += 25 * lanes {
				var puts []types.WriteRequest
				for i := from; i < min(from+25, n); i++ {
					item := map[string]types.AttributeValue{}
					maps.Copy(item, out.Items[0])
					item[name] = &types.AttributeValueMemberS{Value: fmt.Sprint("job-", i)}
					puts = append(puts, types.WriteRequest{PutRequest: &types.PutRequest{Item: item}})
				}
				if _, err := c.BatchWriteItem(context.WithoutCancel(t.Context()), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: puts}}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
