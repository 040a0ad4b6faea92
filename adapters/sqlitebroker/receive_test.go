package sqlitebroker

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/sqlitewriter"
)

// TestRedrive: a group whose head went to the dead letters goes on, and there its messages are in
// order, too.
func TestRedrive(t *testing.T) {
	f := openFile(t, tempFile(t))
	q, dead := f.queue("orders", &Options{MaxReceives: 1, DeadLetters: "dead"}), f.queue("dead", nil)
	send(t, q, bodies("g", "1", "2")...)
	for _, want := range []string{"1", "2"} {
		m := one(t, q)
		if string(m.Body) != want {
			t.Fatalf("%q came, want %q", m.Body, want)
		}
		if err := q.Nack(t.Context(), []broker.Hold{{Receipt: m.Receipt}}); err != nil {
			t.Fatal(err)
		}
	}
	none(t, q, "both were received once")
	for _, want := range []string{"1", "2"} {
		m := one(t, dead)
		if string(m.Body) != want || m.Attempt != 1 {
			t.Errorf("the dead letter %q came in its attempt %d, want %q", m.Body, m.Attempt, want)
		}
		ack(t, dead, m)
	}
}

// TestRedriveBesideOthers: what goes to the dead letters leaves its place in the batch to others,
// and no more than its place.
func TestRedriveBesideOthers(t *testing.T) {
	f := openFile(t, tempFile(t))
	q, dead := f.queue("orders", &Options{MaxReceives: 1, DeadLetters: "dead"}), f.queue("dead", nil)
	send(t, q, bodies("", "a", "b", "c")...)
	var again []broker.Hold
	for _, m := range take(t, q, 3) {
		again = append(again, broker.Hold{Receipt: m.Receipt})
	}
	if err := q.Nack(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	send(t, q, bodies("", "1", "2", "3", "4", "5", "6", "7")...)
	if n := len(take(t, q, 5)); n != 5 {
		t.Errorf("%d messages came, want 5", n)
	}
	if n := len(take(t, dead, 5)); n != 3 {
		t.Errorf("%d dead letters, want 3", n)
	}
}

// TestReceiveAmongFailures: a receive that runs again, because a call beside it failed, brings each
// message once.
func TestReceiveAmongFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFile(t, tempFile(t))
		q := f.queue("orders", nil)
		send(t, q, bodies("", "1", "2", "3")...)
		boom := errors.New("boom")
		tx := f.begin() // both wait for the lock, and then share a transaction
		var calls sync.WaitGroup
		calls.Go(func() {
			if got := fmt.Sprint(bodiesOf(take(t, q, 10))); got != "[1 2 3]" {
				t.Errorf("received %s", got)
			}
		})
		synctest.Wait()
		calls.Go(func() {
			err := q.w.Do(t.Context(), &sqlitewriter.Call{Wait: time.Minute, Entries: 1, Apply: func(*sqlitewriter.Txn) error { return boom }})
			if !errors.Is(err, boom) {
				t.Errorf("the call that fails got %v", err)
			}
		})
		synctest.Wait()
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		calls.Wait()
	})
}

func bodiesOf(ms []*broker.Message) (bs []string) {
	for _, m := range ms {
		bs = append(bs, string(m.Body))
	}
	return bs
}

// TestWokenBySettling: a waiting receive needs no poll for what an ack, a nack or a redrive in its
// process has made ready.
func TestWokenBySettling(t *testing.T) {
	for name, c := range map[string]struct {
		of     string // the queue that waits
		settle func(t *testing.T, q *Queue, m *broker.Message)
	}{
		"the ack of a head": {"orders", func(t *testing.T, q *Queue, m *broker.Message) { ack(t, q, m) }},
		"a nack": {"orders", func(t *testing.T, q *Queue, m *broker.Message) {
			if err := q.Nack(t.Context(), []broker.Hold{{Receipt: m.Receipt}}); err != nil {
				t.Error(err)
			}
		}},
		"a redrive": {"dead", func(t *testing.T, q *Queue, m *broker.Message) {
			if err := q.Nack(t.Context(), []broker.Hold{{Receipt: m.Receipt}}); err != nil {
				t.Error(err)
			}
			take(t, q, 1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := openFile(t, tempFile(t))
				slow := 10 * time.Second
				o := &Options{Poll: slow}
				if c.of == "dead" {
					o = &Options{Poll: slow, MaxReceives: 1, DeadLetters: "dead"}
				}
				q := f.queue("orders", o)
				waits := q
				if c.of == "dead" {
					waits = f.queue("dead", &Options{Poll: slow})
				}
				send(t, q, bodies("g", "1", "2")...)
				m := one(t, q)
				var came time.Time
				var wg sync.WaitGroup
				wg.Go(func() {
					if ms, err := waits.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 20 * time.Second}); err != nil || len(ms) != 1 {
						t.Errorf("received %v, %v", ms, err)
					}
					came = time.Now()
				})
				pass(t.Context(), time.Second)
				settled := time.Now()
				c.settle(t, q, m)
				wg.Wait()
				if late := came.Sub(settled); late > 10*time.Millisecond {
					t.Errorf("it came %v late", late)
				}
			})
		})
	}
}
