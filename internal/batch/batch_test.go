package batch_test

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/internal/batch"
)

func TestBatchFormsWhileOneIsInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := record(time.Second)
		q := batch.New(batch.Options{Max: 10, Flight: 4}, c.call)
		q.Add(1)
		c.want(t, "[[1]]", 0)
		q.Add(2)
		q.Add(3, 4)
		wait(time.Second - 1)
		c.want(t, "[[1]]")
		wait(1)
		c.want(t, "[[1] [2 3 4]]", 0, time.Second)
		wait(time.Second)
		c.want(t, "[[1] [2 3 4]]")
		q.Add(5) // an idle queue waits for nothing
		c.want(t, "[[1] [2 3 4] [5]]", 0, time.Second, 2*time.Second)
	})
}

func TestFullBatchGoesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := record(time.Second)
		q := batch.New(batch.Options{Max: 3, Flight: 3}, c.call)
		q.Add(1)
		synctest.Wait()
		q.Add(2, 3)
		c.want(t, "[[1]]")
		q.Add(4)
		c.want(t, "[[1] [2 3 4]]", 0, 0)
		q.Add(5, 6, 7, 8)
		c.want(t, "[[1] [2 3 4] [5 6 7]]", 0, 0, 0)
		wait(time.Second) // 8 was left, and goes when the last call has ended
		c.want(t, "[[1] [2 3 4] [5 6 7] [8]]", 0, 0, 0, time.Second)
	})
}

// What does not fill a batch waits while any call is in flight, and not only for the one before it.
func TestPartBatchWaitsForTheLastCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := record(3 * time.Second)
		q := batch.New(batch.Options{Max: 2, Flight: 2}, c.call)
		q.Add(1)
		synctest.Wait()
		c.lasts = time.Second
		q.Add(2, 3, 4)
		wait(time.Minute)
		c.want(t, "[[1] [2 3] [4]]", 0, 0, 3*time.Second)
	})
}

func TestFlightBoundsTheCalls(t *testing.T) {
	for _, kept := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			c := record(time.Second)
			q := batch.New(batch.Options{Max: 2, Flight: 3}, c.call)
			q.Keep(kept)
			defer q.Keep(false)
			for range 2 { // the second time the goroutines are there, if they are kept
				q.Add(numbers(0, 20)...)
				wait(time.Minute)
				if c.most != 3 {
					t.Errorf("kept %v: %d calls at once, want 3", kept, c.most)
				}
			}
			if len(c.batches) != 20 || c.at[9] != 3*time.Second {
				t.Errorf("kept %v: %d batches, the tenth at %v", kept, len(c.batches), c.at[9])
			}
		})
	}
}

func TestOrderIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := record(time.Millisecond)
		q := batch.New(batch.Options{Max: 7, Flight: 1}, c.call)
		next := 0
		for i := range 200 {
			q.Add(numbers(next, i%5)...)
			next += i % 5
			if i%3 == 0 {
				wait(time.Millisecond / 3)
			}
		}
		wait(time.Second)
		if got := slices.Concat(c.batches...); !slices.Equal(got, numbers(0, next)) {
			t.Errorf("not every entry once, in order: %v", got)
		}
	})
}

func TestOptionsHaveALeast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := record(time.Second)
		q := batch.New(batch.Options{Max: -1, Flight: 0}, c.call)
		q.Add(1, 2)
		wait(time.Minute)
		c.want(t, "[[1] [2]]", 0, time.Second)
	})
}

func TestAddOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := record(0)
		q := batch.New(batch.Options{Max: 2, Linger: time.Second}, c.call)
		q.Add()
		wait(time.Second / 2)
		q.Add(1)
		wait(time.Minute)
		c.want(t, "[[1]]", 3*time.Second/2)
		q.Add()
		q.Flush()
		wait(time.Minute)
		c.want(t, "[[1]]")
	})
}

func TestKeepKeepsGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := goroutines()
		c := record(time.Second)
		q := batch.New(batch.Options{Max: 1, Flight: 4}, c.call)
		want := func(n int) {
			t.Helper()
			synctest.Wait()
			if got := goroutines() - before; got != n {
				t.Fatalf("%d goroutines, want %d", got, n)
			}
		}
		q.Add(1, 2, 3, 4)
		want(4)
		wait(2 * time.Second)
		want(0)
		q.Keep(true)
		q.Keep(true)
		q.Add(1, 2, 3)
		wait(2 * time.Second)
		want(3)
		q.Add(1, 2, 3, 4)
		want(4)
		wait(2 * time.Second)
		want(4)
		q.Add(1)
		q.Keep(false) // while one is in its call
		want(1)
		wait(2 * time.Second)
		want(0)
		if len(c.batches) != 12 {
			t.Errorf("%d batches of one, want 12", len(c.batches))
		}
		// A bubble with a goroutine left would not end.
	})
}

func TestKeepOffLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := record(0)
		q := batch.New(batch.Options{Max: 4, Flight: 4}, c.call)
		for i := range 100 {
			q.Keep(true)
			q.Add(i)
			q.Keep(false)
		}
		synctest.Wait()
		if got := slices.Sorted(slices.Values(slices.Concat(c.batches...))); !slices.Equal(got, numbers(0, 100)) {
			t.Errorf("not every entry once: %v", got)
		}
	})
}

func TestAddFromWithinACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := record(0)
		var q *batch.Queue[int]
		q = batch.New(batch.Options{Max: 2}, func(b []int) {
			c.call(b)
			for _, n := range b {
				if n < 10 {
					q.Add(n + 10)
				}
			}
		})
		q.Add(1, 2, 3)
		c.want(t, "[[1 2] [3 11] [12 13]]")
	})
}

// A call that ends its goroutine, as a failed test's does, costs its own batch and no more.
func TestCallThatEndsItsGoroutine(t *testing.T) {
	for _, o := range []batch.Options{
		{Max: 2, Flight: 1},
		{Max: 2, Flight: 1, Linger: time.Second},
		{Max: 2, Flight: 3},
	} {
		for _, kept := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				c := record(0)
				q := batch.New(o, func(b []int) {
					c.call(b)
					runtime.Goexit()
				})
				q.Keep(kept)
				q.Add(1, 2, 3)
				wait(time.Minute)
				q.Add(4, 5, 6, 7)
				wait(time.Minute)
				if got := slices.Sorted(slices.Values(slices.Concat(c.batches...))); !slices.Equal(got, numbers(1, 7)) {
					t.Errorf("%+v: got %v", o, got)
				}
				if c.at[0] != 0 || c.at[1] != o.Linger {
					t.Errorf("%+v: batches at %v", o, c.at)
				}
				q.Keep(false)
			})
		}
	}
}

// The slice is the queue's again when the call returns, and holds nothing alive then.
func TestNothingIsKeptAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var last []*int
		q := batch.New(batch.Options{Max: 3, Flight: 1}, func(b []*int) { last = b })
		q.Keep(true)
		defer q.Keep(false)
		q.Add(new(int), new(int), new(int))
		synctest.Wait()
		for i, p := range last {
			if p != nil {
				t.Errorf("entry %d of the batch is still there", i)
			}
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	for _, o := range []batch.Options{
		{Max: 1, Flight: 1},
		{Max: 10, Flight: 1},
		{Max: 10, Flight: 4},
		{Max: 10, Flight: 4, Linger: 100 * time.Microsecond},
	} {
		const adders, each = 8, 500
		var seen [adders * each]atomic.Int32
		var left sync.WaitGroup
		left.Add(adders * each)
		var now atomic.Int32
		q := batch.New(o, func(b []int) {
			if len(b) == 0 || len(b) > o.Max {
				t.Errorf("%+v: a batch of %d", o, len(b))
			}
			if n := now.Add(1); int(n) > o.Flight {
				t.Errorf("%+v: %d calls at once", o, n)
			}
			for _, i := range b {
				seen[i].Add(1)
				left.Done()
			}
			now.Add(-1)
		})
		var adding sync.WaitGroup
		for a := range adders {
			adding.Go(func() {
				for i := range each {
					switch {
					case i%50 == a:
						q.Keep(a%2 == 0)
					case i%70 == a && o.Linger == 0:
						q.SetLinger(time.Duration(i%2) * 100 * time.Microsecond)
					case i%30 == a:
						q.Flush()
					}
					q.Add(a*each + i)
				}
			})
		}
		adding.Wait()
		q.SetLinger(0)
		left.Wait()
		q.Keep(false)
		for i := range seen {
			if n := seen[i].Load(); n != 1 {
				t.Errorf("%+v: entry %d came %d times", o, i, n)
			}
		}
	}
}
