package firestorestore

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
)

// TestAnyStateAfterALargeOne: what a job saves is kept as it is, also where it looks like what the
// store puts in the place of a large state in its memory.
func TestAnyStateAfterALargeOne(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		l := claimOne(t, s, request("1"))
		for n, state := range [][]byte{make([]byte, 2*maxRemembered), {0}, make([]byte, 2*maxRemembered), {}, make([]byte, 2*maxRemembered), bytes.Repeat([]byte{0}, len(elided))} {
			if err := renewOne(t, s, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Minute, State: state, StateNo: n + 1}); err != nil {
				t.Fatal(err)
			}
			if r := getOne(t, s, l.Key); r.StateNo != n+1 || !bytes.Equal(r.State, state) {
				t.Errorf("state %d has %d bytes, want %d", r.StateNo, len(r.State), len(state))
			}
		}
	})
}

// TestHostStoodStill: both clocks of the host stood still before a claim and a beat were written,
// and the answer is lost as well. Neither is reported with a lease that to others is over.
func TestHostStoodStill(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		lost := firestorefake.Fault{Method: "BatchWrite", Count: 1, Code: codes.Unavailable, Applied: true}
		stand := func() {
			s.clock.least -= time.Hour
			s.clock.most -= time.Hour
			srv.SetFaults(lost)
		}
		lives := func(what string, k dedupe.Key) {
			t.Helper()
			if d := time.Until(getOne(t, second(t, s), k).LeaseUntil); d < 59*time.Second || d > 63*time.Second {
				t.Errorf("%s: to others the lease ends in %v", what, d)
			}
		}
		stand()
		l := claimOne(t, s, request("1"))
		lives("claim", l.Key)
		if c := claimAll(t, second(t, s), request("1"))[0]; c.Outcome != dedupe.InProgress {
			t.Errorf("a rival's claim: %v", c.Outcome)
		}
		<-time.After(time.Minute)
		stand()
		if err := renewOne(t, s, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		lives("beat", l.Key)
	})
}

// TestCommitMeetsItself: the answer to a transaction is lost, the client runs f again by itself,
// and f finds its own writes: the job is done, and f's error of the second run counts for nothing.
func TestCommitMeetsItself(t *testing.T) {
	taken := errors.New("taken")
	for name, looks := range map[string]bool{"found": true, "nobody knows": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
				l := claimOne(t, s, request("1"))
				srv.SetFaults(
					firestorefake.Fault{Method: "Commit", Count: 1, Code: codes.Unavailable, Applied: true},
					firestorefake.Fault{Method: "Commit", Count: 1, Code: codes.Aborted},
				)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := s.Commit(ctx, &job{Of: l}, nil, func(ctx context.Context, tx *firestore.Transaction) error {
					row := s.client.Doc("ledger/1")
					if doc, err := tx.Get(row); err == nil && doc.Exists() {
						if !looks {
							cancel()
						}
						return taken
					}
					return tx.Create(row, map[string]any{})
				})
				if looks && err != nil || !looks && (!errors.Is(err, taken) || !strings.Contains(err.Error(), "unknown")) {
					t.Errorf("%v", err)
				}
				srv.SetFaults()
				synctest.Wait()
				want(t, s, l.Key, dedupe.Done, 1)
			})
		})
	}
}

// TestCommitOfABadFunction: what the client itself refuses, such as a read behind a write, is told
// at once, and not as a busy record.
func TestCommitOfABadFunction(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		l := claimOne(t, s, request("1"))
		calls := 0
		err := s.Commit(t.Context(), &job{Of: l}, nil, func(_ context.Context, tx *firestore.Transaction) error {
			calls++
			_ = tx.Set(s.client.Doc("ledger/1"), map[string]any{})
			_, _ = tx.Get(s.client.Doc("accounts/1"))
			return nil
		})
		if calls != 1 || err == nil || errors.Is(err, dedupe.ErrBusy) || !strings.Contains(err.Error(), "read after write") {
			t.Errorf("%v after %d calls", err, calls)
		}
		want(t, s, l.Key, dedupe.Claimed, 0)
	})
}

