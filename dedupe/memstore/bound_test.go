package memstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// The oldest done records go first, in the whole store, not in a shard.
func TestEvictsOldestDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 50
		s := newTester(t, &Options{MaxRecords: most})
		var want []string
		for i := range 3 * most {
			key := fmt.Sprintf("k%03d", i)
			s.put(key, dedupe.Done, 0)
			want = append(want, key)
			want = want[max(0, len(want)-most):]
			if s.Len() > most {
				t.Fatalf("the store holds %d records, the bound is %d", s.Len(), most)
			}
			pass(time.Second)
		}
		s.wantKept(want...)
		if s.Evicted() != 2*most {
			t.Errorf("%d records were evicted, want %d", s.Evicted(), 2*most)
		}
	})
}

// Done counts from when it became done, whenever it was claimed.
func TestEvictsByFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTester(t, &Options{MaxRecords: 2})
		_, first := s.claimOne("claimed first")
		pass(time.Second)
		s.put("done first", dedupe.Done, 0)
		pass(time.Second)
		if _, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: name("claimed first"), Token: first, To: dedupe.Done}}); err != nil {
			t.Fatal(err)
		}
		s.put("new", dedupe.Done, 0)
		s.wantKept("claimed first", "new")
	})
}

func TestExpiredGoFirst(t *testing.T) {
	for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released} {
		t.Run(to.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTester(t, &Options{MaxRecords: 3})
				s.put("oldest", dedupe.Done, 0)
				pass(time.Second)
				// Kept for longer, and settled before: its place must not hide the next one's.
				s.put("long", to, 10*retain)
				pass(time.Second)
				s.put("short", to, retain)
				pass(2 * retain)
				s.put("new", dedupe.Done, 0)
				s.wantKept("oldest", "long", "new")
				if s.Evicted() != 0 {
					t.Errorf("%d records count as evicted; one had expired", s.Evicted())
				}
			})
		})
	}
}

func TestNeverEvicted(t *testing.T) {
	for _, status := range []dedupe.Status{dedupe.Claimed, dedupe.Released, dedupe.Failed, dedupe.Parked} {
		t.Run(status.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTester(t, &Options{MaxRecords: 3})
				s.put("a", status, retain)
				s.put("b", status, retain)
				s.put("done", dedupe.Done, retain)
				pass(2 * ttl) // the lease is dead, too
				s.put("c", status, retain)
				s.wantKept("a", "b", "c")
				if c, _ := s.claimOne("d"); !errors.Is(c.Err, dedupe.ErrFull) || c.Outcome != 0 {
					t.Errorf("a claim of the full store was answered %v, %v; want ErrFull", c.Outcome, c.Err)
				}
				s.wantKept("a", "b", "c")
				// Those that are there can go on.
				if c, _ := s.claimOne("a"); c.Err != nil {
					t.Errorf("a claim of a record that is there was answered %v", c.Err)
				}
				if _, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: name("b"), Fence: s.fence("b")}}); err != nil {
					t.Fatal(err)
				}
				if c, _ := s.claimOne("d"); c.Outcome != dedupe.Won {
					t.Errorf("after Forget a claim was answered %v, %v", c.Outcome, c.Err)
				}
			})
		})
	}
}

// An expired record that is claimed again is a claim like any other.
func TestReclaimedIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTester(t, &Options{MaxRecords: 2})
		s.put("a", dedupe.Done, retain)
		pass(2 * retain)
		s.put("a", dedupe.Claimed, 0)
		s.put("b", dedupe.Done, retain)
		s.put("c", dedupe.Done, retain)
		s.wantKept("a", "c")
		checkStructure(t, s.Store)
	})
}

func (t *tester) fence(key string) uint64 {
	t.Helper()
	rs, err := t.Store.Get(t.Context(), []dedupe.Key{name(key)})
	if err != nil || rs[0] == nil {
		t.Fatal(err, rs)
	}
	return rs[0].Fence
}

func TestWarnsOnce(t *testing.T) {
	var out bytes.Buffer
	s := newTester(t, &Options{MaxRecords: 1, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	s.put("a", dedupe.Done, 0)
	if out.Len() > 0 {
		t.Errorf("it was warned of nothing: %s", &out)
	}
	for i := range 5 {
		s.put(fmt.Sprint("b", i), dedupe.Done, 0)
	}
	if n := strings.Count(out.String(), "level=WARN"); n != 1 || !strings.Contains(out.String(), "max_records=1") {
		t.Errorf("there were %d warnings: %s", n, &out)
	}
	if s.Evicted() != 5 {
		t.Errorf("%d records were evicted, want 5", s.Evicted())
	}
}

// Expired records do not wait for the bound.
func TestExpiredAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTester(t, nil)
		for i := range 2000 {
			s.put(fmt.Sprint("a", i), dedupe.Done, retain)
		}
		pass(2 * retain)
		for i := range 2000 {
			s.put(fmt.Sprint("b", i), dedupe.Done, retain)
		}
		if s.Len() > 2400 {
			t.Errorf("the store holds %d records, 2000 of which live", s.Len())
		}
	})
}

// While room is made for a record, another caller may make it: the key is then his, and has one
// record.
func TestKeyTakenWhileRoomIsMade(t *testing.T) {
	var s *tester
	taken := false
	s = newTester(t, &Options{MaxRecords: 2, Logger: slog.New(warned(func() {
		c, _ := s.claimOne("new")
		taken = c.Outcome == dedupe.Won
	}))})
	s.put("a", dedupe.Done, 0)
	s.put("b", dedupe.Done, 0)
	c, _ := s.claimOne("new")
	if !taken || c.Outcome != dedupe.InProgress {
		t.Errorf("the first has won: %v; the second got %v", taken, c.Outcome)
	}
	if n := s.Len(); n != 1 {
		t.Errorf("%d records, want 1", n)
	}
}

// warned is a log that calls f for each line.
type warned func()

func (warned) Enabled(context.Context, slog.Level) bool    { return true }
func (f warned) Handle(context.Context, slog.Record) error { f(); return nil }
func (f warned) WithAttrs([]slog.Attr) slog.Handler        { return f }
func (f warned) WithGroup(string) slog.Handler             { return f }
