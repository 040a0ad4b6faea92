package jobs

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

type bill struct{ ID, Cents int }

func TestJSON(t *testing.T) {
	var got bill
	h := onceq.JSON(func(_ context.Context, _ *onceq.Job, b bill) error { got = b; return nil })
	rig.Bubble(t, h.Handle, func(r *rig.Rig) {
		m := rig.Message("a")
		m.Body = []byte(`{"ID":7,"Cents":995}`)
		r.Put(m)
		r.RunFor(time.Second)
		if r.WantStatus("a", dedupe.Done); got != (bill{7, 995}) {
			t.Errorf("decoded %+v", got)
		}
	})
	for _, body := range []string{"", "{", `{"ID":"seven"}`, "\xff", "{} {}"} {
		rig.Bubble(t, h.Handle, func(r *rig.Rig) {
			m := rig.Message("a")
			m.Body = []byte(body)
			r.Put(m)
			r.RunFor(time.Second)
			d := r.Letter(onceq.ClassDecode).Meta.Dead
			if r.WantStatus("a", dedupe.Failed); d.Attempts != 1 || !strings.Contains(d.LastErr, "jobs.bill") {
				t.Errorf("the letter of %q is %+v", body, d)
			}
		})
	}
}

func TestJSONResult(t *testing.T) {
	double := onceq.JSONResult(func(_ context.Context, _ *onceq.Job, n int) (float64, error) {
		switch n {
		case 0:
			return 0, rig.ErrBoom
		case 1:
			return math.NaN(), nil // which JSON cannot tell
		}
		return float64(2 * n), nil
	})
	rig.Bubble(t, double.Handle, func(r *rig.Rig) {
		for _, k := range []string{"21", "0", "1", "x"} {
			r.Send(k)
		}
		r.RunFor(500 * time.Millisecond)
		v, st, err := onceq.Result[float64](r.Context(), r.Store, rig.Key("21"))
		if v != 42 || st != dedupe.Done || err != nil {
			t.Errorf("the result is %v, %v, %v", v, st, err)
		}
		if _, st, err := onceq.Result[float64](r.Context(), r.Store, rig.Key("0")); st != dedupe.Released || err != nil {
			t.Errorf("of a job that failed: %v, %v", st, err)
		}
		classes := make(map[string]string)
		for _, m := range r.Letters() {
			classes[m.Meta.Key] = m.Meta.Dead.Class
		}
		if len(classes) != 2 || classes["1"] != onceq.ClassResult || classes["x"] != onceq.ClassDecode {
			t.Errorf("the letters' classes are %v", classes)
		}
		if _, _, err := onceq.Result[[]string](r.Context(), r.Store, rig.Key("21")); err == nil || !strings.Contains(err.Error(), "does not decode") {
			t.Errorf("decoding into another type answered %v", err)
		}
	}, rig.Steady)
	big := onceq.JSONResult(func(context.Context, *onceq.Job, int) (string, error) { return strings.Repeat("x", 2000), nil })
	rig.Bubble(t, big.Handle, func(r *rig.Rig) {
		r.Send("1")
		r.RunFor(time.Second)
		r.Letter(onceq.ClassResult)
		r.WantStatus("1", dedupe.Failed)
	}, func(r *rig.Rig) {
		r.Store.ChangeLimits = func(l dedupe.Limits) dedupe.Limits { l.MaxResult = 1000; return l }
	})
}

// odd is a store whose Get answers what it is told.
type odd struct {
	dedupe.Store
	rs  []*dedupe.Record
	err error
}

func (o odd) Get(context.Context, []dedupe.Key) ([]*dedupe.Record, error) { return o.rs, o.err }

func TestResultOf(t *testing.T) {
	for _, c := range []struct {
		name string
		s    dedupe.Store
		k    dedupe.Key
		st   dedupe.Status
		want string // of the error
	}{
		{"no record", odd{rs: []*dedupe.Record{nil}}, rig.Key("a"), 0, ""},
		{"done without a result", odd{rs: []*dedupe.Record{{Status: dedupe.Done}}}, rig.Key("a"), dedupe.Done, ""},
		{"an unreadable one", odd{rs: []*dedupe.Record{{Status: dedupe.Done, Result: []byte("{")}}}, rig.Key("a"), dedupe.Done, "does not decode"},
		{"failed", odd{rs: []*dedupe.Record{{Status: dedupe.Failed, Result: []byte("1")}}}, rig.Key("a"), dedupe.Failed, ""},
		{"an error", odd{err: rig.ErrBoom}, rig.Key("a"), 0, "boom"},
		{"too few", odd{}, rig.Key("a"), 0, "0 of 1"},
		{"bad key", odd{}, rig.Key(""), 0, "bad key"},
		{"no store", onceq.NoStore, rig.Key("a"), 0, onceq.ErrNoStore.Error()},
	} {
		v, st, err := onceq.Result[int](t.Context(), c.s, c.k)
		if v != 0 || st != c.st || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, %v; want %v and %q", c.name, v, st, err, c.st, c.want)
		}
	}
}

func TestNoStoreAnswersErrNoStore(t *testing.T) {
	if _, err := onceq.NoStore.Forget(t.Context(), []dedupe.Forgotten{{}}); !errors.Is(err, onceq.ErrNoStore) {
		t.Errorf("Forget answered %v", err)
	}
	n := 0
	for _, err := range onceq.NoStore.List(t.Context(), dedupe.Query{}) {
		if n++; !errors.Is(err, onceq.ErrNoStore) {
			t.Errorf("List answered %v", err)
		}
	}
	if n != 1 {
		t.Errorf("List answered %d times", n)
	}
}

// These values are for ever: an effect's key that changed would let the effect happen twice.
func TestEffectKeyGolden(t *testing.T) {
	for _, c := range []struct {
		k    dedupe.Key
		step string
		want string
	}{
		{dedupe.Key{Scope: "test", Key: "a"}, "", "e80b0b4c53546c735591ae6bdedf8b90"},
		{dedupe.Key{Scope: "test", Key: "a"}, "charge", "dafc3f3256cb838900de821e3bceae69"},
		{dedupe.Key{Scope: "testa", Key: ""}, "charge", "5cd2440b4819dc29c3b256f6c8ebb884"},
		{dedupe.Key{Scope: "orders:pay", Key: "ünïcode/7"}, "mail", "63b478ee5e1a23d9bdf83cdaf827708d"},
	} {
		if got := onceq.EffectKey(c.k, c.step); got != c.want {
			t.Errorf("EffectKey(%v, %q) = %q, want %q", c.k, c.step, got, c.want)
		}
	}
}

// The key is the same in every attempt, and in a replay.
func TestEffectKeyOverAttemptsAndReplays(t *testing.T) {
	keys := make(map[string]int)
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		keys[j.EffectKey("charge")]++
		if j.EffectKey("charge") == j.EffectKey("mail") || j.EffectKey("") != onceq.EffectKey(j.Key(), "") {
			t.Error("the effects' keys do not differ by step")
		}
		return rig.ErrBoom
	}, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Minute)
		m := r.Letter(onceq.ClassError)
		m.Meta.Dead.Attempts = 0
		r.Replay(m)
		r.RunFor(time.Minute)
		if len(keys) != 1 || keys[onceq.EffectKey(rig.Key("a"), "charge")] != 6 {
			t.Errorf("the keys are %v", keys)
		}
	}, rig.Most(3), rig.Steady, rig.With(func(c *rig.Setup) { c.Concurrency = 1 }))
}