// TestTextsThatGrow: a text that is no UTF-8 is stored with up to twice its length: beside a large
// state it is cut as any other, and labels count with what is stored.
func TestTextsThatGrow(t *testing.T) {
	hostile := func(n int) string { return strings.Repeat("a\xff", n/2) }
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		q := worst()
		q.Owner = hostile(len(q.Owner))
		cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q, request("fits")})
		if err != nil || !errors.Is(cs[0].Err, dedupe.ErrBadRequest) || cs[1].Outcome != dedupe.Won {
			t.Errorf("%v, %v", cs, err)
		}
		q = worst()
		claimOne(t, s, q)
		if err := renewOne(t, s, dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: time.Minute, State: make([]byte, maxResult), StateNo: 1}); err != nil {
			t.Fatal(err)
		}
		if st, err := settle(t, s, dedupe.Settlement{Key: q.Key, Token: q.Token, To: dedupe.Released, ErrText: hostile(3800)}); st != dedupe.Released {
			t.Errorf("%v, %v", st, err)
		}
	})
}

// TestClockThatRuns: a host whose clock jumps with every look does not learn the time. It takes no
// live lease by a guess.
func TestClockThatRuns(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		l := claimOne(t, s, request("1"))
		other, looks := second(t, s), time.Duration(0)
		other.clock.wall = func() time.Time {
			looks++
			return time.Now().Add(looks * 10 * time.Minute)
		}
		cs, err := other.Claim(t.Context(), []dedupe.ClaimRequest{request("1")})
		if err == nil || !strings.Contains(err.Error(), "the host's clock") {
			t.Errorf("%v, %v", cs, err)
		}
		if r := getOne(t, s, l.Key); r.Token != l.Token || r.Attempt != 1 {
			t.Errorf("the record is now %v, attempt %d", r.Token, r.Attempt)
		}
		other.clock.wall = nil
		if c := claimAll(t, other, request("1"))[0]; c.Outcome != dedupe.InProgress {
			t.Errorf("with a clock that stands right: %v", c.Outcome)
		}
	})
}

// TestExpiryOfAHostThatStoodStill: a job that is done by the time of a host that stood still is
// kept for its whole retention: else its next delivery would run it again.
func TestExpiryOfAHostThatStoodStill(t *testing.T) {
	for _, commits := range []bool{false, true} {
		bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
			l := claimOne(t, s, request("1"))
			s.clock.least -= 2 * time.Hour
			s.clock.most -= 2 * time.Hour
			var err error
			if commits {
				err = s.Commit(t.Context(), &job{Of: l, Keep: time.Hour}, []byte("r"), nil)
			} else {
				_, err = settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Done, Retain: time.Hour, Result: []byte("r")})
			}
			if err != nil {
				t.Fatal(err)
			}
			c := claimAll(t, second(t, s), request("1"))[0]
			if c.Outcome != dedupe.AlreadyDone || string(c.Record.Result) != "r" || time.Until(c.Record.Expires).Round(time.Minute) != time.Hour {
				t.Errorf("commits %v: the next delivery is %v, %+v", commits, c.Outcome, c.Record)
			}
			if st := joined(t, s, l, dedupe.Done); st != dedupe.Done {
				t.Errorf("commits %v: the settlement after it: %v", commits, st)
			}
		})
	}
}

// TestBusyBesideUnknown: the context ends while one entry waits for a transaction and the answer to
// another is lost: the first is busy, and nobody knows of the second.
func TestBusyBesideUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		lost, held := claimOne(t, s, request("lost")), claimOne(t, s, request("held"))
		over := make(chan struct{})
		defer func() { <-over }()
		go func() {
			defer close(over)
			_ = s.client.RunTransaction(t.Context(), func(_ context.Context, tx *firestore.Transaction) error {
				_, err := tx.Get(s.client.DocFromFullPath(s.name(held.Key)))
				<-time.After(30 * time.Second)
				return err
			})
		}()
		synctest.Wait()
		srv.SetFaults(firestorefake.Fault{Method: "BatchWrite", Count: 1, Code: codes.Unavailable, Entries: []int{0}, Applied: true})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second+time.Millisecond, cancel) // within the pause behind the first try
		as, err := s.Settle(ctx, []dedupe.Settlement{
			{Key: lost.Key, Token: lost.Token, To: dedupe.Released}, {Key: held.Key, Token: held.Token, To: dedupe.Released},
		})
		if err != nil || errors.Is(as[0].Err, dedupe.ErrBusy) || !errors.Is(as[0].Err, context.Canceled) || !errors.Is(as[1].Err, dedupe.ErrBusy) {
			t.Errorf("%v, %v", as, err)
		}
	})
}
