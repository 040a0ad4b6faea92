package firestorestore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
)

// bubble runs f in virtual time with a server, a store and a warm clock.
func bubble(t *testing.T, f func(t *testing.T, srv *firestorefake.Server, s *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv, w := fake(t)
		s := w.store(t, &Options{Sweep: true})
		if _, err := s.Now(t.Context()); err != nil {
			t.Fatal(err)
		}
		srv.ResetUsage()
		f(t, srv, s)
	})
}

// TestUsage: what a job costs is what the page says. The server counts, as a bill would.
func TestUsage(t *testing.T) {
	end := func(t *testing.T, s *Store, l dedupe.Lease) { settleOne(t, s, l, dedupe.Done) }
	for _, c := range []struct {
		name          string
		run           func(t *testing.T, s *Store)
		writes, reads int
		requests      int
	}{
		{"a job", func(t *testing.T, s *Store) { end(t, s, claimOne(t, s, request("1"))) }, 2, 0, 2},
		{"ten jobs in two calls", func(t *testing.T, s *Store) {
			var qs []dedupe.ClaimRequest
			var ends []dedupe.Settlement
			for i := range 10 {
				qs = append(qs, request(fmt.Sprint(i)))
				ends = append(ends, dedupe.Settlement{Key: qs[i].Key, Token: qs[i].Token, To: dedupe.Done, Result: []byte("r")})
			}
			claimAll(t, s, qs...)
			as, err := s.Settle(t.Context(), ends)
			if err != nil || as[9].Err != nil {
				t.Fatal(as, err)
			}
		}, 20, 0, 2},
		{"a job with three beats and a step", func(t *testing.T, s *Store) {
			l := claimOne(t, s, request("1"))
			for n := range 3 {
				if err := renewOne(t, s, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Minute, State: make([]byte, 100<<10), StateNo: n + 1}); err != nil {
					t.Fatal(err)
				}
			}
			end(t, s, l)
		}, 5, 0, 5},
		{"a Commit with two writes", func(t *testing.T, s *Store) {
			l := claimOne(t, s, request("1"))
			commitRows(t, s, &job{Of: l}, "a", "b")
			if st, err := settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Done, Joined: true}); st != dedupe.Done || err != nil {
				t.Fatal(st, err)
			}
		}, 4, 0, 3}, // claim; begin and commit
		{"a duplicate of a job that is done", func(t *testing.T, s *Store) {
			end(t, s, claimOne(t, s, request("1")))
			if c := claimAll(t, s, request("1"))[0]; c.Outcome != dedupe.AlreadyDone {
				t.Fatal(c.Outcome)
			}
		}, 2, 1, 4},
		{"a retry", func(t *testing.T, s *Store) {
			settleOne(t, s, claimOne(t, s, request("1")), dedupe.Released)
			end(t, s, claimOne(t, s, request("1")))
		}, 4, 1, 6},
		{"a settlement by another process", func(t *testing.T, s *Store) {
			end(t, second(t, s), claimOne(t, s, request("1")))
		}, 2, 1, 3}, // the read tells the time, too
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
				c.run(t, s)
				u := srv.Usage()
				n := 0
				for _, calls := range u.Calls {
					n += calls
				}
				if u.Writes != c.writes || u.Reads != c.reads {
					t.Errorf("%d writes and %d reads, want %d and %d", u.Writes, u.Reads, c.writes, c.reads)
				}
				if n != c.requests {
					t.Errorf("%v, want %d requests", u.Calls, c.requests)
				}
			})
		})
	}
}

// commitRows commits j with a new document for each row.
func commitRows(t testing.TB, s *Store, j *job, rows ...string) {
	t.Helper()
	if err := tryRows(t.Context(), s, j, rows...); err != nil {
		t.Fatal(err)
	}
}

func tryRows(ctx context.Context, s *Store, j *job, rows ...string) error {
	return s.Commit(ctx, j, map[string]int{"rows": len(rows)}, func(_ context.Context, tx *firestore.Transaction) error {
		for _, r := range rows {
			if err := tx.Create(s.client.Collection("ledger").Doc(r), map[string]any{"row": r}); err != nil {
				return err
			}
		}
		return nil
	})
}
