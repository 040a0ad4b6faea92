package onceq

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns messages that the Processor cannot take because of its own configuration. They are
// held back: given back unclaimed, with an ERROR that says what to set. Otherwise the first start
// on a queue that exists already would empty it into the dead-letter queue. There are three causes:
//
//   - The producer knows nothing of onceq, and ProcessorConfig.Key is missing.
//   - The producer gives no type, and the Handler is a Mux, which goes by the type.
//   - The Handler hides a Mux, so that the scopes and options of its types are unknown.
//
// admit asks for each message, in the goroutine that has its run. A lock in told guards the times
// at which the log was told; the other fields are atomic.

// foreign is what one intake knows of its producers. The Worker tells it what the queue keeps.
type foreign struct {
	met      atomic.Bool  // a message with a key of ours has come, so one without is the exception
	typed    atomic.Bool  // the same of a type
	keeps    atomic.Int64 // the queue's retention, as a Duration; 0 = unknown
	receives atomic.Int64 // after so many the queue moves a message away; 0 = never, or unknown

	told       told
	outlasting told // of the messages that the queue cannot keep
}

// told is when the log was told of something that goes on.
type told struct {
	mu          sync.Mutex
	first, last time.Time
}

// How long a message without a key is held back. In all, it is at most half of the time for which
// the queue keeps messages, or foreignMost where that time is not known. Each time it is given back
// for foreignLeast. Where the queue counts its receives, they are spread over the time there is,
// but by no more than foreignLongest each, so that whoever has mended the configuration need not
// wait longer.
const (
	foreignMost    = 24 * time.Hour
	foreignLeast   = 5 * time.Minute
	foreignLongest = engine.KeptFor
)

// left is for how much longer the message may be held back.
//
// Where its age is not known, it is at least as old as the intake. That is not enough, because each
// deploy makes a new intake. So its receives count, too: each but the last stands for the time for
// which such a message is given back. Receives before onceq came count as well. Therefore they make
// no letter until the intake is foreignLongest old, and somebody can have read the ERROR.
func (f *foreign) left(m *broker.Message, begun time.Time, least time.Duration) time.Duration {
	most := foreignMost
	if keeps := time.Duration(f.keeps.Load()); keeps > 0 {
		most = keeps / 2
	}
	if !m.Published.IsZero() {
		return most - time.Since(m.Published)
	}
	up := time.Since(begun)
	each, _ := f.wait(1, most, least)
	held := time.Duration(min(m.Attempt-1, 1<<20)) * each // within a Duration's range
	return most - max(up, min(held, up+most-foreignLongest))
}

// wait is for how long a message is given back after its receive of that number: left is spread
// over the receives that the queue will allow yet. ok = false: it allows no more.
func (f *foreign) wait(receive int, left, least time.Duration) (d time.Duration, ok bool) {
	receives := int(f.receives.Load())
	if receives <= 0 || receive <= 0 { // no limit, or nobody counts
		return least, true
	}
	if receive >= receives {
		return 0, false
	}
	return min(max(least, left/time.Duration(receives-receive)), foreignLongest), true
}

// tells reports whether it is time to log: at the first such message, and then each
// engine.TellAgain while they come. since is how long ago the first one came.
func (t *told) tells() (since time.Duration, tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.first.IsZero() {
		t.first = now
	}
	if !t.last.IsZero() && now.Sub(t.last) < engine.TellAgain {
		return 0, false
	}
	t.last = now
	return now.Sub(t.first), true
}

// meet is told of each message as it comes in. What waits behind a foreign one of its group counts,
// too.
func (f *foreign) meet(m *broker.Message) {
	if m == nil || m.Meta == nil {
		return
	}
	// A store for every message would be shared by all processors.
	if (m.Meta.Key != "" || m.Meta.ID != "") && !f.met.Load() {
		f.met.Store(true)
	}
	if m.Meta.Type != "" && !f.typed.Load() {
		f.typed.Store(true)
	}
}

// untyped refuses what the Handler cannot tell apart: a message without a type under a Mux, where
// none with a type has come, and every message under a Handler that hides a Mux. Where the Handler
// has done other jobs, those that it gives to the Mux fail one by one.
func (in *intake) untyped(m *broker.Message) *engine.Refusal {
	switch {
	case in.hidesMux.Load() && !in.handled.Load():
		return &engine.Refusal{Class: ClassConfig, Err: errHiddenMux}
	case in.types != nil && engine.TypeOf(m) == "" && in.types[""] == nil && !in.foreign.typed.Load():
		return &engine.Refusal{Class: ClassNoHandler, Err: errNoType}
	}
	return nil
}

var errNoType = errors.New("onceq: the message has no type, and the Handler is a Mux, which goes by Meta.Type")

// whatToSet says what is wrong with the configuration where a message was refused for that, and
// what to do; "" = it is the message's own fault.
func (in *intake) whatToSet(class string) string {
	switch {
	case class == ClassNoKey && in.c.Key == nil && !in.foreign.met.Load():
		return "onceq: messages have no key, because their producer does not use onceq; they are held back. Set ProcessorConfig.Key, which finds the key of such a message"
	case class == ClassNoHandler:
		return "onceq: messages have no type, because their producer does not use onceq, and the Handler is a Mux; they are held back. Say of which type they are by Mux.Untyped, or give their queue a Processor with one Handler for all of them"
	case class == ClassConfig:
		return "onceq: the Handler wraps a Mux, whose scopes and options are then unknown; messages are held back. Wrap the Mux with Chain, or give the middleware to Mux.Use"
	}
	return ""
}

// holdForeign is what becomes of a message that was refused: where the configuration is at fault,
// it is given back.
func (in *intake) holdForeign(r *run, no *engine.Refusal) *engine.Refusal {
	f, toSet := &in.foreign, in.whatToSet(no.Class)
	if toSet == "" {
		return no
	}
	least := foreignLeast
	if in.e.HoldsBack(r) {
		least = engine.KeptFor // it stays in the queue in the end, too
	}
	left := f.left(r.Message, in.begun, least)
	wait, ok := f.wait(r.Message.Attempt, left, least)
	if left <= 0 || !ok { // the queue would drop it, or move it away, and nobody would know why
		return no
	}
	if since, tell := f.told.tells(); tell {
		in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelError, toSet,
			engine.ForSo(since), slog.String("job", r.Name()), slog.Duration("hidden_for", min(wait, left).Round(time.Second)), slog.Duration("letter_in", left.Round(time.Second)))
	}
	r.Verdict.Class, r.Verdict.Text = no.Class, verdict.Text(no.Err)
	return &engine.Refusal{Back: engine.Kept, Delay: min(wait, left)}
}
