package dynamostore

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/cputime"
	"github.com/onceq/onceq/internal/must"
)

// far puts a way before the server.
type far struct {
	dynamodb.HTTPClient
	way time.Duration
}

func (f far) Do(r *http.Request) (*http.Response, error) {
	if f.way > 0 {
		<-time.After(f.way)
	}
	return f.HTTPClient.Do(r)
}

// tried counts requests, each try for itself.
type tried struct{ writes, reads atomic.Int64 }

func (n *tried) count(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("tried",
		func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			switch awsmiddleware.GetOperationName(ctx) {
			case "GetItem", "Scan":
				n.reads.Add(1)
			case "PutItem", "UpdateItem", "TransactWriteItems":
				n.writes.Add(1)
			}
			return next.HandleDeserialize(ctx, in)
		}), middleware.After)
}

// distant is a client of the same server at such a distance.
func distant(c *dynamodb.Client, way time.Duration) *dynamodb.Client {
	near := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: poolPerHost}}
	return dynamodb.New(c.Options(), func(o *dynamodb.Options) { o.HTTPClient = far{near, way} })
}

// benchStore is a store whose requests are counted, and a client for the same by hand.
func benchStore(tb testing.TB) (*Store, *dynamodb.Client, *tried) {
	tb.Helper()
	n := new(tried)
	c := dynamodb.New(distant(openClient(tb), 0).Options(), func(o *dynamodb.Options) { o.APIOptions = append(o.APIOptions, n.count) })
	return newStore(tb, c, newTable(tb)), c, n
}

// TestWritesPerJob: two under Rerun, three under Park, and no read, not at a process's start
// either; four where a job is tried again, one more for a takeover.
func TestWritesPerJob(t *testing.T) {
	t.Parallel()
	s, _, n := benchStore(t)
	const jobs = 20
	count := func(name string, want float64, do func(key string)) {
		t.Helper()
		n.writes.Store(0)
		n.reads.Store(0)
		for i := range jobs {
			do(fmt.Sprintf("%s-%d", name, i))
		}
		if got := float64(n.writes.Load()) / jobs; got != want || n.reads.Load() != 0 {
			t.Errorf("%s: %.2f writes a job, want %.0f, and %d reads", name, got, want, n.reads.Load())
		}
	}
	count("rerun", 2, func(key string) { settleOne(t, s, claimOne(t, s, request(key)), dedupe.Done) })
	count("park", 3, func(key string) {
		q := request(key)
		q.Policy = dedupe.Park
		l := claimOne(t, s, q)
		if err := renewOne(t, s, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Minute, Started: true}); err != nil {
			t.Error(err)
		}
		settleOne(t, s, l, dedupe.Done)
	})
	// What a worker does: it settles, too, and what it returns does not count any more.
	end := func(l dedupe.Lease, to dedupe.Status) {
		t.Helper()
		if st, err := settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: to, Joined: true}); st != dedupe.Done || err != nil {
			t.Errorf("settled to %v: %v, %v", to, st, err)
		}
	}
	for _, to := range []dedupe.Status{dedupe.Done, dedupe.Released} {
		count("commit, then "+to.String(), 2, func(key string) {
			l := claimOne(t, s, request(key))
			if err := s.Commit(t.Context(), &job{Of: l}, nil); err != nil {
				t.Error(err)
			}
			end(l, to)
		})
		count("transaction by hand, then "+to.String(), 3, func(key string) {
			l := claimOne(t, s, request(key))
			items, err := s.CompleteItems(&job{Of: l}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.client.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: items}); err != nil {
				t.Error(err)
			}
			end(l, to)
		})
	}
	count("duplicate", 3, func(key string) {
		settleOne(t, s, claimOne(t, s, request(key)), dedupe.Done)
		if c := claimAll(t, s, request(key))[0]; c.Outcome != dedupe.AlreadyDone {
			t.Error(c.Outcome)
		}
	})
	count("retry", 5, func(key string) {
		settleOne(t, s, claimOne(t, s, request(key)), dedupe.Released)
		settleOne(t, s, claimOne(t, s, request(key)), dedupe.Done)
	})
}

// TestTenAtOnce: the entries of a batch go out at once: with 20 ms of way, ten take as long as one,
// and a full batch twice as long.
func TestTenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &stub{answer: func(stubCall) stubAnswer { return applied }}
		c := dynamodb.New(dynamodb.Options{
			Region: region, Credentials: aws.CredentialsProviderFunc(credentials), HTTPClient: far{st, 20 * time.Millisecond},
		})
		s := must.Get(New(c, "records", nil))
		claimOne(t, s, request("the first"))
		for _, n := range []int{1, 10, maxBatch} {
			var qs []dedupe.ClaimRequest
			var ns []dedupe.Renewal
			var ss []dedupe.Settlement
			var ks []dedupe.Key
			for i := range n {
				q := request(fmt.Sprint(i))
				qs, ks = append(qs, q), append(ks, q.Key)
				ns = append(ns, dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: q.TTL})
				ss = append(ss, dedupe.Settlement{Key: q.Key, Token: q.Token, To: dedupe.Done})
			}
			most := 20 * time.Millisecond
			if n > parallel {
				most *= 2
			}
			for call, do := range map[string]func(){
				"Claim": func() { claimAll(t, s, qs...) },
				"Renew": func() {
					if _, err := s.Renew(t.Context(), ns); err != nil {
						t.Error(err)
					}
				},
				"Settle": func() {
					if _, err := s.Settle(t.Context(), ss); err != nil {
						t.Error(err)
					}
				},
				"Get": func() {
					if _, err := s.Get(t.Context(), ks); err != nil {
						t.Error(err)
					}
				},
			} {
				began := time.Now()
				do()
				if took := time.Since(began); took > most {
					t.Errorf("%s of %d took %v, want %v", call, n, took, most)
				}
			}
		}
	})
}

