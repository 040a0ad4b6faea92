package sqlitewriter

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// lock takes the write lock, and writes nothing.
const lock = "UPDATE notes SET line = line WHERE false"

// insert is a transaction of the user's that writes a line and takes a while.
func insert(line string, takes time.Duration) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		<-time.After(takes)
		_, err := tx.Exec("INSERT INTO notes (line) VALUES (?)", line)
		return err
	}
}

// TestTurns: the user's transactions and the writer's calls wait for each other in one queue, and
// none of them polls for the lock. While turns keep coming, a call waits no longer than a stint and
// one of them.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := w.Turn(t.Context(), lock, insert("t", 15*time.Millisecond)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		begun := time.Now()
		wg.Go(func() {
			if err := w.Do(t.Context(), note("call")); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if took := time.Since(begun); took > 400*time.Millisecond {
			t.Errorf("20 turns of 15 ms took %v", took)
		}
		got := lines(t, w)
		if before, _, ok := strings.Cut(got, "call"); !ok || strings.Count(before, "t") > 4 || strings.Count(got, "t") != 20 {
			t.Errorf("the order is %q, want the call behind few of the turns", got)
		}
	})
}

// TestTurnWaits: a turn waits for those who write elsewhere up to the busy time, and no longer,
// whatever the pool's own busy timeout is. Then nothing was begun, and the pool has its settings.
func TestTurnWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t, "&_busy_timeout=7")
		other, err := w.DB().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		err = w.Turn(t.Context(), lock, func(*sql.Tx) error { t.Error("f has run"); return nil })
		if took := time.Since(begun); !errors.Is(err, ErrLocked) || took < time.Second || took > 1100*time.Millisecond {
			t.Errorf("answered %v after %v", err, took)
		}
		go func() {
			<-time.After(300 * time.Millisecond)
			other.Rollback()
		}()
		begun = time.Now()
		if err := w.Turn(t.Context(), lock, insert("late", 0)); err != nil || time.Since(begun) > 310*time.Millisecond {
			t.Errorf("answered %v after %v, want soon after the others have ended", err, time.Since(begun))
		}
		if got := lines(t, w); got != "late" {
			t.Errorf("the file has %q", got)
		}
		var conns []*sql.Conn
		for range 4 {
			conn, err := w.DB().Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
			var busy int
			if err := conn.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&busy); err != nil || busy != 7 {
				t.Errorf("a connection of the pool waits %d ms, %v", busy, err)
			}
		}
		for _, conn := range conns {
			conn.Close()
		}
	})
}

// TestTurnHasTheLock: from its beginning nobody else writes, although the pool begins its
// transactions DEFERRED.
func TestTurnHasTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t, "&_txlock=deferred")
		err := w.Turn(t.Context(), lock, func(*sql.Tx) error {
			if _, err := w.DB().ExecContext(t.Context(), "INSERT INTO notes (line) VALUES ('other')"); !IsBusy(err) {
				t.Errorf("another connection wrote beside the turn: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestTurnFails: an error and a panic of f undo all, and the next one has its turn.
func TestTurnFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		boom := errors.New("boom")
		err := w.Turn(t.Context(), lock, func(tx *sql.Tx) error {
			return errors.Join(insert("failed", 0)(tx), boom)
		})
		if !errors.Is(err, boom) {
			t.Errorf("answered %v", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = w.Turn(t.Context(), lock, func(tx *sql.Tx) error {
				if err := insert("panicked", 0)(tx); err != nil {
					t.Error(err)
				}
				panic(boom)
			})
		}()
		ctx, cancel := context.WithCancel(t.Context())
		err = w.Turn(ctx, lock, func(tx *sql.Tx) error {
			defer cancel()
			return insert("cancelled", 0)(tx)
		})
		if failed := (*CommitError)(nil); !errors.As(err, &failed) || !errors.Is(err, sql.ErrTxDone) && !failed.RolledBack() {
			t.Errorf("a context that has ended before COMMIT: %v", err)
		}
		if err := w.Turn(ctx, lock, insert("never", 0)); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that had ended before: %v", err)
		}
		if err := errors.Join(w.Turn(t.Context(), lock, insert("turn", 0)), w.Do(t.Context(), note("call"))); err != nil {
			t.Error(err)
		}
		if got := lines(t, w); got != "turn call" {
			t.Errorf("the file has %q", got)
		}
	})
}

// TestTurnWithdrawn: who waits no longer leaves the queue, and holds up nobody. Close answers those
// who wait.
func TestTurnWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		var wg sync.WaitGroup
		wg.Go(func() { _ = w.Turn(t.Context(), lock, insert("long", 3*time.Second)) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := w.Turn(ctx, lock, insert("never", 0)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("answered %v", err)
		}
		begun := time.Now()
		if err := w.Turn(t.Context(), lock, insert("never", 0)); !errors.Is(err, ErrLocked) || time.Since(begun) != time.Second {
			t.Errorf("answered %v after %v", err, time.Since(begun))
		}
		wg.Go(func() {
			if err := w.Turn(t.Context(), lock, insert("never", 0)); !errors.Is(err, ErrClosed) {
				t.Errorf("a turn that waited for a writer that was closed: %v", err)
			}
		})
		synctest.Wait()
		w.Close()
		wg.Wait()
		if err := w.Turn(t.Context(), lock, insert("never", 0)); !errors.Is(err, ErrClosed) {
			t.Errorf("a turn of a closed writer: %v", err)
		}
		if got := lines(t, w); got != "long" {
			t.Errorf("the file has %q", got)
		}
	})
}

