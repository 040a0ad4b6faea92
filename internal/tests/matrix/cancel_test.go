package matrix

import (
	"context"
	"errors"
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
	o, err := ops.Open([]ops.Target{{Name: "orders", Store: w.db.store()}}, &ops.Options{By: "ana"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.Cancel(t.Context(), ops.CancelSpec{Key: w.key(), Reason: "the order was withdrawn"})
	if !amid {
		if cause := <-ended; !errors.Is(cause, onceq.ErrLeaseLost) {
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
