package dynamostore

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
)

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

// spans are how long claims of one and of ten took, in turns with other things.
type spans struct {
	claim    func(tb testing.TB, qs []dedupe.ClaimRequest)
	one, ten []time.Duration
}

func (s *spans) round(tb testing.TB) {
	tb.Helper()
	for n, to := range map[int]*[]time.Duration{1: &s.one, 10: &s.ten} {
		qs := fresh(n)
		began := time.Now()
		s.claim(tb, qs)
		*to = append(*to, time.Since(began))
	}
}

// report gives the median of one, and how many times as long ten take.
func (s *spans) report(b *testing.B, prefix string) {
	b.ReportMetric(float64(median(s.one).Microseconds()), prefix+"one-µs")
	b.ReportMetric(float64(median(s.ten))/float64(median(s.one)), prefix+"ten/one")
}

// fresh are claims of keys without records.
func fresh(n int) (qs []dedupe.ClaimRequest) {
	for range n {
		qs = append(qs, request(newToken().Hex()))
	}
	return qs
}

// ours are claims by the store.
func ours(s *Store) *spans {
	return &spans{claim: func(tb testing.TB, qs []dedupe.ClaimRequest) {
		tb.Helper()
		claimAll(tb, s, qs...)
	}}
}

// hands are the same by hand: conditional PutItems, all at once.
func hands(c *dynamodb.Client, table string) *spans {
	return &spans{claim: func(tb testing.TB, qs []dedupe.ClaimRequest) {
		tb.Helper()
		var wg sync.WaitGroup
		for i := range qs {
			wg.Go(func() {
				if err := claimByHand(tb.Context(), c, table, &qs[i]); err != nil {
					tb.Error(err)
				}
			})
		}
		wg.Wait()
	}}
}

// prompt is a client of a server in this process that takes everything, at once. What it costs is
// the client's part.
func prompt(tb testing.TB) *dynamodb.Client {
	tb.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			tb.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.Header().Set("X-Amzn-Requestid", "4O1F2I5E8G0H")
		io.WriteString(w, "{}")
	}))
	tb.Cleanup(server.Close)
	return dynamodb.New(dynamodb.Options{Region: region, Credentials: aws.CredentialsProviderFunc(credentials), BaseEndpoint: &server.URL})
}

// BenchmarkTen is a claim of ten beside a claim of one, in turns with the same by hand, and with
// ten PartiQL insertions in one BatchExecuteStatement; and the first two on a server that answers
// at once, for DynamoDB Local itself needs a millisecond of the same processors for each write. One
// operation is a round.
func BenchmarkTen(b *testing.B) {
	for _, way := range []time.Duration{0, 20 * time.Millisecond} {
		b.Run(fmt.Sprintf("way=%v", way), func(b *testing.B) {
			c, near := distant(openClient(b), way), distant(prompt(b), way)
			s := newStore(b, c, newTable(b))
			stubbed := must.Get(New(near, s.table, nil))
			all := map[string]*spans{"": ours(s), "byhand-": hands(c, s.table), "stub-": ours(stubbed), "stub-byhand-": hands(near, s.table)}
			for _, sp := range all {
				for range 4 {
					sp.claim(b, fresh(10)) // opens the connections
				}
			}
			var statements []time.Duration
			for b.Loop() {
				for _, sp := range all {
					sp.round(b)
				}
				began := time.Now()
				insertAll(b, c, s.table, 10)
				statements = append(statements, time.Since(began))
			}
			for name, sp := range all {
				sp.report(b, name)
			}
			b.ReportMetric(float64(median(statements))/float64(median(all[""].one)), "partiql/one")
		})
	}
}

// insertAll claims by PartiQL.
func insertAll(tb testing.TB, c *dynamodb.Client, table string, n int) {
	tb.Helper()
	insert := fmt.Sprintf(`INSERT INTO "%s" VALUE {'key': ?, 'scope': ?, 'status': 'claimed', 'fence': ?, 'version': 1, 'token': ?, 'attempt': 1,
		'policy': 'rerun', 'owner': ?, 'message_id': ?, 'lease_until': ?, 'created': ?, 'claimed_at': ?, 'updated': ?}`, table)
	in := new(dynamodb.BatchExecuteStatementInput)
	for range n {
		q := request("partiql-" + newToken().Hex())
		now := time.Now()
		in.Statements = append(in.Statements, types.BatchStatementRequest{Statement: &insert, Parameters: []value{
			text(q.Key.Key), text(q.Key.Scope), number(now.UnixMilli()), text(q.Token.Hex()), text(q.Owner), text(q.MessageID),
			moment(now.Add(q.TTL)), moment(now), moment(now), moment(now),
		}})
	}
	out, err := c.BatchExecuteStatement(tb.Context(), in)
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range out.Responses {
		if r.Error != nil {
			tb.Fatal(deref(r.Error.Message))
		}
	}
}
