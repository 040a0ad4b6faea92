package matrix

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/fan"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

// This file owns the cells of fans: each call of a parent's worker gone wrong in each way, beside a
// worker that is well and has the children.

// fate is what becomes of the second child of three, and of the parent then.
type fate struct {
	name   string
	policy fan.Policy
	class  string // the parent's, where it fails; "" = it is done
}

var fates = []fate{
	{name: "done"},
	{name: "replayed"}, // it fails, and an operator replays its letter
	{name: "fails", policy: fan.FailParent, class: fan.ClassChild},
	{name: "cancelled", class: fan.ClassChild},
	{name: "expires", policy: fan.FailParent, class: fan.ClassChild},
}

const (
	fanned      = 3
	fannedScope = "children"
	fannedAct   = 5 * time.Second // when the operator acts
)

// plays are the calls that a fan makes, and those by which its parent comes and goes. All sends are
// as in the first fate.
func (f *fate) plays(c onceqtest.Call) bool {
	switch c.Op {
	case onceqtest.Get, onceqtest.Renew, onceqtest.Settle, onceqtest.Letter:
		return c.N <= 4
	case onceqtest.Send, onceqtest.Claim, onceqtest.Nack, onceqtest.Ack:
		return c.N <= 3 && f.name == "done"
	}
	return false
}

// TestFans is the crash matrix of parents. A parent goes on when all of its children are done, and
// not before; it is never stuck; each child is done once; and a child that is not done fails it, or
// has it wait, as its policy says.
func TestFans(t *testing.T) {
	for _, b := range []*backend{memory(), sqlite(), firestoreFake()} {
		if asked == racedPart && b.name == overGRPC {
			continue
		}
		for _, f := range fates {
			for _, m := range []mode{completeTx, rerun, park} {
				if b.transactions != (m == completeTx) || m == park && f.name != "done" {
					continue
				}
				t.Run(fmt.Sprint(b.name, "/", f.name, "/", m), func(t *testing.T) {
					t.Parallel()
					var calls []onceqtest.Call
					b.in(t, func(t *testing.T) { calls = playFan(t, b, m, f, nil) })
					if t.Failed() {
						return
					}
					b.cells(t, m, f.plays, calls, func(t *testing.T, fault *onceqtest.Fault) {
						b.in(t, func(t *testing.T) { playFan(t, b, m, f, fault) })
					})
				})
			}
		}
	}
}

// kids are the children of a cell, and their worker's queues.
type kids struct {
	queue, letters *membroker.Broker
	fate           fate

	mu   sync.Mutex
	done [fanned]int // how often each came to its end
}

// playFan plays a cell.
func playFan(t *testing.T, b *backend, m mode, f fate, fault *onceqtest.Fault) []onceqtest.Call {
	w := newWorld(t, b, m, scenario{name: "fans", copies: 1})
	kids := &kids{fate: f}
	for _, q := range []**membroker.Broker{&kids.queue, &kids.letters} {
		var err error
		if *q, err = membroker.New(nil); err != nil {
			t.Fatal(err)
		}
	}
	var ran turns
	w.handler = func(ctx context.Context, k *worker, j *onceq.Job) error { return k.fans(ctx, j, kids, &ran) }
	first := w.first(fault)
	kidsEnd := w.raises(kids)
	acted := make(chan error, 1)
	go func() { acted <- w.acts(kids) }()
	took, crashed := w.untilEmpty(first, fault)
	if err := <-acted; err != nil {
		t.Error(err)
	}
	kidsEnd()
	calls := first.Trace()
	letters := w.dead()
	if !w.isEmpty() {
		t.Errorf("the queue is not empty after %v", took)
	}
	// What expires has its hour. Then a lease or two, a stall, and a look that waits for a tenth.
	if most := 2*b.lease + 2*b.stall + time.Minute; f.name != "expires" && took > most || took > 90*time.Minute+most {
		t.Errorf("it took %v", took)
	}
	w.checkRun()
	kids.check(w, &ran, letters, fault, crashed)
	if t.Failed() {
		t.Logf("%v under %v: %v\n%s", fault, m, kids.done, w.tell(letters))
	}
	return calls
}

