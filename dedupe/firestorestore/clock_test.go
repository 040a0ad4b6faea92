package firestorestore

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
)

// off lets a store's host clock be off by what d points to.
func off(s *Store, d *time.Duration) *Store {
	s.clock.wall = func() time.Time { return time.Now().Add(*d) }
	return s
}

var offsets = []time.Duration{-10 * time.Minute, -time.Second, 0, time.Second, 10 * time.Minute}

// TestClocks: a worker whose clock is ten minutes wrong neither steals a live lease nor loses its
// own, frees a dead one on time, and gives fences that rise. It is so from its first call on, also
// where the answers are slow.
func TestClocks(t *testing.T) {
	for _, mine := range offsets {
		for _, slow := range []time.Duration{0, 300 * time.Millisecond} {
			t.Run(fmt.Sprintf("%v off, answers after %v", mine, slow), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *firestorefake.Server, right *Store) {
					wrong := off(second(t, right), &mine)
					srv.SetFaults(firestorefake.Fault{ReplyDelay: slow})
					q := request("1")
					first := claimOne(t, right, q)
					if c := claimAll(t, wrong, request("1"))[0]; c.Outcome != dedupe.InProgress || c.Left < 59*time.Second || c.Left > 62*time.Second {
						t.Fatalf("a live claim of a right worker: %+v", c)
					}
					<-time.After(time.Minute - 2*time.Second)
					if c := claimAll(t, wrong, request("1"))[0]; c.Outcome != dedupe.InProgress {
						t.Fatalf("just before its end: %+v", c)
					}
					<-time.After(4 * time.Second)
					q = request("1")
					taken := claimOne(t, wrong, q)
					if taken.Fence <= first.Fence || taken.Attempt != 2 {
						t.Errorf("fence %d after %d, attempt %d", taken.Fence, first.Fence, taken.Attempt)
					}
					if d := time.Until(taken.Deadline); d > time.Minute || d < 58*time.Second {
						t.Errorf("the owner's view ends in %v", d)
					}
					r := getOne(t, right, q.Key)
					if d := time.Until(r.LeaseUntil); d < 59*time.Second || d > 62*time.Second {
						t.Errorf("to others it ends in %v", d)
					}
					<-time.After(50 * time.Second)
					if c := claimAll(t, right, request("1"))[0]; c.Outcome != dedupe.InProgress {
						t.Fatalf("a live claim of a wrong worker: %+v", c)
					}
					if err := renewOne(t, wrong, dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: time.Minute}); err != nil {
						t.Fatal(err)
					}
					settleOne(t, wrong, taken, dedupe.Done)
					if r := getOne(t, right, q.Key); time.Until(r.Expires) < dedupe.DefaultRetention-2*time.Second || time.Since(r.Finished).Abs() > 2*time.Second {
						t.Errorf("finished %v, expires %v", r.Finished, r.Expires)
					}
				})
			})
		}
	}
}

// TestClockIsSet: the host's clock is set while the store runs, ahead or back: the time is learnt
// anew, with one read, before anybody's lease is judged.
func TestClockIsSet(t *testing.T) {
	for _, d := range offsets {
		t.Run(d.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *firestorefake.Server, right *Store) {
				var now time.Duration
				s := off(second(t, right), &now)
				claimOne(t, right, request("1"))
				mine := claimOne(t, s, request("2"))
				now = d
				l := claimOne(t, s, request("3"))
				if r := getOne(t, right, l.Key); time.Until(r.LeaseUntil) < time.Minute || time.Until(r.LeaseUntil) > 63*time.Second {
					t.Errorf("the lease of a new claim ends in %v", time.Until(r.LeaseUntil))
				}
				now *= 2
				if c := claimAll(t, s, request("1"))[0]; c.Outcome != dedupe.InProgress {
					t.Errorf("a live claim: %+v", c)
				}
				if err := renewOne(t, s, dedupe.Renewal{Key: mine.Key, Token: mine.Token, TTL: time.Minute}); err != nil {
					t.Error(err)
				}
				if r := getOne(t, right, mine.Key); time.Until(r.LeaseUntil) < time.Minute || time.Until(r.LeaseUntil) > 63*time.Second {
					t.Errorf("the lease ends in %v", time.Until(r.LeaseUntil))
				}
			})
		})
	}
}

