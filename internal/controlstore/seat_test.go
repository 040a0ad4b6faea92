package controlstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/internal/storetest"
	"github.com/onceq/onceq/onceqtest"
)

const beat = 10 * time.Second

// fleet are workers that sit on a store.
type fleet struct {
	t     *testing.T
	store dedupe.Store
	wg    sync.WaitGroup
	kill  []context.CancelCauseFunc
}

var errKilled = errors.New("killed")

// start starts workers within d. Each beats until it is killed, or leaves when its context ends
// without a cause.
func (f *fleet) start(n int, d time.Duration) {
	for i := range n {
		ctx, kill := context.WithCancelCause(f.t.Context())
		f.kill = append(f.kill, kill)
		owner := fmt.Sprintf("host-%d/1", len(f.kill))
		f.wg.Go(func() { f.work(ctx, owner, d*time.Duration(i)/time.Duration(n)) })
	}
}

func (f *fleet) work(ctx context.Context, owner string, after time.Duration) {
	seat, err := controlstore.NewSeat(f.store, controlstore.SeatOptions{Queue: "orders", Owner: owner})
	if err != nil {
		f.t.Error(err)
		return
	}
	if !retry.Rest(ctx, after) {
		return
	}
	begin := time.Now()
	for {
		if err := seat.Beat(ctx, &control.WorkerStatus{Host: owner, At: time.Now(), Started: begin, State: "running"}); err != nil && ctx.Err() == nil {
			f.t.Error(owner, err)
			return
		}
		if !retry.Rest(ctx, beat) {
			break
		}
	}
	if !errors.Is(context.Cause(ctx), errKilled) {
		if err := seat.Leave(context.WithoutCancel(ctx)); err != nil {
			f.t.Error(err)
		}
	}
}

// end kills workers, or lets them leave.
func (f *fleet) end(from, to int, cause error) {
	for _, k := range f.kill[from:to] {
		k(cause)
	}
	synctest.Wait()
}

// stop ends what is left.
func (f *fleet) stop() {
	f.end(0, len(f.kill), errKilled)
	f.wg.Wait()
}

// seen counts the workers that live, are dead and have left, each once.
func (f *fleet) seen() (live, dead, left int) {
	f.t.Helper()
	seats, err := controlstore.Seats(f.t.Context(), f.store, "orders")
	if err != nil {
		f.t.Fatal(err)
	}
	numbers, owners := map[int]bool{}, map[string]bool{}
	for i := range seats {
		s := &seats[i]
		if numbers[s.Number] {
			f.t.Errorf("seat %d is there twice", s.Number)
		}
		numbers[s.Number] = true
		switch {
		case s.Left:
			left++
		case s.Dead(time.Now()):
			dead++
		default:
			live++
			if owners[s.Owner] {
				f.t.Errorf("%s sits twice", s.Owner)
			}
			owners[s.Owner] = true
			if s.Status == nil || s.Status.Host != s.Owner || s.Status.Owner != s.Owner || s.Status.Queue != "orders" {
				f.t.Errorf("the card of %s is %+v", s.Owner, s.Status)
			}
		}
	}
	return live, dead, left
}

// TestManySeats: 500 workers that start within ten seconds all sit after thirty, none on another's
// number. Killed ones are dead after forty seconds, and the last one is found wherever it sits.
func TestManySeats(t *testing.T) {
	for _, within := range []time.Duration{0, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := rig.NewStore(t)
			f := &fleet{t: t, store: store}
			f.start(500, within)
			<-time.After(within)
			synctest.Wait()
			if live, _, _ := f.seen(); live != 500 {
				t.Errorf("%d of 500 sit after %v", live, within)
			}
			t.Logf("within %v: %v calls", within, store.Calls())
			<-time.After(30*time.Second - within)
			if live, dead, left := f.seen(); live != 500 || dead+left != 0 {
				t.Errorf("%d sit, %d are dead, %d have left", live, dead, left)
			}
			f.end(100, 200, errKilled)
			<-time.After(40 * time.Second)
			if live, dead, left := f.seen(); live != 400 || dead != 100 || left != 0 {
				t.Errorf("after 100 were killed %d sit, %d are dead, %d have left", live, dead, left)
			}
			f.end(200, 500, nil)
			if live, dead, left := f.seen(); live != 100 || dead != 100 || left < 299 {
				t.Errorf("after 300 have left %d sit, %d are dead, %d have left", live, dead, left)
			}
			f.end(0, 50, errKilled)
			f.end(51, 100, nil)
			<-time.After(70 * time.Second)
			if live, _, _ := f.seen(); live != 1 {
				t.Errorf("of 500 workers one is left, and %d are found", live)
			}
			f.stop()
		})
	}
}

