package rig

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
)

// Doer is a store, watched, and processors for Do on it.
type Doer struct {
	*Rig
	P *onceq.Processor
}

// BubbleDo runs f in virtual time, with a Processor that is for Do only.
func BubbleDo(t *testing.T, f func(d *Doer), options ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &Doer{Rig: New(t, Never(t), options...)}
		d.P = d.Processor(d.Store)
		f(d)
		Pass(time.Minute)
	})
}

// Processor is another process on the store.
func (d *Doer) Processor(s dedupe.Store) *onceq.Processor {
	d.Helper()
	c := d.Cfg.ProcessorConfig
	c.Handler, c.Store = nil, s
	return must.Get(onceq.NewProcessor(c))
}

func (d *Doer) Do(k string, o *onceq.DoOptions, f func(context.Context, *onceq.Job) (int, error)) (int, error) {
	return onceq.Do(d.Context(), d.P, dedupe.Key{Key: k}, o, f)
}

// Wants checks an answer; want is what errors.Is finds in the error, or a pointer to its type.
func (d *Doer) Wants(what string, v int, err error, wantV int, want error) {
	d.Helper()
	if v != wantV || (err == nil) != (want == nil) {
		d.Errorf("%s: %v, %v; want %v, %v", what, v, err, wantV, want)
		return
	}
	for e := err; want != nil && e != nil; e = errors.Unwrap(e) {
		if e == want || reflect.TypeOf(e) == reflect.TypeOf(want) && reflect.TypeOf(e) != reflect.TypeOf(ErrBoom) {
			return
		}
	}
	if want != nil {
		d.Errorf("%s: %T %v, want %T %v", what, err, err, want, want)
	}
}

func Gives(v int, err error) func(context.Context, *onceq.Job) (int, error) {
	return func(context.Context, *onceq.Job) (int, error) { return v, err }
}

func (d *Doer) MustNot(context.Context, *onceq.Job) (int, error) {
	d.Error("it ran")
	return -1, nil
}
