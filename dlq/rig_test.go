package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/retry"
	rigs "github.com/onceq/onceq/internal/rig"
)

var errFault = errors.New("fault")

// presets are the services that the tests run on.
var presets = []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.SQSFIFO, membroker.PubSub}

// onEach runs a test on each preset, in virtual time.
func onEach(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	for _, p := range presets {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newRig(t, p, nil)) })
		})
	}
}

// in runs a test on the memory preset, in virtual time.
func in(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t, membroker.Memory, nil)) })
}

// rig is a queue and its dead-letter queue.
type rig struct {
	t           *testing.T
	queue, dead *faulty.Broker
	dlq         *dlq.Queue
}

func newRig(t *testing.T, p membroker.Preset, o *dlq.Options) *rig {
	t.Helper()
	r := &rig{t: t}
	for _, b := range []**faulty.Broker{&r.queue, &r.dead} {
		m, err := membroker.New(&membroker.Options{Preset: p})
		if err != nil {
			t.Fatal(err)
		}
		*b = &faulty.Broker{Broker: m}
	}
	r.dlq = open(t, r.dead, o)
	return r
}

func open(t *testing.T, b broker.Receiver, o *dlq.Options) *dlq.Queue {
	t.Helper()
	q, err := dlq.New(b, o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// letterOf is a letter of a job that failed just now.
func letterOf(key string, fence uint64, change ...func(*broker.Outgoing)) broker.Outgoing {
	o := broker.Outgoing{
		Body: []byte("body of " + key), Group: "g-" + key,
		Meta: &broker.Meta{
			ID: "j-" + key, Type: "charge", Key: key, Created: time.Now(),
			Dead: &broker.Letter{
				Fence: fence, Class: "permanent", FirstErr: "first", LastErr: "no such account", Attempts: 2,
				Source: "payments", At: time.Now(),
			},
		},
	}
	if fence == 0 {
		o.Meta.Dead.Class, o.Meta.Dead.Attempts = "mismatch", 0
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func class(c string) func(*broker.Outgoing) {
	return func(o *broker.Outgoing) { o.Meta.Dead.Class = c }
}

func noMeta(o *broker.Outgoing) { o.Meta = nil }

// put puts letters into the dead-letter queue; afterwards a moment passes.
func (r *rig) put(ls ...broker.Outgoing) {
	r.t.Helper()
	for chunk := range slices.Chunk(ls, 10) {
		if _, err := r.dead.Send(context.Background(), chunk); err != nil {
			r.t.Fatal(err)
		}
	}
	pass(time.Millisecond)
}

// putN puts n letters with the keys k-0, k-1, … and fences from 1, a second apart.
func (r *rig) putN(n int) {
	r.t.Helper()
	for i := range n {
		r.put(letterOf(fmt.Sprint("k-", i), uint64(i+1)))
		pass(time.Second)
	}
}

func pass(d time.Duration) {
	retry.Rest(context.Background(), d)
}

// depth wants so many visible messages, and none hidden.
func (r *rig) depth(b *faulty.Broker, name string, want int64) {
	r.t.Helper()
	d, err := b.Depth(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	if d != (broker.Depth{Visible: want}) {
		r.t.Errorf("%s: %+v, want %d visible", name, d, want)
	}
}

func (r *rig) depths(dead, queue int64) {
	r.t.Helper()
	r.depth(r.dead, "dead-letter queue", dead)
	r.depth(r.queue, "queue", queue)
}

// drain takes all messages out of a queue.
func (r *rig) drain(b *faulty.Broker) []*broker.Message {
	r.t.Helper()
	return rigs.TakeAll(r.t, b)
}

func keys(ms []*broker.Message) []string {
	var ks []string
	for _, m := range ms {
		if m.Meta == nil {
			ks = append(ks, "body "+string(m.Body))
			continue
		}
		ks = append(ks, m.Meta.Key)
	}
	slices.Sort(ks)
	return ks
}

func (r *rig) list(f dlq.Filter) (es []dlq.Entry, err error) {
	for e, err := range r.dlq.List(context.Background(), f) {
		if err != nil {
			return es, err
		}
		es = append(es, e)
	}
	return es, nil
}

// replay replays to the rig's queue.
func (r *rig) replay(o dlq.ReplayOptions) (dlq.Report, error) {
	if o.To == nil {
		o.To = r.queue
	}
	return r.dlq.Replay(context.Background(), o)
}

// mustReplay wants no error.
func (r *rig) mustReplay(o dlq.ReplayOptions) dlq.Report {
	r.t.Helper()
	rep, err := r.replay(o)
	if err != nil {
		r.t.Fatalf("%v, after %v", err, rep)
	}
	return rep
}

// report compares a report's numbers: seen, replayed, copies, skipped, failed, unchosen, newer,
// unacked.
func (r *rig) report(got dlq.Report, want ...int) {
	r.t.Helper()
	g := []int{got.Seen, got.Replayed, got.Copies, len(got.Skipped), len(got.Failed), got.Unchosen, got.Newer, got.Unacked}
	for len(want) < len(g) {
		want = append(want, 0)
	}
	if !slices.Equal(g, want) {
		r.t.Errorf("report %v, want %v (seen, replayed, copies, skipped, failed, unchosen, newer, unacked)\n%s", g, want, got)
	}
}

func equal[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