// TestHostSleeps: the host is suspended between a claim's reading of the time and its writing: both
// its clocks stand, or the monotonic one alone. The claim is made again with the right time before
// it is reported, so to others it ends when its owner thinks so.
func TestHostSleeps(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		at := reading{now: time.Now().Add(-time.Hour), sent: time.Now()}
		if !at.isMisled(time.Now()) {
			t.Error("an hour went by that the host knows nothing of")
		}
		srv.SetFaults(firestorefake.Fault{Method: "BatchWrite", Count: 1, Delay: 5 * time.Second})
		srv.ResetUsage()
		claimOne(t, s, request("slow")) // late, and the host knows
		if u := srv.Usage(); u.Writes != 1 {
			t.Errorf("a slow claim took %d writes", u.Writes)
		}
		// A store that believes in a time long past writes a lease that is over.
		s.clock.least -= time.Hour
		s.clock.most -= time.Hour
		srv.ResetUsage()
		l := claimOne(t, s, request("1"))
		r := getOne(t, second(t, s), l.Key)
		if d := time.Until(r.LeaseUntil); d < time.Minute || d > 63*time.Second {
			t.Errorf("to others the lease ends in %v", d)
		}
		if u := srv.Usage(); u.Writes != 2 {
			t.Errorf("%d writes, want 2", u.Writes)
		}
		settleOne(t, s, l, dedupe.Done)
	})
}

// TestFenceOutlivesItsDocument: TTL has deleted the record, and with it the fence: the next one is
// higher all the same.
func TestFenceOutlivesItsDocument(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		l := claimOne(t, s, request("1"))
		as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Done, Retain: time.Second}})
		if err != nil || as[0].Err != nil {
			t.Fatal(as, err)
		}
		<-time.After(2 * time.Second)
		if n := srv.Expire(s.group(), s.ttl); n != 1 {
			t.Fatalf("TTL deleted %d documents", n)
		}
		again := claimAll(t, s, request("1"))[0]
		if again.Lease.Fence <= l.Fence || !again.Fresh || again.Lease.Attempt != 1 {
			t.Errorf("%+v after fence %d", again, l.Fence)
		}
	})
}

// TestExpiredIsAbsent: TTL deletes late; to claims, Get and List an expired record is absent at
// once, and Sweep takes it.
func TestExpiredIsAbsent(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		for i := range 7 {
			l := claimOne(t, s, request(fmt.Sprint(i)))
			if _, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Failed, Retain: time.Minute}}); err != nil {
				t.Fatal(err)
			}
		}
		live := claimOne(t, s, request("live"))
		<-time.After(2 * time.Minute) // the live claim is dead, and stays
		for r, err := range s.List(t.Context(), dedupe.Query{}) {
			if err != nil || r.Key != live.Key {
				t.Errorf("List: %v, %v", r, err)
			}
		}
		if c := claimAll(t, s, request("6"))[0]; !c.Fresh || c.Lease.Attempt != 1 {
			t.Errorf("a claim of an expired record: %+v", c)
		}
		// A sweep whose answer is lost counts less, and sweeps no record that lives.
		for _, limit := range []int{4, 0} {
			n, err := s.Sweep(t.Context(), limit)
			if want := map[int]int{4: 4, 0: 2}[limit]; err != nil || n != want {
				t.Errorf("Sweep(%d): %d, %v, want %d", limit, n, err, want)
			}
		}
		srv.SetFaults(firestorefake.Fault{Method: "RunQuery", Code: codes.FailedPrecondition, Message: "The query requires an index."})
		if _, err := s.Sweep(t.Context(), 0); err == nil {
			t.Error("a sweep without its index says nothing")
		}
		none, _ := New(s.client, s.api, s.group(), nil)
		if n, err := none.Sweep(t.Context(), 0); n != 0 || err != nil {
			t.Errorf("without Options.Sweep: %d, %v", n, err)
		}
	})
}
