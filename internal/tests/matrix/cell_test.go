package matrix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/onceqtest"
)

// wrong is one way in which a call can go wrong.
type wrong struct {
	name  string
	fault onceqtest.Fault
}

// wrongs are all of them.
func (b *backend) wrongs() []wrong {
	return []wrong{
		{"crash-before", onceqtest.Fault{Kind: onceqtest.CrashBefore}},
		{"crash-after", onceqtest.Fault{Kind: onceqtest.CrashAfter}},
		{"fail", onceqtest.Fault{Kind: onceqtest.Fail}},
		{"lose-reply", onceqtest.Fault{Kind: onceqtest.LoseReply}},
		{"first-fails", onceqtest.Fault{Kind: onceqtest.Fail, Entries: []int{0}}},
		{"first-loses-reply", onceqtest.Fault{Kind: onceqtest.LoseReply, Entries: []int{0}}},
		{"cancelled-before", onceqtest.Fault{Kind: onceqtest.Cancel}},
		{"cancelled-after", onceqtest.Fault{Kind: onceqtest.LoseReply, Err: context.Canceled}},
		{"cancelled-under-way", onceqtest.Fault{Kind: onceqtest.Cancel, Delay: 300 * time.Microsecond}},
		{"late", onceqtest.Fault{Kind: onceqtest.Late, Delay: b.late}},
		{"stall", onceqtest.Fault{Kind: onceqtest.Stall, Delay: b.stall}},
	}
}

// cannot is why a call cannot go wrong this way; "" = it can.
func (w wrong) cannot(b *backend, op onceqtest.Op, m mode) string {
	if w.fault.Kind == onceqtest.Cancel && w.fault.Delay > 0 && b.virtual {
		return "in a bubble a call takes no time"
	}
	switch op {
	case effect, complete, commit, onceqtest.Receive, onceqtest.Redrive:
		if len(w.fault.Entries) > 0 {
			return "the call has no entries"
		}
	}
	switch {
	case w.fault.Kind == onceqtest.Late && !b.oneCall && (op == complete || op == commit || op == effect && m == completeTx):
		return "a statement does not arrive after its transaction"
	case w.fault.Kind == onceqtest.Late && op == onceqtest.Receive:
		return "what a late receive brings, it brings to nobody: lose-reply"
	}
	return ""
}

// skips tells whether the scenario makes no sense in the mode.
func (b *backend) skips(m mode, s scenario) bool {
	return s.careless && m != completeTx || s.held && (m == park || !b.virtual || b.plain) || s.saves() > 0 && b.stepless(m)
}

// absent is why a scenario has no such call; "" = nobody knows.
func (b *backend) absent(m mode, s scenario, op onceqtest.Op) string {
	if s.held && b.skips(m, s) {
		return "what is held is as on the memory queue; under Park it waits for its operator"
	}
	if s.saves() > 0 && b.skips(m, s) {
		return "steps are saved, and messages sent anew, as on the same store, or as under effect-key and park"
	}
	if b.skips(m, s) {
		return "a handler that hides its error loses its effect: only a transaction forgives that"
	}
	if b.oneCall && (op == complete || op == effect && m == completeTx) {
		return "the transaction, its effects and the completion are one call"
	}
	switch op {
	case onceqtest.Start:
		if m != park {
			return "the start is recorded under Park only"
		}
	case complete, commit:
		if m != completeTx {
			return "there is no transaction of the user's"
		}
		if s.permanent {
			return "the job fails before its effect"
		}
	case effect:
		if s.permanent {
			return "the job fails before its effect"
		}
	case onceqtest.Letter:
		if !s.permanent {
			return "the job does not fail for good"
		}
	case onceqtest.Send:
		if !s.carried {
			return "no message is sent anew"
		}
	case onceqtest.Nack:
		if !s.retried {
			return "nothing is given back"
		}
	case onceqtest.Renew, onceqtest.Extend:
		if !s.long && !(s.saves() > 0 && op == onceqtest.Renew) {
			return "the job is shorter than a beat"
		}
	}
	return ""
}

// elsewhere is where a call has its cells, if not in this scenario: until the handler runs all
// scenarios are one.
func (b *backend) elsewhere(c onceqtest.Call, s scenario) string {
	if s.long && !b.virtual && c.Op != onceqtest.Renew && c.Op != onceqtest.Extend {
		return "with the other stores: time is dear here"
	}
	if s.careless && c.Op != commit {
		return "but for its commit it is as in success"
	}
	switch c.Op {
	case onceqtest.Redrive, onceqtest.Claim, onceqtest.Start:
		if s.name != "success" && c.N == 1 {
			return "until the handler runs it is as in success"
		}
	case onceqtest.Receive:
		if s.name != "success" && c.N <= s.copies {
			return "until the handler runs it is as in success"
		}
		if c.N > 2 {
			return "one idle receive is as another"
		}
	case onceqtest.Renew, onceqtest.Extend:
		switch {
		case c.Op == onceqtest.Renew && c.N <= s.saves():
			return "" // they are saves
		case c.N > 2:
			return "one beat is as another"
		case !s.long && !b.virtual:
			return "a slow machine's beat may not come again"
		}
	}
	return ""
}

