package dlq

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
)

// beaten is a dead-letter queue of which extensions are all that matters.
type beaten struct {
	broker.Receiver
	total   time.Duration
	extends func(h broker.Hold) error
}

func (b *beaten) Limits() broker.Limits {
	return broker.Limits{ReceiveBatch: 10, SettleBatch: 10, Extends: true, MinHold: time.Second, MaxHold: 12 * time.Hour, MaxTotal: b.total}
}

func (b *beaten) Extend(_ context.Context, hs []broker.Hold) error { return b.extends(hs[0]) }

func newBeaten(t *testing.T, total time.Duration, extends func(h broker.Hold) error) *keeper {
	t.Helper()
	q, err := New(&beaten{total: total, extends: extends}, &Options{Visibility: 30 * time.Second, CallTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return newKeeper(t.Context(), q)
}

// extensions are what was asked for, and when the last one was. The manager's goroutines note them.
type extensions struct {
	mu   sync.Mutex
	fors []time.Duration
	last time.Time
}

func (e *extensions) note(h broker.Hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fors, e.last = append(e.fors, h.For), time.Now()
}

func (e *extensions) so() (fors []time.Duration, last time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.fors), e.last
}

// A letter that could not be held has come again. The answer to a beat for its old receipt, which
// comes then, says nothing of the new one: the letter is held on.
func TestLetterThatCameAgainIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e extensions
		k := newBeaten(t, 0, func(h broker.Hold) error {
			if h.Receipt == "old" {
				<-time.After(4 * time.Second)
				return broker.ErrReceiptExpired
			}
			e.note(h)
			return nil
		})
		k.keep("a", &broker.Message{Receipt: "old", Deadline: time.Now().Add(30 * time.Second)}, time.Now())
		<-time.After(12 * time.Second) // its beat is in flight
		k.keep("a", &broker.Message{Receipt: "new", Deadline: time.Now().Add(30 * time.Second)}, time.Now())
		<-time.After(5 * time.Minute)
		if _, last := e.so(); time.Since(last) > 20*time.Second {
			t.Errorf("its last extension was at %v, it is %v", last, time.Now())
		}
		k.drop("a")
	})
}

// The extension that the broker's limit cuts short is the last one, so no beat follows it.
func TestLastExtensionOfALetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e extensions
		k := newBeaten(t, 50*time.Second, func(h broker.Hold) error {
			e.note(h)
			return nil
		})
		k.keep("a", &broker.Message{Receipt: "now", Deadline: time.Now().Add(30 * time.Second)}, time.Now())
		for range 60 {
			if k.leases.Len() == 0 {
				break
			}
			<-time.After(time.Second)
		}
		fors, last := e.so()
		if at := slices.IndexFunc(fors, func(d time.Duration) bool { return d < 30*time.Second }); at < 0 || at != len(fors)-1 {
			t.Errorf("extended for %v", fors)
		}
		if lasts := time.Since(last); lasts > 3*time.Second {
			t.Errorf("the manager kept it for %v after its last extension", lasts)
		}
		k.drop("a")
	})
}
