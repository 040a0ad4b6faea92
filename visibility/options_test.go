package visibility

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/internal/must"
)

func TestOptions(t *testing.T) {
	x := func(context.Context, []int) error { return nil }
	for _, c := range []struct {
		o    Options[int]
		want string // of the error; empty = there is none
	}{
		{Options[int]{}, "Options.Timeout: 0s is not within 10ms and 8760h0m0s"},
		{Options[int]{Timeout: minTimeout - 1}, "Options.Timeout"},
		{Options[int]{Timeout: minTimeout}, ""},
		{Options[int]{Timeout: -timeout}, "Options.Timeout"},
		{Options[int]{Timeout: maxTimeout}, ""},
		{Options[int]{Timeout: maxTimeout + 1}, "Options.Timeout"},
		{Options[int]{Timeout: timeout, Margin: -1}, "Options.Margin: -1ns is not within 0 and half of Timeout, 15s"},
		{Options[int]{Timeout: timeout, Margin: 1}, ""},
		{Options[int]{Timeout: timeout, Margin: timeout / 2}, ""},
		{Options[int]{Timeout: timeout, Margin: timeout/2 + 1}, "Options.Margin"},
		{Options[int]{Timeout: timeout, Interval: -1}, "Options.Interval: -1ns is not within 1ms and half of Timeout less Margin, 12.5s"},
		{Options[int]{Timeout: timeout, Interval: minInterval - 1}, "Options.Interval"},
		{Options[int]{Timeout: timeout, Interval: minInterval}, ""},
		{Options[int]{Timeout: timeout, Interval: (timeout - margin) / 2}, ""},
		{Options[int]{Timeout: timeout, Interval: (timeout-margin)/2 + 1}, "Options.Interval"},
		{Options[int]{Timeout: timeout, CallTimeout: -1}, "Options.CallTimeout: -1ns is negative"},
		{Options[int]{Timeout: timeout, CallTimeout: 5}, "Options.CallTimeout: 5ns is below 1ms; is its unit missing?"},
		{Options[int]{Timeout: timeout, CallTimeout: time.Hour}, ""},
		{Options[int]{Timeout: timeout, MaxBatch: -1}, "Options.MaxBatch: -1 is below 1"},
		{Options[int]{Timeout: timeout, MaxBatch: 1}, ""},
		{Options[int]{Timeout: timeout, MaxCalls: -1}, "Options.MaxCalls: -1 is not within 1 and 16"},
		{Options[int]{Timeout: timeout, MaxCalls: 16}, ""},
		{Options[int]{Timeout: timeout, MaxCalls: 17}, "Options.MaxCalls"},
	} {
		m, err := New(x, c.o)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || (m == nil) != (err != nil) {
			t.Errorf("%+v: got %v, want %q", c.o, err, c.want)
		}
	}
	if _, err := New(nil, Options[int]{Timeout: timeout}); err == nil || !strings.Contains(err.Error(), "Extender is nil") {
		t.Errorf("without an Extender: %v", err)
	}
}

func TestDefaults(t *testing.T) {
	o := Options[int]{Timeout: timeout}.withDefaults()
	if o.Interval != interval || o.Margin != margin || o.CallTimeout != 5*time.Second || o.MaxBatch != 10 || o.MaxCalls != 16 {
		t.Errorf("%+v", o)
	}
	o = Options[int]{Timeout: timeout, Margin: timeout / 2}.withDefaults()
	if o.Interval != timeout/4 || o.check() != nil {
		t.Errorf("with the greatest margin: %+v", o)
	}
	o = Options[int]{Timeout: time.Second}.withDefaults()
	if o.CallTimeout != time.Second {
		t.Errorf("CallTimeout %v above Timeout", o.CallTimeout)
	}
}

// What nobody listens to may happen all the same.
func TestWithoutCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must.Get(New(fails, Options[int]{Timeout: timeout}))
		h := &Held[int]{Deadline: time.Now().Add(timeout)}
		m.Hold(h)
		m.SetTimeout(h, time.Now())
		wait(time.Minute)
		if m.Len() != 0 {
			t.Error("still held")
		}
	})
}
