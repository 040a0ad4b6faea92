package life

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// The smallest stack has 2,048 bytes, of which the runtime keeps 928. What stands above a handler
// leaves it so much of the rest that one which only waits needs no larger stack: a held job then
// takes 2 KB less. The smallest stack begins at a multiple of its size, as larger ones do.
func TestHandlersStackIsSmall(t *testing.T) {
	const most = 720 // under the race detector 689, without it 473
	synctest.Test(t, func(t *testing.T) {
		q := benchQueue(t)
		var used uintptr
		w := must.Get(rig.NewWorker(rig.Setup{
			ProcessorConfig: onceq.ProcessorConfig{
				Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { used = deep(); return nil }),
				Store:   benchStore(t), Scope: "test",
			},
			WorkerConfig: onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue},
			Broker:       q,
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sendAll(ctx, t, q, 1)
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		if used == 0 || used > most {
			t.Errorf("%d bytes of the stack are used where the handler begins, want %d at most", used, most)
		}
	})
}

// deep is how far down its stack the caller is, where that is less than 2,048 bytes.
//
//go:noinline
func deep() uintptr {
	var here byte
	return -uintptr(unsafe.Pointer(&here)) % 2048
}

// A goroutine that has run a long job is replaced, because what came after the job has made its
// stack grow. One that has run a short job goes on.
func TestHandIsReplacedAfterALongJob(t *testing.T) {
	var by []string
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		by = append(by, rig.Goroutine())
		if j.Message.Meta.Key == "long" {
			<-time.After(time.Second)
		}
		return nil
	}, func(r *rig.Rig) {
		for _, key := range []string{"a", "b", "long", "c"} {
			r.Send(key)
			rig.Pass(time.Second)
		}
		r.RunFor(10 * time.Second)
		if len(by) != 4 || by[0] != by[1] || by[1] != by[2] || by[2] == by[3] {
			t.Errorf("the jobs ran in the goroutines %v", by)
		}
	}, rig.With(func(c *rig.Setup) { c.Concurrency = 1 }))
}
