package batch_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// calls records what a queue hands over. Each call lasts for as long as the test says.
type calls struct {
	lasts time.Duration

	mu      sync.Mutex
	batches [][]int
	at      []time.Duration // since start
	start   time.Time
	now     int
	most    int // calls at once
}

func record(lasts time.Duration) *calls { return &calls{lasts: lasts, start: time.Now()} }

func (c *calls) call(b []int) {
	c.mu.Lock()
	c.batches = append(c.batches, slices.Clone(b))
	c.at = append(c.at, time.Since(c.start))
	c.now++
	c.most = max(c.most, c.now)
	lasts := c.lasts
	c.mu.Unlock()
	if lasts > 0 {
		<-time.After(lasts)
	}
	c.mu.Lock()
	c.now--
	c.mu.Unlock()
}

// want compares the batches so far, and when they went.
func (c *calls) want(t *testing.T, batches string, at ...time.Duration) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := fmt.Sprint(c.batches); got != batches {
		t.Fatalf("batches %v, want %v", got, batches)
	}
	if len(at) > 0 && !slices.Equal(c.at, at) {
		t.Fatalf("batches at %v, want %v", c.at, at)
	}
}

func numbers(from, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = from + i
	}
	return s
}

// bubble runs a test in virtual time, and lets the calls end that it has left in flight.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer wait(24 * time.Hour)
		test(t)
	})
}

// wait lets virtual time pass, and what is due then be done.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// goroutines counts those of the caller's bubble.
func goroutines() int {
	buf := make([]byte, 1<<20)
	all := string(buf[:runtime.Stack(buf, true)])
	// The first line is the caller's own: goroutine 7 [running, synctest bubble 3]:
	own, _, _ := strings.Cut(all, "]:\n")
	return strings.Count(all, own[strings.Index(own, ", synctest"):]+"]:\n")
}
