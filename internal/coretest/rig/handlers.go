package rig

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
)

// Never is a handler that must not run.
func Never(t *testing.T) onceq.HandlerFunc {
	return func(_ context.Context, j *onceq.Job) error {
		t.Errorf("the handler of %q ran", j.Message.Body)
		return nil
	}
}

const HardEnd = onceq.DefaultDrainTimeout + onceq.DefaultSettleTimeout

// Ends stops the worker, and checks how long that took.
func (r *Rig) Ends(least, most time.Duration) error {
	r.Helper()
	begin := time.Now()
	err := r.Stop()
	if took := time.Since(begin); took < least || took > most {
		r.Errorf("the drain took %v, want %v to %v", took, least, most)
	}
	return err
}

// Diary notes what ran, in order.
type Diary struct {
	mu  sync.Mutex
	Ran []string
	now map[string]int // handlers at work, by group
}

// Write notes the run, and complains when two of a group run at once.
func (d *Diary) Write(t *testing.T, j *onceq.Job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil {
		d.now = make(map[string]int)
	}
	g := j.Message.Group
	if d.now[g]++; d.now[g] > 1 && g != "" {
		t.Errorf("two of group %q run at once", g)
	}
	d.Ran = append(d.Ran, string(j.Message.Body))
}

func (d *Diary) Left(j *onceq.Job) {
	d.mu.Lock()
	d.now[j.Message.Group]--
	d.mu.Unlock()
}

func (d *Diary) Keys(group string) (ks []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.Ran {
		if strings.HasPrefix(k, group) {
			ks = append(ks, k)
		}
	}
	return ks
}

var Failing = Returns(onceq.Permanent(ErrBoom))

func Each(change func(c *dedupe.Claim)) func([]dedupe.ClaimRequest, []dedupe.Claim) []dedupe.Claim {
	return func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
		for i := range cs {
			change(&cs[i])
		}
		return cs
	}
}

// Down is a handler that fails for good until it is mended, and notes the bodies that it ran to
// their end.
type Down struct {
	Mended bool

	mu  sync.Mutex
	Ran []string
}

func (d *Down) Handle(_ context.Context, j *onceq.Job) error {
	if !d.Mended {
		return onceq.Permanent(ErrBoom)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Ran = append(d.Ran, string(j.Message.Body))
	return nil
}

func Returns(err error) onceq.HandlerFunc {
	return func(context.Context, *onceq.Job) error { return err }
}

// WhenCut waits for the end of its context, and then answers err.
func WhenCut(err error) onceq.HandlerFunc {
	return func(ctx context.Context, _ *onceq.Job) error {
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, onceq.ErrDraining) {
			return fmt.Errorf("the cause is %w", cause)
		}
		return err
	}
}
