package matrix

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

// TestCancel: what Cancel has answered nil for has no effect in the store's own database, however
// far its handler had come, and whether or not it looks at its context. Its message is acked, and
// nobody gets a letter. Where the transaction was first, the answer is that the job is done.
func TestCancel(t *testing.T) {
	on := func(t *testing.T, b *backend) {
		for name, amid := range map[string]bool{"before its transaction": false, "amid its transaction": true} {
			if amid && !b.transactions {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b.in(t, func(t *testing.T) { cancelled(t, b, amid) })
			})
		}
	}
	onEachStore(t, on)
	t.Run("firestore", func(t *testing.T) { on(t, firestoreFake()) })
}

func cancelled(t *testing.T, b *backend, amid bool) {
	w := newWorld(t, b, completeTx, scenario{copies: 1})
	begun, ended := make(chan struct{}, 1), make(chan error, 1)
	w.handler = func(ctx context.Context, k *worker, j *onceq.Job) error {
		begun <- struct{}{}
		if !amid {
			<-ctx.Done()
			ended <- context.Cause(ctx)
		}
		if !b.transactions {
			return nil
		}
		return k.conn.complete(context.WithoutCancel(ctx), k.Process, j)
	}
	slow := complete
	if b.oneCall {
		slow = commit
	}
	k := w.start("A", onceqtest.Fault{Op: slow, Kind: onceqtest.Slow, Delay: 4 * b.second})
	<-begun
	if amid && !b.oneCall {
		w.until("the transaction has its row", func() bool { return k.Calls(effect) > 0 })
	}
	o, err := ops.New([]ops.Target{{Name: "orders", Store: w.db.store()}}, &ops.Options{By: "ana"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.Cancel(t.Context(), ops.CancelSpec{Key: w.key(), Reason: "the order was withdrawn"})
	if !amid {
		if cause := <-ended; !errors.Is(cause, onceq.ErrLeaseLost) || !strings.Contains(cause.Error(), "the job was cancelled") {
			t.Errorf("the handler's context ended by %v", cause)
		}
	}
	w.until("the message is acked", w.isEmpty)
	k.end()
	rows, rowsErr := w.db.rows()
	rec, letters := w.record(), w.dead()
	switch {
	case rowsErr != nil || len(letters) > 0:
		t.Errorf("%v; %d letters\n%s", rowsErr, len(letters), w.tell(letters))
	case err == nil && (rows != 0 || !ops.IsCancelled(rec)):
		t.Errorf("cancelled, and there are %d effects, %v\n%s", rows, rec.Status, w.tell(letters))
	case err != nil && (!amid || !errors.Is(err, ops.ErrRefused) || rows != 1 || rec.Status != dedupe.Done):
		t.Errorf("Cancel answered %v, and there are %d effects, %v\n%s", err, rows, rec.Status, w.tell(letters))
	}
}

// TestCancelAnywhere: a cancel while any call of a worker is under way, or after the worker has
// died in it. Once it has answered nil no handler starts, nothing is committed, and whoever finds
// the message acks it.
func TestCancelAnywhere(t *testing.T) {
	for _, b := range []*backend{memory(), sqlite(), firestoreFake()} {
		t.Run(b.name, func(t *testing.T) {
			calls := []onceqtest.Op{onceqtest.Receive, onceqtest.Claim, onceqtest.Renew, effect, onceqtest.Settle, onceqtest.Letter, onceqtest.Ack}
			m := rerun
			if b.transactions {
				calls, m = append(calls, complete, commit), completeTx
			}
			for _, s := range scenarios[1:4] { // retry, permanent, duplicate
				left := b.leftOut(t)
				for i, op := range calls {
					if left(i) {
						continue
					}
					for _, kind := range []onceqtest.FaultKind{onceqtest.Slow, onceqtest.CrashBefore, onceqtest.CrashAfter, onceqtest.LoseReply} {
						t.Run(s.name+"/"+string(op)+"/"+kind.String(), func(t *testing.T) {
							t.Parallel()
							b.in(t, func(t *testing.T) { cancelledAt(t, b, m, s, onceqtest.Fault{Op: op, Kind: kind, Delay: b.second}) })
						})
					}
				}
			}
		})
	}
}

func cancelledAt(t *testing.T, b *backend, m mode, s scenario, f onceqtest.Fault) {
	w := newWorld(t, b, m, s)
	k := w.start("A", f)
	w.until("the call, or the end", func() bool { return k.faulted() || w.isEmpty() })
	o, err := ops.New([]ops.Target{{Name: "orders", Store: w.db.store()}}, &ops.Options{By: "ana"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.Cancel(t.Context(), ops.CancelSpec{Key: w.key(), Reason: "withdrawn"})
	w.mu.Lock()
	runs := w.runs
	w.mu.Unlock()
	rows, _ := w.db.rows()
	if k.isDead() {
		k.end()
		k = w.start("B")
	}
	w.until("the message is acked", w.isEmpty)
	k.end()
	after, rowsErr := w.db.rows()
	rec, letters := w.record(), w.dead()
	switch {
	case rowsErr != nil:
		t.Error(rowsErr)
	case err != nil && (!errors.Is(err, ops.ErrRefused) || rec.Status != dedupe.Done):
		t.Errorf("Cancel answered %v, and the record is %v\n%s", err, rec.Status, w.tell(letters))
	case err == nil && (!ops.IsCancelled(rec) || w.runs != runs || after != rows || after != 0):
		t.Errorf("cancelled: %v; %d runs then, and %d; %d effects then, and %d\n%s", rec.Status, runs, w.runs, rows, after, w.tell(letters))
	case err == nil && len(letters) > 0 && !s.permanent:
		t.Errorf("cancelled, and there are %d letters\n%s", len(letters), w.tell(letters))
	}
}