// in runs f in the backend's time.
func (b *backend) in(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if b.virtual {
		synctest.Test(t, f)
		return
	}
	f(t)
}

// outcome is how a cell went.
type outcome struct {
	calls []onceqtest.Call // of the first worker
	took  time.Duration    // until the queue was empty
	// waited: the worker lived on, and took so much longer than without the fault that it has
	// waited for a lease of its own.
	waited bool
}

// play is one cell, or the run without a fault, which took plain.
func play(t *testing.T, b *backend, m mode, s scenario, fault *onceqtest.Fault, plain time.Duration) (o outcome) {
	w := newWorld(t, b, m, s)
	var faults []onceqtest.Fault
	stalls := false
	if fault != nil {
		faults, stalls = append(faults, *fault), fault.Kind == onceqtest.Stall
	}
	first := w.start("A", faults...)
	if b.virtual && w.sent < s.copies {
		<-time.After(b.second / 4)
		w.send(0)
	}
	var second *worker
	work := func() {
		for (!w.isEmpty() || w.sent < s.copies || s.carried && w.putBack()) && time.Since(w.begun) < b.patience {
			if w.sent < s.copies && (w.isEmpty() || first.isDead()) {
				w.send(0)
			}
			if second == nil && (first.isDead() || stalls && first.faulted()) {
				w.timePasses(first)
				second = w.start("B")
			}
			<-time.After(b.grain())
		}
	}
	work()
	o.took = time.Since(w.begun)
	if fault != nil && fault.Delay > 0 {
		for _, c := range first.Trace() {
			if c.Fault == fault.Kind {
				// What is late, or stands still, is yet to come.
				retry.Rest(context.Background(), time.Until(c.Begun.Add(fault.Delay+b.second)))
			}
		}
	}
	work() // a copy may have come late
	crashed := first.isDead()
	first.end()
	if second != nil {
		second.end()
	}
	<-time.After(b.second) // for a packet of the dead
	o.calls = first.Trace()

	letters := append(w.put, w.dead()...)
	if fault == nil && w.moved > 0 {
		t.Errorf("the queue has moved %d messages away", w.moved)
	}
	if !w.isEmpty() {
		t.Errorf("the queue is not empty after %v", o.took)
	}
	if missed := first.Missed(); len(missed) > 0 {
		t.Errorf("no call came by %v", missed)
	}
	w.checkRun()
	w.checkPromise(letters)
	w.audit.check(t, w.record())
	w.checkStale()
	most := plain + b.lease/2
	if s.carried && !b.virtual && fault != nil && (fault.Op == onceqtest.Send || fault.Kind == onceqtest.Late) {
		most += b.lease // a copy that finds its job in progress waits for a lease; in a bubble none does
	}
	o.waited = fault != nil && !crashed && !stalls && o.took > most
	if t.Failed() || o.waited {
		t.Logf("%v under %v, %v:\n%s", fault, m, s.name, w.tell(letters))
	}
	return o
}

