package onceq

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/letter"
)

// refusal is why a message is not claimed at all. It becomes a dead letter of the class, or is given
// back.
type refusal struct {
	class string
	err   error

	back  Outcome       // "" = it becomes a letter
	delay time.Duration // of what is given back
}

// admit finds out what a message asks for. A refused message becomes a dead letter with fence 0: no claim
// was won, so there is nothing that its replay could reopen.
func (p *Processor) admit(r *run) *refusal {
	m := r.message
	if m.MetaErr != nil {
		return &refusal{class: ClassBadMeta, err: m.MetaErr}
	}
	unfold(m)
	r.give()
	opts, scope := p.optionsFor(m)
	r.opts = opts
	key, err := p.keyOf(r.job.Message)
	if err != nil {
		return &refusal{class: ClassNoKey, err: err}
	}
	key.Scope = cmp.Or(key.Scope, scope)
	if err := checkKey(key); err != nil {
		return &refusal{class: ClassBadKey, err: err}
	}
	r.key = key
	if fence := p.reopens(r); fence != 0 {
		r.knows().reopens = fence
	}
	if p.c.Fingerprint != nil {
		if r.knows().fingerprint, err = p.fingerprintOf(r.job.Message); err != nil {
			return &refusal{class: ClassError, err: err}
		}
	}
	return nil
}

// unfold gives a replayed letter's attributes their places back, where the queue between had no room for them: the handler
// sees the message as it was. Those that came beside win.
func unfold(m *broker.Message) {
	if !letter.IsFolded(m.Meta) {
		return
	}
	m.Attributes, m.Meta = letter.Attributes(m.Attributes, m.Meta), m.Meta.Clone() // the driver may hold on to its own
	m.Meta.Dead.Attributes = nil
}

func (p *Processor) optionsFor(m *broker.Message) (jobOptions, string) {
	d := &p.c.Defaults
	o := jobOptions{most: bounded(d.MaxAttempts), timeout: d.Timeout, policy: d.Interrupted, backoff: d.Backoff}
	most, timeout := d.MostAttempts, d.MostTimeout
	scope := cmp.Or(d.Scope, p.c.Scope)
	if m.Meta == nil {
		return o, scope
	}
	if t := p.types[m.Meta.Type]; t != nil {
		o.most = cmp.Or(bounded(t.options.MaxAttempts), o.most)
		o.timeout = cmp.Or(t.options.Timeout, o.timeout)
		o.policy = max(t.options.Interrupted, o.policy)
		if t.options.Backoff != nil {
			o.backoff = t.options.Backoff
		}
		most, timeout = cmp.Or(t.options.MostAttempts, most), cmp.Or(t.options.MostTimeout, timeout)
		scope = t.scope
	} else if p.types != nil {
		// A type that nobody knows here keeps its keys to itself, and the worker that knows it finds their attempts.
		scope = d.scopeOf(p.c.Scope, m.Meta.Type)
	}
	o.lower(m.Meta, most, timeout)
	return o, scope
}

// bounded makes any MaxAttempts fit; beyond two thousand million there is no difference.
func bounded(attempts int) int32 { return int32(max(-1, min(attempts, math.MaxInt32))) }

// keyOf never keys on the broker's message id: a producer's retry and a redrive change it.
func (p *Processor) keyOf(m *broker.Message) (k dedupe.Key, err error) {
	if p.c.Key != nil {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("onceq: Config.Key panicked: %v", v)
			}
		}()
		return p.c.Key(m)
	}
	if m.Meta == nil {
		return k, fmt.Errorf("onceq: message %s has no metadata, and Config.Key is not set", m.ID)
	}
	k.Key = cmp.Or(m.Meta.Key, m.Meta.ID)
	if k.Key == "" {
		return k, fmt.Errorf("onceq: message %s has neither Meta.Key nor Meta.ID, and Config.Key is not set", m.ID)
	}
	p.foreign.meet()
	return k, nil
}

func (p *Processor) fingerprintOf(m *broker.Message) (b []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("onceq: Config.Fingerprint panicked: %v", v)
		}
	}()
	return p.c.Fingerprint(m), nil
}

// early is how long a job's not-before still lies ahead.
func early(m *broker.Message) time.Duration {
	if m.Meta == nil || m.Meta.NotBefore.IsZero() {
		return 0
	}
	return max(0, time.Until(m.Meta.NotBefore))
}

// tooOld tells why a job whose claim was won must not start: it expired, or its message was older than Retention when
// its record was made, so that an earlier record may have said done and be gone. It looks at the record's beginning, not at
// whether this claim made it: the first who found the message too old may have died before that was settled.
func (p *Processor) tooOld(m *broker.Message, created, now time.Time) *refusal {
	if m.Meta != nil && !m.Meta.Expires.IsZero() && !now.Before(m.Meta.Expires) {
		return &refusal{class: ClassExpired, err: fmt.Errorf("onceq: the job expired at %s", m.Meta.Expires.UTC().Format(time.RFC3339))}
	}
	made := madeAt(m)
	if made.IsZero() || created.IsZero() {
		return nil
	}
	if age := created.Sub(made); age > p.c.Retention {
		return &refusal{class: ClassUnproven, err: fmt.Errorf("onceq: the job was %v old when its record was made: an earlier record may have been kept for %v and be gone", age.Round(time.Second), p.c.Retention)}
	}
	return nil
}

// madeAt is when the job was made, or failed, or might start; the zero time where nobody says. What was made or failed later than the
// broker took the message was not: its sender says so to be younger.
func madeAt(m *broker.Message) time.Time {
	if m.Meta == nil {
		return m.Published
	}
	made := m.Meta.Created
	if m.Meta.Dead != nil {
		made = latest(made, m.Meta.Dead.At)
	}
	if !m.Published.IsZero() && (made.IsZero() && m.Meta.NotBefore.IsZero() || made.After(m.Published)) {
		made = m.Published
	}
	return latest(made, m.Meta.NotBefore)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
