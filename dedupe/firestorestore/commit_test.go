package firestorestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
	"github.com/onceq/onceq/internal/storetest"
)

// want fails unless the record has the status, and the ledger so many rows.
func want(t *testing.T, s *Store, k dedupe.Key, st dedupe.Status, n int) {
	t.Helper()
	r := getOne(t, s, k)
	if got := rows(t, s.client.Collection("ledger")); r.Status != st || len(got) != n {
		t.Errorf("the record is %v with the rows %q, want %v with %d", r.Status, got, st, n)
	}
}

// joined is what the worker asks after its handler.
func joined(t *testing.T, s *Store, l dedupe.Lease, to dedupe.Status) dedupe.Status {
	t.Helper()
	st, err := settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: to, Joined: true})
	if err != nil {
		t.Error(err)
	}
	return st
}

// TestCommit: the writes and the completion are there, and the record is as a settlement would
// leave it; a second Commit under the claim writes nothing.
func TestCommit(t *testing.T) {
	for name, r := range storetest.Results() {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
				l := claimOne(t, s, request("1"))
				j := &job{Of: l, Keep: time.Hour}
				f := func(_ context.Context, tx *firestore.Transaction) error {
					return tx.Create(s.client.Collection("ledger").Doc("1"), map[string]any{"n": 1})
				}
				if err := s.Commit(t.Context(), j, r.Given, f); err != nil || !j.Joined() {
					t.Fatal(err, j.Joined())
				}
				want(t, s, l.Key, dedupe.Done, 1)
				got := getOne(t, second(t, s), l.Key)
				if string(got.Result) != string(r.Kept) || (got.Result == nil) != (r.Kept == nil) || time.Until(got.Expires).Round(time.Minute) != time.Hour {
					t.Errorf("result %q, expires %v", got.Result, got.Expires)
				}
				for _, again := range []*Store{s, second(t, s)} {
					if err := tryRows(t.Context(), again, j, "2"); !errors.Is(err, dedupe.ErrLeaseLost) {
						t.Errorf("a second Commit: %v", err)
					}
				}
				want(t, s, l.Key, dedupe.Done, 1)
				if st := joined(t, s, l, dedupe.Released); st != dedupe.Done {
					t.Errorf("the settlement after it: %v", st)
				}
			})
		})
	}
}

// TestCommitOfMany: so many writes of the user's own fit, with reads before them.
func TestCommitOfMany(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		l := claimOne(t, s, request("1"))
		var all []string
		for i := range MaxCommitWrites {
			all = append(all, fmt.Sprintf("row-%03d", i))
		}
		err := s.Commit(t.Context(), &job{Of: l}, nil, func(_ context.Context, tx *firestore.Transaction) error {
			if _, err := tx.Get(s.client.Doc("accounts/1")); status.Code(err) != codes.NotFound {
				return fmt.Errorf("a read in the transaction: %w", err)
			}
			for _, r := range all {
				if err := tx.Set(s.client.Doc("ledger/"+r), map[string]any{"amount": 1}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want(t, s, l.Key, dedupe.Done, MaxCommitWrites)
	})
}

// TestCommitLost: whatever becomes of the transaction's answers, the effect is there once where
// Commit says nil, and the worker finds out where it says anything else.
func TestCommitLost(t *testing.T) {
	for name, fs := range map[string][]firestorefake.Fault{
		"the answer is lost":             {{Method: "Commit", Count: 1, Code: codes.Internal, Applied: true}},
		"lost, and again":                {{Method: "Commit", Count: 1, Code: codes.Unavailable, Applied: true}},
		"not made":                       {{Method: "Commit", Count: 2, Code: codes.Internal}},
		"aborted":                        {{Method: "Commit", Count: 12, Code: codes.Aborted}},
		"begin fails":                    {{Method: "BeginTransaction", Count: 1, Code: codes.Internal}},
		"lost, and the look, too":        {{Method: "Commit", Count: 1, Code: codes.Internal, Applied: true}, {Method: "BatchGetDocuments", Count: 2, Code: codes.Unavailable}},
		"throttled":                      {{Method: "Commit", Count: 2, Code: codes.ResourceExhausted}},
		"the transaction is closed":      {{Method: "Commit", Count: 1, Code: codes.InvalidArgument, Message: "Transaction is invalid or closed.", Applied: true}},
		"refused, though it was written": {{Method: "Commit", Count: 1, Code: codes.FailedPrecondition, Applied: true}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
				l := claimOne(t, s, request("1"))
				srv.SetFaults(fs...)
				if err := tryRows(t.Context(), s, &job{Of: l}, "a", "b"); err != nil {
					t.Fatal(err)
				}
				srv.SetFaults()
				want(t, s, l.Key, dedupe.Done, 2)
				if st := joined(t, s, l, dedupe.Done); st != dedupe.Done {
					t.Errorf("the settlement after it: %v", st)
				}
			})
		})
	}
}

