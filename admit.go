package onceq

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
)

// This file owns what is read out of a message before its claim: its key, its scope, its options,
// its fingerprint, and why there may be none. deliveryHost.Admit calls it, in the goroutine that
// has put the run into a slot. It holds no lock; what foreign keeps has its own.

// admit finds out what a message asks for. A refused message becomes a dead letter with fence 0,
// because no claim was won that its replay could reopen.
func (in *intake) admit(r *run) *engine.Refusal {
	m := r.Message
	if m.MetaErr != nil {
		return &engine.Refusal{Class: ClassBadMeta, Err: m.MetaErr}
	}
	give(r)
	if no := in.untyped(m); no != nil {
		return no
	}
	opts, scope := in.optionsFor(m)
	r.Opts = opts
	key, err := in.keyOf(r.Job.Message)
	if err != nil {
		return &engine.Refusal{Class: ClassNoKey, Err: err}
	}
	key.Scope = cmp.Or(key.Scope, scope)
	if err := checkKey(key); err != nil {
		return &engine.Refusal{Class: ClassBadKey, Err: err}
	}
	r.Key = key
	r.SetReopens(in.reopens(r))
	if in.c.Fingerprint != nil {
		b, err := in.fingerprintOf(r.Job.Message)
		if err != nil {
			return &engine.Refusal{Class: ClassError, Err: err}
		}
		r.SetFingerprint(b)
	}
	return nil
}

func (p *Processor) optionsFor(m *broker.Message) (engine.JobOptions, string) {
	d := &p.c.Defaults
	o := engine.JobOptions{Most: bounded(d.MaxAttempts), Timeout: d.Timeout, Policy: d.Interrupted, Backoff: d.Backoff}
	most, timeout := d.MostAttempts, d.MostTimeout
	scope := cmp.Or(d.Scope, p.c.Scope)
	o.StartsLater = startsLater(p.c.Handler)
	if t := p.types[engine.TypeOf(m)]; t != nil {
		o.Most = cmp.Or(bounded(t.options.MaxAttempts), o.Most)
		o.Timeout = cmp.Or(t.options.Timeout, o.Timeout)
		o.Policy = max(t.options.Interrupted, o.Policy)
		if t.options.Backoff != nil {
			o.Backoff = t.options.Backoff
		}
		o.StartsLater = t.startsLater
		most, timeout = cmp.Or(t.options.MostAttempts, most), cmp.Or(t.options.MostTimeout, timeout)
		scope = t.scope
	} else if p.types != nil && m.Meta != nil && !p.oneScope {
		// A type that nobody knows here has its keys in a scope of its own. The worker that knows
		// the type finds their attempts there.
		scope = new(JobOptions).scopeOf(p.c.Scope, "", m.Meta.Type)
	}
	if m.Meta != nil {
		lower(&o, m.Meta, most, timeout)
	}
	return o, scope
}

// bounded makes any MaxAttempts fit. Beyond two thousand million there is no difference.
func bounded(attempts int) int32 { return int32(max(-1, min(attempts, math.MaxInt32))) }

// keyOf is the key of a message. It is never the broker's message id, because a producer's retry
// and a redrive change that.
func (in *intake) keyOf(m *broker.Message) (k dedupe.Key, err error) {
	if in.c.Key != nil {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("onceq: ProcessorConfig.Key panicked: %v", v)
			}
		}()
		return in.c.Key(m)
	}
	if m.Meta == nil {
		return k, fmt.Errorf("onceq: message %s has no metadata, and ProcessorConfig.Key is not set", m.ID)
	}
	k.Key = cmp.Or(m.Meta.Key, m.Meta.ID)
	if k.Key == "" {
		return k, fmt.Errorf("onceq: message %s has neither Meta.Key nor Meta.ID, and ProcessorConfig.Key is not set", m.ID)
	}
	return k, nil
}

func (p *Processor) fingerprintOf(m *broker.Message) (b []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("onceq: ProcessorConfig.Fingerprint panicked: %v", v)
		}
	}()
	return p.c.Fingerprint(m), nil
}

// early is how long a message waits for its time: its not-before, or when its job goes on that was
// postponed.
func early(m *broker.Message) time.Duration {
	if m.Meta == nil || m.Meta.NotBefore.IsZero() && m.Meta.Postponed.IsZero() {
		return 0
	}
	left := time.Until(m.Meta.NotBefore)
	if on := time.Until(m.Meta.Postponed); on <= postponedMost+time.Hour { // clocks differ
		left = max(left, on)
	}
	return max(0, left)
}

// admitRelayed is what a relay asks for: neither what the job's metadata ask of its own worker, nor
// a key, where the message has none.
func (in *intake) admitRelayed(r *run, to *relay) *engine.Refusal {
	m, d := r.Message, &in.c.Defaults
	if m.MetaErr != nil {
		return &engine.Refusal{Class: ClassBadMeta, Err: m.MetaErr}
	}
	left, late := early(m)-max(0, to.limits.MaxDelay), (*engine.Refusal)(nil)
	if left > 0 {
		if late = in.outlasts(m, time.Now().Add(left)); late == nil {
			return &engine.Refusal{Back: engine.Outcome(OutcomeEarly), Delay: left}
		}
	}
	give(r)
	r.Opts = engine.JobOptions{Most: -1, Timeout: d.Timeout, Policy: d.Interrupted, Backoff: d.Backoff}
	key := dedupe.Key{Key: m.ID}
	if in.c.Key != nil || hasKey(m.Meta) {
		var err error
		if key, err = in.keyOf(r.Job.Message); err != nil {
			return &engine.Refusal{Class: ClassNoKey, Err: err}
		}
	}
	key.Scope = cmp.Or(key.Scope, d.Scope, in.c.Scope)
	if err := checkKey(key); err != nil {
		return &engine.Refusal{Class: ClassBadKey, Err: err}
	}
	r.Key = key
	if late != nil {
		return in.refuseOutlasting(r, late)
	}
	return nil
}

func hasKey(m *broker.Meta) bool { return m != nil && (m.Key != "" || m.ID != "") }