// TestNoConnection: a turn waits for a connection of the pool no longer than for the lock.
func TestNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.DB().SetMaxOpenConns(2)
		for range 2 {
			conn, err := w.DB().Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		begun := time.Now()
		if err := w.Turn(t.Context(), lock, insert("never", 0)); !errors.Is(err, ErrNoConnection) || time.Since(begun) != time.Second {
			t.Errorf("answered %v after %v", err, time.Since(begun))
		}
	})
}

// TestPauses: how often a busy writer leaves the file to others, and for how long, by the time
// since one of them came. A rare pause begins where a frequent one does.
func TestPauses(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ since, every, lasts time.Duration }{
		{0, 125 * time.Millisecond, 26 * time.Millisecond},
		{999 * time.Millisecond, 125 * time.Millisecond, 26 * time.Millisecond},
		{time.Second, 250 * time.Millisecond, 50 * time.Millisecond},
		{3 * time.Second, 500 * time.Millisecond, 80 * time.Millisecond},
		{7 * time.Second, time.Second, 80 * time.Millisecond},
		{8 * time.Second, 2 * time.Second, 80 * time.Millisecond},
		{time.Hour, 2 * time.Second, 80 * time.Millisecond},
		{-time.Hour, 125 * time.Millisecond, 26 * time.Millisecond}, // the clock was set
	} {
		o := others{seen: now.Add(-c.since)}
		if every, lasts := o.rhythm(now); every != c.every || lasts != c.lasts {
			t.Errorf("%v after one came: %v each %v, want %v each %v", c.since, lasts, every, c.lasts, c.every)
		}
	}
	if every, lasts := new(others).rhythm(now); every != 2*time.Second || lasts != 80*time.Millisecond {
		t.Errorf("where nobody came: %v each %v", lasts, every)
	}
}

// TestRest: a pause ends soon after the others have written, comes once in its time, and is left
// out by a writer that was idle.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var commits atomic.Int64
		version := func() (int64, bool) { return commits.Load(), true }
		o := new(others)
		rested := func() time.Duration {
			begun := time.Now()
			o.rest(version)
			return time.Since(begun)
		}
		at := func(d time.Duration) {
			<-time.After(time.Until(time.Now().Truncate(2 * time.Second).Add(2*time.Second + d)))
		}
		at(10 * time.Millisecond)
		if d := rested(); d != 70*time.Millisecond {
			t.Errorf("nobody came: %v, want until the end of the pause", d)
		}
		if d := rested(); d != breather {
			t.Errorf("a second time: %v", d)
		}
		at(10 * time.Millisecond)
		go func() {
			for range 3 {
				<-time.After(2500 * time.Microsecond)
				commits.Add(1)
			}
		}()
		if d := rested(); d < 12*time.Millisecond || d > 14*time.Millisecond {
			t.Errorf("others came for 7.5 ms: %v", d)
		}
		<-time.After(time.Until(time.Now().Truncate(mostOften).Add(mostOften)))
		if d := rested(); d != shortPause {
			t.Errorf("the next pause: %v, want %v", d, shortPause)
		}
		at(400 * time.Millisecond)
		if d := rested(); d != breather {
			t.Errorf("between two pauses: %v", d)
		}
		<-time.After(time.Hour)
		at(0)
		o.idled = time.Second
		if d := rested(); d != breather {
			t.Errorf("after an idle second: %v", d)
		}
		at(0)
		if d := rested(); d != longPause {
			t.Errorf("afterwards: %v", d)
		}
	})
}
