package batch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/internal/batch"
)

func TestLinger(t *testing.T) {
	const l = 200 * time.Millisecond
	opts := batch.Options{Max: 3, Flight: 2, Linger: l}
	for name, run := range map[string]func(t *testing.T, q *batch.Queue[int], c *calls){
		"the timer": func(t *testing.T, q *batch.Queue[int], c *calls) {
			q.Add(1)
			wait(l / 2)
			q.Add(2)
			c.want(t, "[]")
			wait(l)
			c.want(t, "[[1 2]]", l)
		},
		"a full batch before it": func(t *testing.T, q *batch.Queue[int], c *calls) {
			q.Add(1, 2)
			wait(l / 2)
			q.Add(3)
			c.want(t, "[[1 2 3]]", l/2)
			// The timer of the first batch is not the second's.
			q.Add(4)
			wait(l)
			c.want(t, "[[1 2 3] [4]]", l/2, l/2+l)
		},
		"what a full batch leaves": func(t *testing.T, q *batch.Queue[int], c *calls) {
			q.Add(1, 2, 3, 4)
			c.want(t, "[[1 2 3]]", 0)
			wait(l)
			c.want(t, "[[1 2 3] [4]]", 0, l)
		},
		"Flush": func(t *testing.T, q *batch.Queue[int], c *calls) {
			q.Add(1)
			q.Flush()
			c.want(t, "[[1]]", 0)
			q.Add(2)
			c.want(t, "[[1]]")
			wait(l)
			c.want(t, "[[1] [2]]", 0, l)
		},
		"SetLinger(0)": func(t *testing.T, q *batch.Queue[int], c *calls) {
			q.Add(1)
			wait(l / 2)
			q.SetLinger(0)
			c.want(t, "[[1]]", l/2)
			q.Add(2)
			c.want(t, "[[1] [2]]", l/2, l/2)
		},
		"SetLinger below 0": func(t *testing.T, q *batch.Queue[int], c *calls) {
			q.Add(1)
			q.SetLinger(-1)
			c.want(t, "[[1]]", 0)
		},
		"SetLinger to more, and to less": func(t *testing.T, q *batch.Queue[int], c *calls) {
			q.SetLinger(time.Hour)
			q.Add(1)
			wait(2 * l)
			q.SetLinger(l)
			wait(l)
			c.want(t, "[[1]]", 3*l)
		},
		"set while entries wait": func(t *testing.T, q *batch.Queue[int], c *calls) {
			c.lasts = l / 2
			q.SetLinger(0)
			q.Add(1)
			synctest.Wait()
			q.Add(2)
			q.SetLinger(l)
			wait(2 * l)
			c.want(t, "[[1] [2]]", 0, l/2+l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := record(0)
				run(t, batch.New(opts, c.call), c)
			})
		})
	}
}

// What comes while a lingering queue's call is in flight lingers too: otherwise one timer would be
// the end of lingering for as long as the queue is in use.
func TestLingerBeginsAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := record(50 * time.Millisecond)
		q := batch.New(batch.Options{Max: 100, Flight: 2, Linger: 200 * time.Millisecond}, c.call)
		for i := range 100 { // for a second
			q.Add(i)
			wait(10 * time.Millisecond)
		}
		wait(time.Second)
		if len(c.batches) != 5 {
			t.Errorf("%d batches, want one in 200 ms: at %v", len(c.batches), c.at)
		}
	})
}

// What was flushed behind a call in flight goes when that returns, and takes along what came since.
func TestFlushBehindACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := record(time.Second)
		q := batch.New(batch.Options{Max: 5, Flight: 2, Linger: time.Hour}, c.call)
		q.Add(1)
		q.Flush()
		synctest.Wait()
		q.Add(2)
		q.Flush()
		q.Add(3)
		wait(2 * time.Second)
		c.want(t, "[[1] [2 3]]", 0, time.Second)
		q.Add(4)
		wait(time.Minute)
		c.want(t, "[[1] [2 3]]")
		q.SetLinger(0)
		c.want(t, "[[1] [2 3] [4]]")
	})
}
