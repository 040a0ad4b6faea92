package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/onceqtest"
)

// The program: ann has all parts, and bob and cyd none.
func TestProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgency()
		a.soldOut["bob"], a.mute["cyd"] = "car", "hotel"
		var out strings.Builder
		scene(t.Context(), &out, a)
		a.report(&out)
		for part, want := range map[string][2]int{"flight": {3, 2}, "hotel": {3, 2}, "car": {1, 0}} {
			require.Equal(t, want, [2]int{a.made[part], a.dropped[part]}, "%s\n%s", part, &out)
		}
		require.Contains(t, out.String(), "class undone: nothing is booked: car: sold out")
		require.Contains(t, out.String(), "bob  attempt 1: failed")
		require.Contains(t, out.String(), "cyd  attempt 3: failed")
	})
}

const (
	opBook   = onceqtest.Op("book")
	opCancel = onceqtest.Op("cancel")
)

// called makes the agency's calls those of the rig's process, so that faults befall them, and lets
// some of them fail.
type called struct {
	a      *agency
	rig    *onceqtest.Rig
	fails  func(part string, n int) error // of the n-th call of Book for the part; before the agency hears of it
	asked  map[string]int                 // calls of Book, by part
	undone map[string]int                 // calls of Cancel, by part
}

func (c *called) Book(ctx context.Context, key, part string) (reference string, err error) {
	err = c.rig.Process().Call(ctx, opBook, func(ctx context.Context) (err error) {
		c.asked[part]++
		if err := c.fails(part, c.asked[part]); err != nil {
			return err
		}
		reference, err = c.a.Book(ctx, key, part)
		return err
	})
	return reference, err
}

func (c *called) Cancel(ctx context.Context, key string) error {
	return c.rig.Process().Call(ctx, opCancel, func(ctx context.Context) error {
		c.undone[c.a.part[key]]++
		return c.a.Cancel(ctx, key)
	})
}

// A strike is a crash at a call of one of the deliveries, and before or after it.
type strike struct {
	delivery int
	fault    onceqtest.Fault
}

// journey is a trip that has ended, and how.
type journey struct {
	*called
	last     onceqtest.Result
	calls    []map[onceqtest.Op]int // of each delivery
	replayed int
}

// travel delivers a trip until it has ended. It replays the letter of one whose last attempt has
// crashed.
func travel(t *testing.T, a *agency, fails func(part string, n int) error, s *strike) *journey {
	t.Helper()
	c := &called{a: a, fails: fails, asked: map[string]int{}, undone: map[string]int{}}
	c.rig = onceqtest.New(t, onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc((&trips{c}).handle), Defaults: onceq.JobOptions{MaxAttempts: maxAttempts},
	}, nil)
	letters, err := dlq.New(c.rig.DeadLetters, nil)
	require.NoError(t, err)
	m := onceq.Message("", "ann", nil)
	c.rig.Send(m)
	a.serve("ann")
	r := &journey{called: c}
	for n := range 20 {
		if s != nil && s.delivery == n {
			c.rig.At(s.fault)
		}
		r.last = c.rig.Deliver()
		calls := map[onceqtest.Op]int{}
		for _, op := range []onceqtest.Op{opBook, opCancel, onceqtest.Renew, onceqtest.Settle, onceqtest.Letter} {
			calls[op] = c.rig.Process().Calls(op)
		}
		r.calls = append(r.calls, calls)
		c.rig.Advance(time.Hour)
		switch {
		case r.last.Crashed || r.last.Outcome == onceq.OutcomeRetried || r.last.Outcome == onceq.OutcomePostponed:
		case r.last.ErrClass == onceq.ClassAttempts:
			report, err := letters.Replay(t.Context(), dlq.ReplayOptions{To: c.rig.Queue})
			require.NoError(t, err)
			require.Equal(t, 1, report.Replayed)
			r.replayed++
		default:
			return r
		}
	}
	t.Fatal("the trip does not end")
	return nil
}

// wantWhole wants all parts, or none: whatever was booked is cancelled, once.
func (r *journey) wantWhole(t *testing.T) {
	t.Helper()
	whole := r.last.Stored.Status == dedupe.Done
	if !whole {
		require.Equal(t, "undone", r.last.Stored.ErrClass)
	}
	for _, part := range parts {
		made, dropped := r.a.made[part], r.a.dropped[part]
		switch {
		case whole:
			require.Equal(t, [2]int{1, 0}, [2]int{made, dropped}, part)
		default:
			require.LessOrEqual(t, made, 1, part)
			require.Equal(t, made, dropped, part)
		}
	}
}

