package onceq_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
)

type bill struct{ ID, Cents int }

func TestJSON(t *testing.T) {
	var got bill
	h := onceq.JSON(func(_ context.Context, _ *onceq.Job, b bill) error { got = b; return nil })
	bubble(t, h.Handle, func(r *rig) {
		m := message("a")
		m.Body = []byte(`{"ID":7,"Cents":995}`)
		r.put(m)
		r.run(time.Second)
		if r.wantStatus("a", dedupe.Done); got != (bill{7, 995}) {
			t.Errorf("decoded %+v", got)
		}
	})
	for _, body := range []string{"", "{", `{"ID":"seven"}`, "\xff", "{} {}"} {
		bubble(t, h.Handle, func(r *rig) {
			m := message("a")
			m.Body = []byte(body)
			r.put(m)
			r.run(time.Second)
			d := r.letter(onceq.ClassDecode).Meta.Dead
			if r.wantStatus("a", dedupe.Failed); d.Attempts != 1 || !strings.Contains(d.LastErr, "onceq_test.bill") {
				t.Errorf("the letter of %q is %+v", body, d)
			}
		})
	}
}

func TestJSONResult(t *testing.T) {
	double := onceq.JSONResult(func(_ context.Context, _ *onceq.Job, n int) (float64, error) {
		switch n {
		case 0:
			return 0, errBoom
		case 1:
			return math.NaN(), nil // which JSON cannot tell
		}
		return float64(2 * n), nil
	})
	bubble(t, double.Handle, func(r *rig) {
		for _, k := range []string{"21", "0", "1", "x"} {
			r.send(k)
		}
		r.run(500 * time.Millisecond)
		v, st, err := onceq.Result[float64](r.Context(), r.store, key("21"))
		if v != 42 || st != dedupe.Done || err != nil {
			t.Errorf("the result is %v, %v, %v", v, st, err)
		}
		if _, st, err := onceq.Result[float64](r.Context(), r.store, key("0")); st != dedupe.Released || err != nil {
			t.Errorf("of a job that failed: %v, %v", st, err)
		}
		classes := make(map[string]string)
		for _, m := range r.letters() {
			classes[m.Meta.Key] = m.Meta.Dead.Class
		}
		if len(classes) != 2 || classes["1"] != onceq.ClassResult || classes["x"] != onceq.ClassDecode {
			t.Errorf("the letters' classes are %v", classes)
		}
		if _, _, err := onceq.Result[[]string](r.Context(), r.store, key("21")); err == nil || !strings.Contains(err.Error(), "does not decode") {
			t.Errorf("decoding into another type answered %v", err)
		}
	}, steady)
	big := onceq.JSONResult(func(context.Context, *onceq.Job, int) (string, error) { return strings.Repeat("x", 2000), nil })
	bubble(t, big.Handle, func(r *rig) {
		r.send("1")
		r.run(time.Second)
		r.letter(onceq.ClassResult)
		r.wantStatus("1", dedupe.Failed)
	}, func(r *rig) {
		r.store.limits = func(l dedupe.Limits) dedupe.Limits { l.MaxResult = 1000; return l }
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
		{"no record", odd{rs: []*dedupe.Record{nil}}, key("a"), 0, ""},
		{"done without a result", odd{rs: []*dedupe.Record{{Status: dedupe.Done}}}, key("a"), dedupe.Done, ""},
		{"an unreadable one", odd{rs: []*dedupe.Record{{Status: dedupe.Done, Result: []byte("{")}}}, key("a"), dedupe.Done, "does not decode"},
		{"failed", odd{rs: []*dedupe.Record{{Status: dedupe.Failed, Result: []byte("1")}}}, key("a"), dedupe.Failed, ""},
		{"an error", odd{err: errBoom}, key("a"), 0, "boom"},
		{"too few", odd{}, key("a"), 0, "0 of 1"},
		{"bad key", odd{}, key(""), 0, "bad key"},
		{"no store", onceq.NoStore, key("a"), 0, onceq.ErrNoStore.Error()},
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
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		keys[j.EffectKey("charge")]++
		if j.EffectKey("charge") == j.EffectKey("mail") || j.EffectKey("") != onceq.EffectKey(j.Key(), "") {
			t.Error("the effects' keys do not differ by step")
		}
		return errBoom
	}, func(r *rig) {
		r.send("a")
		r.run(time.Minute)
		m := r.letter(onceq.ClassError)
		m.Meta.Dead.Attempts = 0
		r.replay(m)
		r.run(time.Minute)
		if len(keys) != 1 || keys[onceq.EffectKey(key("a"), "charge")] != 6 {
			t.Errorf("the keys are %v", keys)
		}
	}, most(3), steady, with(func(c *setup) { c.Concurrency = 1 }))
}