// fans is the parent's handler: it has its effect when its children are done.
func (k *worker) fans(ctx context.Context, j *onceq.Job, kids *kids, ran *turns) error {
	store := k.Store(k.conn.store)
	err := fan.Out(ctx, j, store, "parts", fan.Children{
		To: k.Producer(kids.queue), Scope: fannedScope, N: fanned, Failed: kids.fate.policy,
		Message: func(i int) (broker.Outgoing, error) {
			m := onceq.Message("", "", []byte{byte(i)})
			switch {
			case i == 1 && kids.fate.name == "cancelled":
				m.Meta.NotBefore = k.w.begun.Add(2 * fannedAct)
			case kids.fate.name == "expires":
				m.Meta.Expires = k.w.begun.Add(10 * time.Minute)
			}
			return m, nil
		},
	})
	if err != nil {
		return err
	}
	sum := 0
	for n, err := range fan.Results[int](ctx, j, store, "parts") {
		if err != nil {
			return err
		}
		sum += n
	}
	kids.mu.Lock()
	if sum != fanned*(fanned+1)/2 || kids.done != [fanned]int{1, 1, 1} {
		k.w.Errorf("the parent goes on with the sum %d, and %v are done", sum, kids.done)
	}
	kids.mu.Unlock()
	return k.turn(ctx, j, ran)
}

// raises starts the children's worker. The second child takes 3 s, which is longer than a look
// waits; the third one needs two attempts.
func (w *world) raises(kids *kids) (end func()) {
	w.Helper()
	conn, err := w.db.connect(new(onceqtest.Process))
	if err != nil {
		w.Fatal(err)
	}
	failed := map[int]bool{}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: fannedScope, Store: conn.store, Control: onceq.ControlOptions{Every: -1}, Logger: slog.New(slog.DiscardHandler),
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return w.b.backoff }},
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			i := int(j.Message.Body[0])
			if i == 1 {
				<-time.After(3 * w.b.second)
			}
			kids.mu.Lock()
			defer kids.mu.Unlock()
			if first := !failed[i]; first && (i == 2 || i == 1 && kids.fate.name != "done") {
				if failed[i] = true; i == 2 {
					return errNotYet
				}
				return onceq.Permanent(errNotYet)
			}
			kids.done[i]++
			return j.SetResult(fmt.Append(nil, i+1))
		}),
	})
	if err != nil {
		w.Fatal(err)
	}
	return w.beside(p, kids.queue, kids.letters, conn)
}

// acts is the operator, who replays a child's letter, or cancels a child.
func (w *world) acts(kids *kids) error {
	<-time.After(fannedAct)
	switch kids.fate.name {
	case "cancelled":
		o, err := ops.New([]ops.Target{{Name: "children", Store: w.db.store()}}, &ops.Options{By: "ana"})
		if err != nil {
			return err
		}
		_, err = o.Cancel(w.Context(), ops.CancelSpec{Key: kids.key(w, 1), Reason: "withdrawn"})
		return err
	case "replayed":
		letters, err := dlq.New(kids.letters, nil)
		for replayed := 0; err == nil && replayed == 0; <-time.After(w.b.second) {
			var r dlq.Report
			r, err = letters.Replay(w.Context(), dlq.ReplayOptions{To: kids.queue})
			replayed = r.Replayed
		}
		return err
	}
	return nil
}

func (k *kids) key(w *world, i int) dedupe.Key {
	return dedupe.Key{Scope: fannedScope, Key: fan.Key(w.key(), "parts", i)}
}

// check looks at the parent and at its children. Under Park it may have stopped after its effect,
// and where its worker died, stood still or had a call that came late. A store that fails at each
// look uses up its attempts.
func (k *kids) check(w *world, ran *turns, letters []*broker.Message, fault *onceqtest.Fault, crashed bool) {
	w.Helper()
	doubt := crashed || fault != nil && (fault.Kind == onceqtest.Stall || fault.Kind == onceqtest.Late || fault.Op == effect)
	noLooks := fault != nil && fault.Op == onceqtest.Get && fault.Times > 1
	k.mu.Lock()
	defer k.mu.Unlock()
	rec := w.record()
	effects, err := w.db.rows()
	if w.mode != completeTx {
		effects = len(ran.all)
	}
	switch {
	case err != nil:
		w.Error(err)
	case w.mode == park && doubt && rec.Status != dedupe.Done, noLooks && rec.Status == dedupe.Failed && rec.ErrClass == onceq.ClassError:
		return
	case k.fate.class != "":
		if rec.Status != dedupe.Failed || rec.ErrClass != k.fate.class || effects != 0 || len(letters) == 0 {
			w.Errorf("the parent is %v (%s: %s), with %d effects and %d letters, want it failed as %q", rec.Status, rec.ErrClass, rec.LastErr, effects, len(letters), k.fate.class)
		}
		return
	case rec.Status != dedupe.Done || effects == 0 || w.mode == completeTx && effects != 1 || len(letters) > 0 && (w.mode != park || !doubt):
		w.Errorf("the parent is %v (%s: %s), with %d effects and %d letters, want it done", rec.Status, rec.ErrClass, rec.LastErr, effects, len(letters))
	}
	for i, n := range k.done {
		if n != 1 {
			w.Errorf("child %d was done %d times", i, n)
		}
	}
}