// checkPromise is the promise's table, and that nothing is lost.
func (w *world) checkPromise(letters []*broker.Message) {
	w.Helper()
	rec := w.record()
	if rec == nil {
		w.Errorf("the job is lost: there is no record")
		return
	}
	done := rec.Status == dedupe.Done
	// Under Park, too: a job that a takeover has parked stays parked where its owner's late word is
	// that nothing has happened.
	if !done && rec.Status != dedupe.Failed && rec.Status != dedupe.Parked {
		w.Errorf("the job is lost: its queue is empty, and it is %v", rec.Status)
	}
	if !done && len(letters) == 0 {
		w.Errorf("the job is lost: it is %v, and there is no letter", rec.Status)
	}
	for _, m := range letters {
		if m.Meta == nil || m.Meta.Dead == nil || m.Meta.Dead.Fence != rec.Fence || m.Meta.Key != rec.Key.Key || string(m.Body) != "order 1" {
			w.Errorf("a letter is not that of fence %d: %+v", rec.Fence, m)
		}
	}

	if w.scenario.steps {
		w.checkSteps(rec, letters)
		return
	}
	w.mu.Lock()
	n, keys, tokens := len(w.calls), make(map[string]bool), make(map[dedupe.Token]int)
	for _, c := range w.calls {
		keys[c.key] = true
		tokens[c.token]++
	}
	w.mu.Unlock()
	for _, times := range tokens {
		if times > 1 {
			w.Errorf("one claim had %d effects", times)
		}
	}
	if w.mode == completeTx {
		var err error
		if n, err = w.db.rows(); err != nil {
			w.Fatal(err)
		}
	}
	switch {
	case w.scenario.permanent:
		switch {
		case n != 0:
			w.Errorf("%d effects of a job that failed before its effect", n)
		// A takeover does not know that the job had failed.
		case rec.Status == dedupe.Parked && w.mode == park && w.audit.started():
		case rec.Status != dedupe.Failed || rec.ErrClass != onceq.ClassPermanent:
			w.Errorf("the job is %v of class %q, want failed, permanent", rec.Status, rec.ErrClass)
		}
	case w.mode == park:
		switch {
		case n > 1:
			w.Errorf("%d effects under Park, want at most one", n)
		case done && n != 1:
			w.Errorf("the job is done, with %d effects", n)
		case !done && !w.audit.started():
			w.Errorf("the job is %v though it was never started", rec.Status)
		case strings.HasPrefix(rec.LastErr, (&dedupe.Settlement{}).LateText()) && n != 0:
			w.Errorf("the record says that nothing has happened, and there are %d effects", n)
		}
	case !done:
		w.Errorf("the job is %v (%s: %s), want done", rec.Status, rec.ErrClass, rec.LastErr)
	case len(letters) != 0:
		w.Errorf("%d letters of a job that is done", len(letters))
	case w.mode == completeTx && n != 1:
		w.Errorf("%d effects are committed with their completion, want one", n)
	case w.mode == completeTx && string(rec.Result) != `"paid"`:
		w.Errorf("the result is %q", rec.Result)
	case w.mode == effectKey && len(keys) != 1:
		w.Errorf("the API saw %d keys, want one", len(keys))
	case w.mode == rerun && n < 1:
		w.Errorf("the job is done, and its effect has not happened")
	}
}

// checkStale lets the packets of all claims that were won come once more: none of them may change
// anything.
func (w *world) checkStale() {
	w.Helper()
	rec := w.record()
	if rec == nil {
		return
	}
	before := told(rec)
	for _, token := range w.audit.tokens() {
		present := token == rec.Token
		if present && rec.Status != dedupe.Done {
			continue // the owner's word counts yet
		}
		as, err := w.db.store().Renew(w.Context(), []dedupe.Renewal{{Key: rec.Key, Token: token, TTL: time.Hour, Started: true, State: []byte("stale"), StateNo: 9}})
		if err != nil || !errors.Is(as[0].Err, dedupe.ErrLeaseLost) {
			w.Errorf("a renewal of an ended claim was answered %v, %v", as, err)
		}
		for _, to := range []dedupe.Status{dedupe.Done, dedupe.Released} {
			ss, err := w.db.store().Settle(w.Context(), []dedupe.Settlement{{Key: rec.Key, Token: token, To: to, Result: []byte("stale"), ErrText: "stale"}})
			switch {
			case err != nil:
				w.Error(err)
			case present && (ss[0].Err != nil || ss[0].Status != dedupe.Done):
				w.Errorf("a repeated settlement was answered %+v, want done", ss[0])
			case !present && !errors.Is(ss[0].Err, dedupe.ErrLeaseLost):
				w.Errorf("a settlement of a stale claim was answered %+v", ss[0])
			}
		}
	}
	if after := told(w.record()); after != before {
		w.Errorf("a stale packet has changed the record:\n%s\nwas\n%s", after, before)
	}
}

func told(r *dedupe.Record) string { return fmt.Sprintf("%+v", r) }

// wentWrong is a call that went wrong by itself; nil = none. Receives end with their context. A
// beat that meets the job's own commit finds the lease gone, which is as it should be.
func (o *outcome) wentWrong(m mode) *onceqtest.Call {
	for i, c := range o.calls {
		if m == completeTx && c.Op == onceqtest.Renew && errors.Is(c.Err, dedupe.ErrLeaseLost) {
			continue
		}
		if c.Err != nil && c.Op != onceqtest.Receive {
			return &o.calls[i]
		}
	}
	return nil
}

// slow is a call that took long by itself, so long that a beat may have come too late; nil = none.
// Receives wait for messages.
func (o *outcome) slow(b *backend) *onceqtest.Call {
	for i, c := range o.calls {
		if c.Took > b.call/4 && c.Op != onceqtest.Receive && c.Fault == 0 {
			return &o.calls[i]
		}
	}
	return nil
}

// ops are the calls that were made.
func (o *outcome) ops() (ops []onceqtest.Op) {
	for _, c := range o.calls {
		if !slices.Contains(ops, c.Op) {
			ops = append(ops, c.Op)
		}
	}
	slices.SortFunc(ops, func(a, b onceqtest.Op) int { return strings.Compare(string(a), string(b)) })
	return ops
}