// TestLastSeat: the one worker that is left of a fleet, wherever it sits, is found a minute after
// the others' seats are gone, and costs a write a beat from then on.
func TestLastSeat(t *testing.T) {
	for last := 0; last < 500; last += 166 {
		synctest.Test(t, func(t *testing.T) {
			store := rig.NewStore(t)
			f := &fleet{t: t, store: store}
			f.start(500, 10*time.Second)
			<-time.After(10 * time.Second)
			synctest.Wait()
			f.end(0, last, nil)
			f.end(last+1, 500, nil)
			<-time.After(2*time.Minute + time.Second)
			if live, _, _ := f.seen(); live != 1 {
				t.Errorf("worker %d is not found", last)
			}
			store.Recount()
			<-time.After(10 * time.Minute)
			synctest.Wait()
			if n, all := store.Renews.Load(), store.Calls(); n != 60 || all != 60 {
				t.Errorf("in 60 beats: %d renewals, %d calls", n, all)
			}
			f.stop()
		})
	}
}

// TestDeadSeats: people see for ten minutes who has died. After that the lowest dead seat is the
// first that is taken, and a day later nobody asks any more.
func TestDeadSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, store: newStore(t)}
		f.start(10, 0)
		synctest.Wait()
		f.end(0, 10, errKilled)
		<-time.After(5 * time.Minute)
		f.start(1, 0)
		synctest.Wait()
		if live, dead, _ := f.seen(); live != 1 || dead != 10 {
			t.Errorf("after five minutes %d sit, %d are dead", live, dead)
		}
		<-time.After(6 * time.Minute)
		f.start(1, 0)
		synctest.Wait()
		seats, err := controlstore.Seats(t.Context(), f.store, "orders")
		if err != nil || len(seats) == 0 || seats[0].Number > 9 || seats[0].Dead(time.Now()) {
			t.Fatalf("after eleven minutes the first seats are %+v, %v", seats[:1], err)
		}
		<-time.After(25 * time.Hour)
		if live, dead, _ := f.seen(); live != 2 || dead != 0 {
			t.Errorf("a day later %d sit, %d are dead", live, dead)
		}
		f.start(1, 0)
		synctest.Wait()
		n := 0
		for r, err := range f.store.List(t.Context(), dedupe.Query{Scope: controlstore.ScopeWorker}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			_ = r
		}
		if n != 3 {
			t.Errorf("%d records of seats are kept for 3 workers", n)
		}
		f.stop()
	})
}

// TestSeatLost: a worker whose seat was removed says so once, and takes another one.
func TestSeatLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		seat := must.Get(controlstore.NewSeat(s, controlstore.SeatOptions{Queue: "a/b", Owner: "w"}))
		card := &control.WorkerStatus{At: time.Now()}
		if err := seat.Beat(t.Context(), card); err != nil || !strings.HasPrefix(seat.Name(), "a/b/") {
			t.Fatalf("%q, %v", seat.Name(), err)
		}
		rs, err := s.Get(t.Context(), []dedupe.Key{{Scope: controlstore.ScopeWorker, Key: seat.Name()}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: rs[0].Key, Fence: rs[0].Fence, Force: true}}); err != nil {
			t.Fatal(err)
		}
		if err := seat.Beat(t.Context(), card); !errors.Is(err, controlstore.ErrSeatLost) || seat.Name() != "" {
			t.Errorf("%q, %v", seat.Name(), err)
		}
		if err := seat.Beat(t.Context(), card); err != nil || seat.Name() == "" {
			t.Errorf("%q, %v", seat.Name(), err)
		}
		if err := seat.Leave(t.Context()); err != nil || seat.Name() != "" {
			t.Errorf("%q, %v", seat.Name(), err)
		}
		if err := seat.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestFrozenWorker: a worker that stood still for longer than its lease has its seat as before,
// because nobody takes the seat of one who died a moment ago.
func TestFrozenWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, store: newStore(t)}
		seat, _ := controlstore.NewSeat(f.store, controlstore.SeatOptions{Queue: "orders", Owner: "frozen"})
		if err := seat.Beat(t.Context(), &control.WorkerStatus{Host: "frozen", At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		name := seat.Name()
		<-time.After(5 * time.Minute)
		f.start(20, 0)
		synctest.Wait()
		if err := seat.Beat(t.Context(), &control.WorkerStatus{Host: "frozen", At: time.Now()}); err != nil || seat.Name() != name {
			t.Errorf("%q, was %q, %v", seat.Name(), name, err)
		}
		if live, dead, _ := f.seen(); live != 21 || dead != 0 {
			t.Errorf("%d sit, %d are dead", live, dead)
		}
		f.stop()
	})
}