// troubles are what goes wrong with a part.
var troubles = map[string]func(a *agency, part string) func(string, int) error{
	"sold out": func(a *agency, part string) func(string, int) error {
		a.soldOut["ann"] = part
		return noTrouble
	},
	"sold out, and not the next time": func(_ *agency, part string) func(string, int) error {
		return func(p string, n int) error {
			if p == part && n == 1 {
				return errSoldOut
			}
			return nil
		}
	},
	"down": func(_ *agency, part string) func(string, int) error {
		return func(p string, _ int) error {
			if p == part {
				return errors.New("down")
			}
			return nil
		}
	},
	"down, and busy in the last attempt": func(_ *agency, part string) func(string, int) error {
		return func(p string, n int) error {
			switch {
			case p != part || n > maxAttempts+2:
				return nil
			case n < maxAttempts:
				return errors.New("down")
			}
			return errBusy
		}
	},
	"without an answer": func(a *agency, part string) func(string, int) error {
		a.mute["ann"] = part
		return noTrouble
	},
}

func noTrouble(string, int) error { return nil }

// Each trouble at each part, and a crash before and after each call of each delivery: booking,
// cancelling, saving, settling, the letter. All parts are booked, or what was booked is cancelled.
// No step that was saved runs again.
func TestCrashInEachGapOfEachTrouble(t *testing.T) {
	played, replayed := 0, 0
	play := func(t *testing.T, trouble func(*agency, string) func(string, int) error, part string) {
		once := func(t *testing.T, s *strike) (r *journey) {
			synctest.Test(t, func(t *testing.T) {
				a, fails := newAgency(), noTrouble
				if trouble != nil {
					fails = trouble(a, part)
				}
				r = travel(t, a, fails, s)
				r.wantWhole(t)
			})
			played++
			replayed += r.replayed
			return r
		}
		quiet := once(t, nil)
		for n, calls := range quiet.calls {
			for op, most := range calls {
				for i := range most {
					for _, kind := range []onceqtest.FaultKind{onceqtest.CrashBefore, onceqtest.CrashAfter} {
						s := &strike{n, onceqtest.Fault{Op: op, N: i + 1, Kind: kind}}
						t.Run(fmt.Sprintf("delivery %d, %v", n+1, s.fault), func(t *testing.T) {
							r := once(t, s)
							for _, part := range parts {
								require.LessOrEqual(t, r.undone[part], quiet.undone[part]+1, part)
							}
						})
					}
				}
			}
		}
	}
	t.Run("no trouble", func(t *testing.T) { play(t, nil, "") })
	for name, trouble := range troubles {
		for _, part := range parts {
			t.Run(name+"/"+part, func(t *testing.T) { play(t, trouble, part) })
		}
	}
	t.Logf("%d trips, %d replays", played, replayed)
	require.Positive(t, replayed, "no crash has hit a last attempt")
}

// Who is told to come back in the last attempt has not failed, and loses nothing.
func TestBusyInTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgency()
		r := travel(t, a, troubles["down, and busy in the last attempt"](a, "car"), nil)
		require.Equal(t, onceq.OutcomeDone, r.last.Outcome)
		require.Equal(t, maxAttempts, r.last.Attempt)
		require.Equal(t, map[string]int{"flight": 1, "hotel": 1, "car": maxAttempts + 3}, r.asked)
	})
}

// What was saved is not done again: each booking and each cancellation is asked for once, though
// the hotel fails twice and the worker dies amid the undoing.
func TestSavedStepsDoNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgency()
		a.mute["ann"] = "hotel"
		r := travel(t, a, noTrouble, nil)
		require.Equal(t, map[string]int{"flight": 1, "hotel": maxAttempts}, r.asked)
		require.Equal(t, map[string]int{"": 1, "hotel": 1, "flight": 1}, r.undone, "the car was never booked")
		require.Equal(t, "undone", r.last.ErrClass)
		require.Len(t, r.last.Letters, 1)

		// Whoever replays the letter books nothing: the steps say that all is cancelled.
		letters, err := dlq.New(r.rig.DeadLetters, nil)
		require.NoError(t, err)
		_, err = letters.Replay(t.Context(), dlq.ReplayOptions{To: r.rig.Queue})
		require.NoError(t, err)
		require.Equal(t, "undone", r.rig.Deliver().ErrClass)
		require.Equal(t, map[string]int{"flight": 1, "hotel": maxAttempts}, r.asked)
	})
}
