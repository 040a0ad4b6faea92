package firestorestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
)

// lost are the ways in which the answer to a write that was carried out does not come.
var lost = map[string]firestorefake.Fault{
	"unavailable": {Count: 1, Code: codes.Unavailable, Applied: true},
	"internal":    {Count: 1, Code: codes.Internal, Applied: true},
	"silence":     {Count: 1, Silence: true, Applied: true},
	"each entry":  {Count: 1, Code: codes.Unavailable, Entries: []int{0, 1, 2}, Applied: true},
}

// notMade are the ways in which a write fails and nothing is written.
var notMade = map[string]firestorefake.Fault{
	"unavailable": {Count: 2, Code: codes.Unavailable},
	"aborted":     {Count: 2, Code: codes.Aborted, Entries: []int{0, 2}},
	"exhausted":   {Count: 2, Code: codes.ResourceExhausted},
	"silence":     {Count: 1, Silence: true},
}

// TestLostAnswers: a call whose answer was lost is repeated and gives the answer of the first try;
// it has written once. One that was not carried out is, by its repeat.
func TestLostAnswers(t *testing.T) {
	for kind, faults := range map[string]map[string]firestorefake.Fault{"lost": lost, "not made": notMade} {
		for name, f := range faults {
			t.Run(kind+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) { losing(t, srv, s, f) })
			})
		}
	}
}

func losing(t *testing.T, srv *firestorefake.Server, s *Store, f firestorefake.Fault) {
	f.Method = "BatchWrite"
	var qs []dedupe.ClaimRequest
	for i := range 3 {
		qs = append(qs, request(fmt.Sprint(i)))
	}
	step := func(name string, want int, call func()) {
		t.Helper()
		srv.ResetUsage()
		srv.SetFaults(f)
		call()
		if u := srv.Usage(); u.Writes != want {
			t.Errorf("%s: %d writes, want %d", name, u.Writes, want)
		}
	}
	var fences [3]uint64
	step("claim", 3, func() {
		for i, c := range claimAll(t, s, qs...) {
			if c.Outcome != dedupe.Won || !c.Fresh || c.Lease.Attempt != 1 {
				t.Errorf("claim %d: %+v", i, c)
			}
			fences[i] = c.Lease.Fence
		}
	})
	step("renew", 3, func() {
		var ns []dedupe.Renewal
		for _, q := range qs {
			ns = append(ns, dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: time.Hour, State: []byte("s"), StateNo: 1})
		}
		as, err := s.Renew(t.Context(), ns)
		if err != nil || as[0].Err != nil || as[2].Err != nil {
			t.Fatal(as, err)
		}
	})
	step("settle", 3, func() {
		var ends []dedupe.Settlement
		for _, q := range qs {
			ends = append(ends, dedupe.Settlement{Key: q.Key, Token: q.Token, To: dedupe.Failed, ErrText: "e"})
		}
		as, err := s.Settle(t.Context(), ends)
		if err != nil || as[0] != (dedupe.Settled{Status: dedupe.Failed}) || as[2] != as[0] {
			t.Fatal(as, err)
		}
	})
	for i, q := range qs {
		if r := getOne(t, s, q.Key); r.Status != dedupe.Failed || r.Fence != fences[i] || r.Attempt != 1 || r.StateNo != 1 {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	step("forget", 3, func() {
		var fs []dedupe.Forgotten
		for i, q := range qs {
			fs = append(fs, dedupe.Forgotten{Key: q.Key, Fence: fences[i]})
		}
		errs, err := s.Forget(t.Context(), fs)
		if err := errors.Join(append(errs, err)...); err != nil {
			t.Fatal(err)
		}
	})
	if c := claimAll(t, s, request("0"))[0]; c.Lease.Fence <= fences[0] || !c.Fresh {
		t.Errorf("after Forget the fence is %d, want more than %d", c.Lease.Fence, fences[0])
	}
}

// TestRivalInTheGap: somebody else wins the key between a claim's lost try and its repeat: who came
// first has it, and the other knows.
func TestRivalInTheGap(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		srv.SetFaults(firestorefake.Fault{Method: "BatchWrite", Count: 1, Code: codes.Unavailable})
		rival := second(t, s)
		done := make(chan dedupe.Claim, 1)
		go func() { done <- claimAll(t, s, request("1"))[0] }()
		<-time.After(time.Millisecond) // the first try has failed; the repeat waits
		claimOne(t, rival, request("1"))
		if c := <-done; c.Outcome != dedupe.InProgress {
			t.Errorf("the late repeat is %v, want in progress", c.Outcome)
		}
	})
}