// BenchmarkJobs is claim and settlement, one by one from 16 callers, beside the same two writes by
// hand, in turns of 200 jobs. One operation is a job of each.
func BenchmarkJobs(b *testing.B) {
	s, c, n := benchStore(b)
	const turn, callers = 200, 16
	ours := func(key string) error {
		cs, err := s.Claim(b.Context(), []dedupe.ClaimRequest{request(key)})
		if err != nil || cs[0].Outcome != dedupe.Won {
			return fmt.Errorf("%+v, %w", cs, err)
		}
		l := cs[0].Lease
		as, err := s.Settle(b.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Done}})
		if err != nil || as[0].Status != dedupe.Done {
			return fmt.Errorf("%+v, %w", as, err)
		}
		return nil
	}
	hand := func(key string) error { return byHand(b.Context(), c, s.table, key) }
	var next atomic.Int64
	play := func(jobs int, name string, do func(key string) error) (took, cpu time.Duration) {
		var wg sync.WaitGroup
		var left atomic.Int64
		left.Store(int64(jobs))
		began, used := time.Now(), cputime.Used()
		for range callers {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if err := do(fmt.Sprintf("%s-%d", name, next.Add(1))); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(began), cputime.Used() - used
	}
	play(turn, "warm", ours)
	play(turn, "warm", hand)
	b.ResetTimer()
	var took, cpu [2]time.Duration
	var writes int64
	for left := b.N; left > 0; left -= turn {
		jobs := min(left, turn)
		before := n.writes.Load()
		t, u := play(jobs, "ours", ours)
		writes += n.writes.Load() - before
		took[0], cpu[0] = took[0]+t, cpu[0]+u
		t, u = play(jobs, "hand", hand)
		took[1], cpu[1] = took[1]+t, cpu[1]+u
	}
	b.ReportMetric(float64(b.N)/took[0].Seconds(), "jobs/s")
	b.ReportMetric(float64(took[1])/float64(took[0]), "jobs/s÷byhand")
	b.ReportMetric(float64(cpu[0])/float64(cpu[1]), "cpu÷byhand")
	b.ReportMetric(float64(writes)/float64(b.N), "writes/job")
	b.ReportMetric(float64(n.reads.Load())/float64(b.N), "reads/job")
}

// byHand is what people write who need no more than a claim and its end.
func byHand(ctx context.Context, c *dynamodb.Client, table, key string) error {
	q, now := request(key), time.Now()
	if err := claimByHand(ctx, c, table, &q); err != nil {
		return err
	}
	_, err := c.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &table, Key: keyOf(q.Key),
		UpdateExpression:         aws.String("SET #status = :done, #finished = :now, #ttl = :ttl REMOVE #lease"),
		ConditionExpression:      aws.String("#token = :token AND #status = :claimed"),
		ExpressionAttributeNames: map[string]string{"#status": attrStatus, "#finished": attrFinished, "#ttl": "expires_at", "#lease": attrLease, "#token": attrToken},
		ExpressionAttributeValues: item{
			":done": text("done"), ":claimed": text("claimed"), ":token": text(q.Token.Hex()), ":now": moment(now),
			":ttl": expiry(now.Add(dedupe.DefaultRetention)),
		},
	})
	return err
}

func claimByHand(ctx context.Context, c *dynamodb.Client, table string, q *dedupe.ClaimRequest) error {
	now := time.Now()
	_, err := c.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &table,
		Item: item{
			attrKey: text(q.Key.Key), attrScope: text(q.Key.Scope), attrStatus: text("claimed"), attrToken: text(q.Token.Hex()),
			attrLease: moment(now.Add(q.TTL)), attrOwner: text(q.Owner), attrMessage: text(q.MessageID), attrCreated: moment(now),
		},
		ConditionExpression: aws.String("attribute_not_exists(#key)"), ExpressionAttributeNames: map[string]string{"#key": attrKey},
	})
	return err
}

// transport answers every request at once.
type transport struct{}

func (transport) Do(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r, Header: http.Header{
		"Content-Type": {"application/x-amz-json-1.0"}, "Date": {time.Now().UTC().Format(http.TimeFormat)},
	}}, nil
}

// BenchmarkClient is what the client's side of a job costs, without network and server.
func BenchmarkClient(b *testing.B) {
	c := dynamodb.New(dynamodb.Options{Region: region, Credentials: aws.CredentialsProviderFunc(credentials), HTTPClient: transport{}})
	s := must.Get(New(c, "records", nil))
	b.Run("store", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			settleOne(b, s, claimOne(b, s, request("k")), dedupe.Done)
		}
	})
	b.Run("by-hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := byHand(b.Context(), c, "records", "k"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