// TestCommitUnknown: the context ends with nobody knowing: the settlement tells done, and only
// done; a transaction that was not written can never be written after it.
func TestCommitUnknown(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprint(applied), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
				l := claimOne(t, s, request("1"))
				srv.SetFaults(firestorefake.Fault{Method: "Commit", Silence: true, Applied: applied})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if err := tryRows(ctx, s, &job{Of: l}, "a"); !errors.Is(err, context.DeadlineExceeded) && status.Code(err) != codes.DeadlineExceeded {
					t.Fatal(err)
				}
				srv.SetFaults()
				if applied {
					want(t, s, l.Key, dedupe.Done, 1)
					if st := joined(t, s, l, dedupe.Released); st != dedupe.Done {
						t.Errorf("%v", st)
					}
					return
				}
				if st := joined(t, s, l, dedupe.Done); st != dedupe.Claimed {
					t.Errorf("%v", st)
				}
				if st := joined(t, s, l, dedupe.Released); st != dedupe.Released {
					t.Errorf("%v", st)
				}
				want(t, s, l.Key, dedupe.Released, 0)
			})
		})
	}
}

// TestProbeShutsOut: a joined settlement that found the job open shuts out the transaction that is
// still on its way: it was told of a record that has changed since.
func TestProbeShutsOut(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		l := claimOne(t, s, request("1"))
		srv.SetFaults(firestorefake.Fault{Method: "Commit", Count: 1, Delay: 20 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- s.client.RunTransaction(ctx, func(_ context.Context, tx *firestore.Transaction) error {
				c := &commit{s: s, job: &job{Of: l}, lease: l, id: "x"}
				found := s.claims.recall(l.Token)
				next, err := c.complete(found, reading{now: time.Now()})
				if err != nil {
					return err
				}
				set, _ := s.differ(found, next)
				var us []firestore.Update
				for _, f := range set {
					us = append(us, firestore.Update{Path: f, Value: fromValue(next.fields[f])})
				}
				return tx.Update(s.client.DocFromFullPath(s.name(l.Key)), us, firestore.LastUpdateTime(found.at.AsTime()))
			}, firestore.MaxAttempts(1))
		}()
		<-time.After(time.Second)
		if st := joined(t, s, l, dedupe.Done); st != dedupe.Claimed {
			t.Errorf("%v", st)
		}
		if err := <-done; status.Code(err) != codes.FailedPrecondition {
			t.Errorf("the late transaction: %v", err)
		}
		cancel()
		want(t, s, l.Key, dedupe.Claimed, 0)
	})
}