// TestLostSeatAnswers: a claim of a seat whose answer is lost leaves no second worker in the list.
func TestLostSeatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rig.NewStore(t)
		f := &fleet{t: t, store: s}
		s.SetFault(rig.Bads(onceqtest.Claim, 20, faulty.Lose(errCut)))
		seat, _ := controlstore.NewSeat(s, controlstore.SeatOptions{Queue: "orders", Owner: "w"})
		for n := 1; ; n++ {
			err := seat.Beat(t.Context(), &control.WorkerStatus{Host: "w", At: time.Now()})
			if err == nil {
				break
			}
			if !errors.Is(err, errCut) || n > 5 {
				t.Fatal(err)
			}
		}
		if live, dead, left := f.seen(); live != 1 || dead+left != 0 {
			t.Errorf("%d sit, %d are dead, %d have left", live, dead, left)
		}
	})
}

func TestBadSeats(t *testing.T) {
	for want, o := range map[string]controlstore.SeatOptions{
		"SeatOptions.Queue: is required":                              {Owner: "w"},
		"SeatOptions.Owner: is required":                              {Queue: "q"},
		"SeatOptions.Queue: has 256 bytes, the limit is 255":          {Queue: strings.Repeat("q", 256), Owner: "w"},
		"SeatOptions.TTL: 30ns is below 1s; is its unit missing?":     {Queue: "q", Owner: "w", TTL: 30},
		`SeatOptions.Owner: "a\n" is not UTF-8, or holds a control c`: {Queue: "q", Owner: "a\n"},
	} {
		if _, err := controlstore.NewSeat(newStore(t), o); !errors.Is(err, control.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := controlstore.Seats(t.Context(), newStore(t), ""); !errors.Is(err, control.ErrInvalid) {
		t.Error(err)
	}
}

// occupy claims a seat as another worker does that has written no card.
func occupy(t *testing.T, s dedupe.Store, n int) {
	t.Helper()
	storetest.Claim(t, s, dedupe.ClaimRequest{
		Key: dedupe.Key{Scope: controlstore.ScopeWorker, Key: fmt.Sprint("orders/", n)}, Token: storetest.Token(), TTL: time.Minute,
		Owner: fmt.Sprint("other-", n), MessageID: fmt.Sprint("id-", n),
	})
}

// TestGaps: a reader goes over one empty batch and no more, and never stops before it.
func TestGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		for _, n := range []int{63, 128, 256, 400, 580} {
			occupy(t, s, n)
		}
		seats, err := controlstore.Seats(t.Context(), s, "orders")
		var got []int
		for _, o := range seats {
			got = append(got, o.Number)
		}
		if want := []int{63, 128, 256, 400}; err != nil || !slices.Equal(got, want) {
			t.Errorf("the seats are %v, %v; want %v", got, err, want)
		}
	})
}

// TestOldCard: the card of whoever sat there before is not the next one's.
func TestOldCard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		seat, _ := controlstore.NewSeat(s, controlstore.SeatOptions{Queue: "orders", Owner: "w"})
		if err := seat.Beat(t.Context(), &control.WorkerStatus{At: time.Now(), State: "running"}); err != nil {
			t.Fatal(err)
		}
		var n int
		if _, err := fmt.Sscanf(seat.Name(), "orders/%d", &n); err != nil {
			t.Fatal(err)
		}
		if err := seat.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		occupy(t, s, n)
		if seats, err := controlstore.Seats(t.Context(), s, "orders"); err != nil || len(seats) != 1 || seats[0].Status != nil || seats[0].Owner == "w" {
			t.Errorf("the seats are %+v, %v", seats, err)
		}
	})
}

// crowd answers each claim of a low seat as if another worker had been faster.
type crowd struct{ dedupe.Store }

func (s crowd) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	var n int
	if _, err := fmt.Sscanf(rs[0].Key.Key, "orders/%d", &n); err == nil && n < 64 {
		return []dedupe.Claim{{Outcome: dedupe.InProgress, Left: time.Second}}, nil
	}
	return s.Store.Claim(ctx, rs)
}

// TestCrowd: a worker that always comes too late goes on to the next batches, and leaves no gap
// that a reader would not go over.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 30 {
			s := newStore(t)
			seat, _ := controlstore.NewSeat(crowd{s}, controlstore.SeatOptions{Queue: "orders", Owner: "w"})
			if err := seat.Beat(t.Context(), &control.WorkerStatus{At: time.Now()}); err != nil {
				t.Fatal(err)
			}
			var n int
			if _, err := fmt.Sscanf(seat.Name(), "orders/%d", &n); err != nil || n < 64 || n >= 3*64 {
				t.Errorf("it sits at %q, %v", seat.Name(), err)
			}
		}
	})
}
