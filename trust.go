package onceq

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/engine"
)

// This file owns what a message may bring about beyond its own job. There are bounds, because
// whoever may send a message may write all of its metadata.

// lower lets a job's Meta lower what its worker has set. It lets the Meta raise that no further
// than the operator's ceilings.
func lower(o *engine.JobOptions, m *broker.Meta, most int, timeout time.Duration) {
	if asked := bounded(m.MaxAttempts); asked != 0 {
		ceiling := bounded(most)
		if most == 0 && o.Most > 0 {
			ceiling = max(DefaultMostAttempts, o.Most)
		}
		if ceiling > 0 && (asked < 0 || asked > ceiling) {
			asked = ceiling
		}
		o.Most = asked
	}
	if asked := m.Timeout; asked > 0 {
		if timeout == 0 && o.Timeout > 0 {
			timeout = max(DefaultMostTimeout, o.Timeout)
		}
		if timeout > 0 {
			asked = min(asked, timeout)
		}
		o.Timeout = asked
	}
}

// tooEarly refuses a message when its not-before lies further ahead than its type allows, or than
// its queue can keep it. Such a message would be given back again and again, and hold its group
// meanwhile.
func (in *intake) tooEarly(r *run, left time.Duration) *engine.Refusal {
	most := in.c.Defaults.MostNotBefore
	if t := in.types[r.Type()]; t != nil {
		most = cmp.Or(t.options.MostNotBefore, most)
	}
	most = cmp.Or(most, max(in.c.Retention, DefaultRetention))
	far := most >= 0 && time.Until(r.Message.Meta.NotBefore) > most
	no := in.outlasts(r.Message, time.Now().Add(left))
	if !far && no == nil {
		return nil
	}
	if no := in.admit(r); no != nil { // its letter needs the key
		return no
	}
	if far {
		return &engine.Refusal{Class: ClassTooEarly, Err: fmt.Errorf("onceq: the job's not-before, %s, is more than %v ahead",
			r.Message.Meta.NotBefore.UTC().Format(time.RFC3339), most)}
	}
	return in.refuseOutlasting(r, no)
}

// reopens is the fence of the failure that the message may reopen; 0 = none. Where there are
// LetterKeys, only a signed letter of this scope may reopen one.
func (in *intake) reopens(r *run) uint64 {
	m := r.Message
	if m.Meta == nil || m.Meta.Dead == nil {
		return 0
	}
	d := m.Meta.Dead
	if d.Fence == 0 || len(in.c.LetterKeys) == 0 || scopeOf(d.Source) == in.c.Scope && in.c.LetterKeys.Signed(m) {
		return d.Fence
	}
	in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelWarn, "onceq: a message names a failure, but none of ProcessorConfig.LetterKeys has signed it; it reopens nothing",
		slog.String("job", r.Name()), slog.String("key", r.Key.String()))
	return 0
}

// scopeOf is the scope in the Source of a letter. The rest of the Source does not count, because a
// replay may go to another queue of the scope, or find its own queue under another Name.
func scopeOf(source string) string {
	scope, _, _ := strings.Cut(source, ":")
	return scope
}