// TestRivalAfterALostRelease: a release is carried out, its answer is lost, and another wins the
// key before the repeat: nobody may say that nothing was written.
func TestRivalAfterALostRelease(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		l := claimOne(t, s, request("1"))
		srv.SetFaults(firestorefake.Fault{Method: "BatchWrite", Count: 1, Code: codes.Unavailable, Applied: true})
		release := []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Released}}
		done := make(chan error, 1)
		go func() {
			_, err := s.Settle(t.Context(), release)
			done <- err
		}()
		<-time.After(time.Millisecond)
		claimOne(t, second(t, s), request("1"))
		if err := <-done; err == nil || errors.Is(err, dedupe.ErrLeaseLost) {
			t.Errorf("%v, want an error that leaves the outcome open", err)
		}
		if as, err := s.Settle(t.Context(), release); err != nil || !errors.Is(as[0].Err, dedupe.ErrLeaseLost) {
			t.Errorf("asked again: %v, %v", as, err)
		}
	})
}

// TestRefusals: what the service says when people have something to mend comes through, with what
// to do about it, at once; what passes is repeated until the context ends.
func TestRefusals(t *testing.T) {
	hints := map[string]string{
		"Datastore mode": "native mode", "no database": "databases create", "the API is switched off": "services enable",
		"no role": "roles/datastore.user", "quota": "quota is used up",
	}
	for _, r := range firestorefake.Refusals() {
		t.Run(r.Name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
				srv.SetFaults(r.Fault(""))
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cs, err := s.Claim(ctx, []dedupe.ClaimRequest{request("1"), request("2")})
				switch passing := r.Code == codes.Aborted; {
				case passing && (err != nil || !errors.Is(cs[0].Err, dedupe.ErrBusy) || !errors.Is(cs[1].Err, dedupe.ErrBusy)):
					t.Errorf("%v, %v, want each entry busy", cs, err)
				case passing:
				case err == nil || !strings.Contains(err.Error(), r.Message) || !strings.Contains(err.Error(), hints[r.Name]):
					t.Errorf("%v, want the service's words and %q", err, hints[r.Name])
				case r.Code != codes.ResourceExhausted && time.Since(began) > 0:
					t.Errorf("it was repeated for %v, which mends nothing", time.Since(began))
				case r.Code == codes.ResourceExhausted && time.Since(began) < 10*time.Second:
					t.Errorf("it was given up after %v", time.Since(began))
				}
				srv.SetFaults()
				if rs, err := s.Get(t.Context(), []dedupe.Key{request("1").Key}); err != nil || rs[0] != nil {
					t.Errorf("something was written: %v, %v", rs[0], err)
				}
			})
		})
	}
}

