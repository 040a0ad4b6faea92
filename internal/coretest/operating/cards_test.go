package operating

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// classed is an error of a class that a program has made.
type classed string

func (c classed) Error() string      { return "it failed" }
func (c classed) ErrorClass() string { return string(c) }

// TestCardErrorClasses: a card counts the errors of the last minute by class, each once. A program
// that makes a class of each error fills neither the memory nor the card: what is beyond the first
// sixteen is counted as other.
func TestCardErrorClasses(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		rig.Takes(time.Millisecond)
		switch key := j.Key().Key; key {
		case "fine":
			return nil
		case "plain":
			return errors.New("boom")
		default:
			return onceq.Permanent(classed(key))
		}
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Start()
		rig.Pass(time.Second)
		r.Send("fine", "timeout-a")
		rig.Pass(30 * time.Second)
		card := func() *control.WorkerStatus {
			t.Helper()
			s := seatsOf(r)
			if len(s) != 1 || s[0].Status == nil {
				t.Fatalf("the seats are %+v", s)
			}
			return s[0].Status
		}
		c := card()
		if c.Minute.Errors != 1 || !maps.Equal(c.MinuteErrors, map[string]uint64{"timeout-a": 1}) {
			t.Errorf("the card says %+v, %v", c.Minute, c.MinuteErrors)
		}
		if c.MaxAttempts != 7 || c.Timeout != 50*time.Second || c.DrainTimeout != 11*time.Second || c.Timeouts != nil {
			t.Errorf("the card says %d, %v, %v, %v", c.MaxAttempts, c.Timeout, c.DrainTimeout, c.Timeouts)
		}
		rig.Pass(2 * time.Minute)
		if c := card(); c.Minute.Errors != 0 || len(c.MinuteErrors) != 0 {
			t.Errorf("two minutes later the card says %+v, %v", c.Minute, c.MinuteErrors)
		}
		for i := range 30 {
			r.Send(fmt.Sprint("class-", i))
		}
		rig.Pass(40 * time.Second)
		c = card()
		sum := uint64(0)
		for _, n := range c.MinuteErrors {
			sum += n
		}
		if c.Minute.Errors != 30 || sum != 30 || len(c.MinuteErrors) > 17 || c.MinuteErrors["other"] < 15 {
			t.Errorf("the card says %+v, and %d errors by class: %v", c.Minute, sum, c.MinuteErrors)
		}
	}, rig.Steered, rig.With(func(c *rig.Setup) {
		c.Defaults.MaxAttempts, c.Defaults.Timeout, c.DrainTimeout = 7, 50*time.Second, 11*time.Second
	}))
}

// TestCardScopes: the card says where the keys of those types are whose names do not tell it.
func TestCardScopes(t *testing.T) {
	h := new(onceq.Mux)
	nothing := onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil })
	h.On("charge", nothing, nil)
	h.On("mail", nothing, &onceq.JobOptions{Scope: "mails"})
	h.On("book", nothing, &onceq.JobOptions{Was: onceq.OneHandler})
	rig.Bubble(t, nothing, func(r *rig.Rig) {
		r.Start()
		rig.Pass(time.Second)
		s := seatsOf(r)
		if len(s) != 1 || s[0].Status == nil {
			t.Fatalf("the seats are %+v", s)
		}
		c := s[0].Status
		if want := (map[string]string{"mail": "mails", "book": c.Scope}); !maps.Equal(c.Scopes, want) {
			t.Errorf("the card says %v, want %v", c.Scopes, want)
		}
	}, rig.Steered, rig.With(func(c *rig.Setup) { c.Handler = h }))
}

// TestHeadWaitOnCard: a card says how long the last new job has waited, and forgets it: what waited
// an hour ago says nothing of what waits now.
func TestHeadWaitOnCard(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(40 * time.Second); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		rig.Pass(90 * time.Second)
		r.Start()
		rig.Pass(30 * time.Second)
		if w := seatsOf(r)[0].Status.HeadWait; w < 90*time.Second || w > 100*time.Second {
			t.Errorf("it has waited for %v", w)
		}
		rig.Pass(4 * time.Minute)
		if w := seatsOf(r)[0].Status.HeadWait; w < 90*time.Second {
			t.Errorf("within five minutes the card says %v", w)
		}
		rig.Pass(time.Minute)
		if w := seatsOf(r)[0].Status.HeadWait; w != 0 {
			t.Errorf("minutes later the card says %v", w)
		}
	}, rig.Steered)
}