// TestCommitErrors: what was at fault is told, and nothing is written.
func TestCommitErrors(t *testing.T) {
	boom := errors.New("boom")
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		if _, err := s.client.Doc("ledger/there").Create(t.Context(), map[string]any{"n": 1}); err != nil {
			t.Fatal(err)
		}
		other := second(t, s)
		for _, c := range []struct {
			name   string
			before func(l dedupe.Lease)
			result any
			f      func(context.Context, *firestore.Transaction) error
			want   func(error) bool
		}{
			{name: "the user's own", f: func(context.Context, *firestore.Transaction) error { return boom }, want: func(err error) bool { return err == boom }}, //nolint:errorlint // as it is
			{name: "a row that is there", f: func(_ context.Context, tx *firestore.Transaction) error {
				return tx.Create(s.client.Doc("ledger/there"), map[string]any{})
			}, want: func(err error) bool {
				return errors.As(err, new(*CommitError)) && status.Code(errors.Unwrap(err)) == codes.AlreadyExists
			}},
			{name: "a stale row", f: func(_ context.Context, tx *firestore.Transaction) error {
				return tx.Delete(s.client.Doc("ledger/there"), firestore.LastUpdateTime(time.Unix(1, 0)))
			}, want: func(err error) bool { return errors.As(err, new(*CommitError)) }},
			{name: "a result that is too large", result: make([]byte, maxResult+1), want: func(err error) bool { return errors.Is(err, dedupe.ErrResultSize) }},
			{name: "a result that is no JSON", result: make(chan int), want: func(err error) bool { return err != nil }},
			{name: "overtaken", before: func(l dedupe.Lease) {
				age(t, s, l.Key, time.Hour)
				claimOne(t, other, request(l.Key.Key))
			}, want: func(err error) bool { return errors.Is(err, dedupe.ErrLeaseLost) }},
			{name: "settled before", before: func(l dedupe.Lease) { settleOne(t, other, l, dedupe.Failed) }, want: func(err error) bool {
				return errors.Is(err, dedupe.ErrLeaseLost) && strings.Contains(err.Error(), "failed already")
			}},
			{name: "forgotten", before: func(l dedupe.Lease) {
				if errs, err := other.Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence, Force: true}}); err != nil || errs[0] != nil {
					t.Fatal(errs, err)
				}
			}, want: func(err error) bool { return errors.Is(err, dedupe.ErrLeaseLost) }},
		} {
			l := claimOne(t, s, request(c.name))
			if c.before != nil {
				c.before(l)
			}
			f := c.f
			if f == nil {
				f = func(_ context.Context, tx *firestore.Transaction) error {
					return tx.Create(s.client.Doc("ledger/"+c.name), map[string]any{})
				}
			}
			if err := s.Commit(t.Context(), &job{Of: l}, c.result, f); !c.want(err) {
				t.Errorf("%s: %v", c.name, err)
			}
			if got := rows(t, s.client.Collection("ledger")); len(got) != 1 {
				t.Fatalf("%s: the ledger has %q", c.name, got)
			}
		}
		if err := s.Commit(t.Context(), nil, nil, nil); !errors.Is(err, dedupe.ErrBadRequest) {
			t.Error(err)
		}
		if err := s.Commit(t.Context(), &job{}, nil, nil); !errors.Is(err, dedupe.ErrBadRequest) {
			t.Error(err)
		}
	})
}

// TestCommitBesideBeats: a beat between the reading of the record and the transaction does not cost
// the job its Commit, and f is not blamed for it.
func TestCommitBesideBeats(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		l := claimOne(t, s, request("1"))
		calls := 0
		err := s.Commit(t.Context(), &job{Of: l}, nil, func(ctx context.Context, tx *firestore.Transaction) error {
			if calls++; calls < 4 {
				if err := renewOne(t, s, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Hour, State: []byte{byte(calls)}, StateNo: calls}); err != nil {
					return err
				}
			}
			return tx.Create(s.client.Doc("ledger/1"), map[string]any{})
		})
		if err != nil || calls != 4 {
			t.Errorf("%v after %d calls", err, calls)
		}
		want(t, s, l.Key, dedupe.Done, 1)
	})
}

// TestZombie: a worker that was overtaken while its transaction ran writes nothing.
func TestZombie(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		l := claimOne(t, s, request("1"))
		other := second(t, s)
		err := s.Commit(t.Context(), &job{Of: l}, nil, func(ctx context.Context, tx *firestore.Transaction) error {
			<-time.After(2 * time.Minute)
			if getOne(t, other, l.Key).Attempt == 1 {
				commitRows(t, other, &job{Of: claimOne(t, other, request("1"))}, "theirs")
			}
			return tx.Create(s.client.Doc("ledger/mine"), map[string]any{})
		})
		if !errors.Is(err, dedupe.ErrLeaseLost) {
			t.Errorf("%v", err)
		}
		want(t, s, l.Key, dedupe.Done, 1)
		for _, to := range []dedupe.Status{dedupe.Done, dedupe.Released, dedupe.Failed} {
			if _, err := settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: to, Joined: true}); !errors.Is(err, dedupe.ErrLeaseLost) {
				t.Errorf("its settlement to %v: %v", to, err)
			}
		}
	})
}