// TestAbortedStorm: half of all writes meet a transaction, for minutes: each job is done once, and
// nothing is lost. Who is told ErrBusy comes again.
func TestAbortedStorm(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		srv.SetFaults(
			firestorefake.Fault{Method: "BatchWrite", Rate: 0.3, Code: codes.Aborted, Entries: []int{0, 1, 3, 5, 6, 9}},
			firestorefake.Fault{Method: "BatchWrite", Rate: 0.2, Code: codes.Aborted},
			firestorefake.Fault{Method: "BatchWrite", Rate: 0.2, Code: codes.Unavailable, Applied: true},
		)
		var effects [40]atomic.Int64
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				me := second(t, s)
				for n := range effects {
					n = (n + 10*w) % len(effects)
					q := request(fmt.Sprint(n))
					c := untilKnown(t, func() (c dedupe.Claim, err error) {
						cs, err := me.Claim(t.Context(), []dedupe.ClaimRequest{q})
						if err == nil {
							c, err = cs[0], cs[0].Err
						}
						return c, err
					})
					if c.Outcome != dedupe.Won {
						continue
					}
					effects[n].Add(1)
					untilKnown(t, func() (a dedupe.Settled, err error) {
						as, err := me.Settle(t.Context(), []dedupe.Settlement{{Key: q.Key, Token: q.Token, To: dedupe.Done}})
						if err == nil {
							a, err = as[0], as[0].Err
						}
						return a, err
					})
				}
			})
		}
		wg.Wait()
		srv.SetFaults()
		for n := range effects {
			if got := effects[n].Load(); got != 1 {
				t.Errorf("job %d had its effect %d times", n, got)
			}
			if r := getOne(t, s, request(fmt.Sprint(n)).Key); r.Status != dedupe.Done || r.Attempt != 1 {
				t.Errorf("job %d is %v, attempt %d", n, r.Status, r.Attempt)
			}
		}
	})
}

// untilKnown repeats a call until it is answered.
func untilKnown[A any](t *testing.T, call func() (A, error)) A {
	for range 1000 {
		a, err := call()
		if err == nil {
			return a
		}
		if !errors.Is(err, dedupe.ErrBusy) && !errors.As(err, new(silent)) {
			t.Error(err)
			return a
		}
		<-time.After(time.Second)
	}
	t.Error("never answered")
	return *new(A)
}

// TestOneKey: many who want one key: one wins, and all others learn that it is in progress, or are
// told to come again. What a hot document does is ErrBusy, not an error.
func TestOneKey(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		srv.SetFaults(firestorefake.Fault{Method: "BatchWrite", Rate: 0.5, Code: codes.Aborted, Entries: []int{0}, Message: "Too much contention on these documents. Please try again."})
		var won, waiting, busy atomic.Int64
		var wg sync.WaitGroup
		for range 60 {
			wg.Go(func() {
				cs, err := second(t, s).Claim(t.Context(), []dedupe.ClaimRequest{request("hot")})
				switch {
				case err != nil:
					t.Error(err)
				case errors.Is(cs[0].Err, dedupe.ErrBusy):
					busy.Add(1)
				case cs[0].Outcome == dedupe.Won:
					won.Add(1)
				case cs[0].Outcome == dedupe.InProgress:
					waiting.Add(1)
				default:
					t.Error(cs[0])
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || won.Load()+waiting.Load()+busy.Load() != 60 {
			t.Errorf("%d won, %d wait, %d are busy", won.Load(), waiting.Load(), busy.Load())
		}
	})
}

// TestThrottled: a throttled call pauses longer and longer, and goes on when the service does.
func TestThrottled(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		srv.SetFaults(firestorefake.Fault{Method: "BatchWrite", Count: 5, Code: codes.ResourceExhausted, Message: "Quota exceeded."})
		began := time.Now()
		claimOne(t, s, request("1"))
		if d := time.Since(began); d < 500*time.Millisecond || d > 3*time.Second {
			t.Errorf("five pauses took %v", d)
		}
		if n := srv.Usage().Calls["BatchWrite"]; n != 6 {
			t.Errorf("%d requests, want 6", n)
		}
	})
}

// TestContextEnds: a call whose context ends says so, and that nobody knows the outcome.
func TestContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		srv.SetFaults(firestorefake.Fault{Silence: true, Applied: true})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		q := request("1")
		_, err := s.Claim(ctx, []dedupe.ClaimRequest{q})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "outcome is unknown") {
			t.Errorf("%v", err)
		}
		srv.SetFaults()
		synctest.Wait()
		if c := claimAll(t, s, q)[0]; c.Outcome != dedupe.Won || !c.Fresh {
			t.Errorf("the same claim again: %+v", c)
		}
	})
}
