package jobs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

type parcel struct {
	Number string
	Grams  int
	Odd    any `json:",omitempty"`
}

var parcels = onceq.Kind[parcel]{
	Type: "parcel", Key: func(p parcel) string { return p.Number }, Options: onceq.JobOptions{MaxAttempts: 2},
}

// One declaration sends and handles: payloads with one key are one job, and the Kind's options
// hold.
func TestKind(t *testing.T) {
	var mux onceq.Mux
	var mu sync.Mutex
	var got []int
	parcels.On(&mux, func(_ context.Context, _ *onceq.Job, p parcel) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, p.Grams)
		if p.Grams == 3 {
			return rig.ErrBoom
		}
		return nil
	})
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		if err := parcels.Send(r.Context(), r.Q.Broker, parcel{"A", 1, nil}, parcel{"B", 3, nil}, parcel{"A", 1, nil}); err != nil {
			t.Fatal(err)
		}
		r.RunFor(time.Minute)
		slices.Sort(got)
		if !slices.Equal(got, []int{1, 3, 3}) {
			t.Errorf("ran %v", got)
		}
		m := r.Letter("error")
		if m.Meta.Type != "parcel" || m.Meta.Key != "B" || m.Meta.Dead.Attempts != 2 {
			t.Errorf("the letter is %+v", m.Meta)
		}
		rs, err := r.Store.Store.Get(r.Context(), []dedupe.Key{{Scope: "test:parcel", Key: "A"}})
		if err != nil || rs[0] == nil || rs[0].Status != dedupe.Done {
			t.Errorf("the record is %+v, %v", rs[0], err)
		}
	}, rig.Steady, rig.With(func(c *rig.Setup) { c.Handler, c.Concurrency = &mux, 1 }))
}

// A message that was made, and stored, is the same job however often it is sent.
func TestKindMessageIsOneJob(t *testing.T) {
	nameless := onceq.Kind[parcel]{Type: "parcel"}
	var mux onceq.Mux
	ran := 0
	nameless.On(&mux, func(context.Context, *onceq.Job, parcel) error { ran++; return nil })
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		m, err := nameless.Message(parcel{"A", 1, nil})
		if err != nil {
			t.Fatal(err)
		}
		if m.Meta.ID == "" || m.Meta.Key != m.Meta.ID || m.Meta.Created.IsZero() || string(m.Body) != `{"Number":"A","Grams":1}` {
			t.Errorf("the message is %+v %+v", m, m.Meta)
		}
		for range 3 {
			r.Put(m)
		}
		r.RunFor(time.Minute)
		if ran != 1 {
			t.Errorf("it ran %d times", ran)
		}
	}, rig.With(func(c *rig.Setup) { c.Handler = &mux }))
}

func TestKindRefuses(t *testing.T) {
	key := func(parcel) string { return "k" }
	for name, c := range map[string]struct {
		k    onceq.Kind[parcel]
		v    parcel
		want string
	}{
		"no type":                   {onceq.Kind[parcel]{Key: key}, parcel{}, "Kind.Type: is empty"},
		"no key for a payload":      {parcels, parcel{}, "Kind.Key: answers no key for a payload of kind \"parcel\"; where each message is a job of its own, leave it nil, and send with Kind.Message and Send"},
		"a key that no store takes": {onceq.Kind[parcel]{Type: "p", Key: func(parcel) string { return "\xff" }}, parcel{}, "Meta.Key"},
		"a payload without JSON":    {parcels, parcel{"A", 1, func() {}}, "does not encode"},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
				_, one := c.k.Message(c.v)
				many := c.k.Send(r.Context(), r.Q.Broker, c.v)
				for _, err := range []error{one, many} {
					if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "onceq: ") != 1 {
						t.Errorf("the error is %v, want %q, and one prefix", err, c.want)
					}
				}
				r.WantQueue(0)
			})
		})
	}
	var bad *onceq.ConfigError
	if err := (onceq.Kind[parcel]{Type: "p"}).Send(t.Context(), nil, parcel{}); !errors.As(err, &bad) || bad.Field != "Kind.Key" {
		t.Errorf("Send without a Key answered %v", err)
	}
	var mux onceq.Mux
	parcels.On(&mux, nil)
	if _, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: &mux, Store: rig.NewStore(t), Scope: rig.Scope}); err == nil {
		t.Error("a nil handler is not refused")
	}
}

// Fill gives messages what Send would, so that an outbox can store them.
func TestFill(t *testing.T) {
	ms := []broker.Outgoing{{Body: []byte("a")}, onceq.Message("mail", "k", nil)}
	if err := onceq.Fill(ms); err != nil {
		t.Fatal(err)
	}
	if m := ms[0].Meta; m == nil || m.ID == "" || m.Key != m.ID || m.Created.IsZero() {
		t.Errorf("filled in: %+v", m)
	}
	if m := ms[1].Meta; m.Type != "mail" || m.Key != "k" || m.ID == "" || m.ID == ms[0].Meta.ID {
		t.Errorf("filled in: %+v", m)
	}
	again := slices.Clone(ms)
	if err := onceq.Fill(again); err != nil || *again[0].Meta != *ms[0].Meta || *again[1].Meta != *ms[1].Meta {
		t.Errorf("filled in once more: %v, %v", again, err)
	}
	ms = append(ms, broker.Outgoing{Delay: -1})
	if err := onceq.Fill(ms); err == nil || !strings.Contains(err.Error(), "message 2") || !strings.Contains(err.Error(), "Delay") {
		t.Errorf("the error is %v", err)
	}
}

// Chain around a Mux keeps the scopes and options of its types.
func TestChainAroundAMux(t *testing.T) {
	var mux onceq.Mux
	mux.On("parcel", rig.Returns(rig.ErrBoom), &onceq.JobOptions{MaxAttempts: 1})
	var mu sync.Mutex
	var saw []string
	outer := func(next onceq.Handler) onceq.Handler {
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			mu.Lock()
			saw = append(saw, j.Type())
			mu.Unlock()
			return next.Handle(ctx, j)
		})
	}
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Put(onceq.Message("parcel", "a", nil), onceq.Message("unknown", "b", nil))
		r.RunFor(time.Second)
		if m := r.Letter("error"); m.Meta.Key != "a" {
			t.Errorf("the letter is %+v", m.Meta)
		}
		if len(saw) < 2 || !slices.Contains(saw, "unknown") {
			t.Errorf("the middleware saw %q", saw)
		}
		for _, k := range []dedupe.Key{{Scope: "test:parcel", Key: "a"}, {Scope: "test:unknown", Key: "b"}} {
			if rs, err := r.Store.Store.Get(r.Context(), []dedupe.Key{k}); err != nil || rs[0] == nil {
				t.Errorf("no record of %v: %v", k, err)
			}
		}
	}, rig.With(func(c *rig.Setup) { c.Handler, c.Concurrency = onceq.Chain(onceq.Chain(&mux, outer), outer), 1 }))

	var within onceq.Mux
	within.On("t", onceq.Chain(&mux, outer), nil)
	if _, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: &within, Store: rig.NewStore(t), Scope: rig.Scope}); err == nil {
		t.Error("a chained Mux within a Mux is not refused")
	}
}
