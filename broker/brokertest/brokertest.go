// Package brokertest checks that a driver keeps the contract of package broker.
//
// A driver's test is one call:
//
//	func TestConformance(t *testing.T) {
//		brokertest.Run(t, brokertest.Harness{
//			Virtual: true,
//			Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
//				b := mydriver.New(mydriver.Options{Visibility: o.Visibility})
//				return brokertest.Queue{Broker: b, Close: b.Close}
//			},
//		})
//	}
//
// Each case is a subtest with a queue of its own, and each failure names the rule that was broken.
// The suite does not test what a driver's Limits say that it cannot do. It reports such a case as
// ruled out, and the last line of the log counts them.
//
// With [Harness].Virtual each case runs in its own testing/synctest bubble, where hours cost
// nothing and times are checked exactly. That works when the driver, and what stands for the
// service behind it, block on channels and timers only. Otherwise the cases run in real time, all
// at once, with the shortest timeouts that the harness allows. That takes seconds when go test's
// -parallel flag is well above the number of cores.
package brokertest

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/suite"
)

// This file owns the suite's entrance: what a driver's author hands over (Harness), and how a case
// is run. A driver's test calls Run, and internal/suite calls check, once for each case and in real
// time for many cases at once. Nothing is locked, because each case has an env of its own. The
// cases are in files named by their topic.

// Harness tells the suite how to make queues and what to expect of them. Open is required.
type Harness struct {
	// Open makes a queue that is new, empty and used by one case alone, and releases it
	// through t.Cleanup. It is called inside the case's bubble when Virtual is set.
	Open func(t testing.TB, o QueueOptions) Queue
	// Virtual runs each case in a synctest bubble.
	Virtual bool
	// Visibility is the timeout of the queues. In real time it should be as short as the service
	// allows, and at least ten times as long as a call takes. An available message may take half of
	// it to arrive. Default 30 s when Virtual, else 2 s.
	Visibility time.Duration
	// Slack is how late a message may become visible; it may never be early. A service that counts
	// in whole seconds needs one, and so does a server beside which others work. Default 1 ms when
	// Virtual, else half of Visibility, and 2 s at least.
	Slack time.Duration
	// DedupWindow is how long a DedupID swallows another send with the same one; 0 = the
	// driver has no such thing and must ignore it.
	DedupWindow time.Duration
	// DedupPerGroup says that a DedupID counts within its group; false = in the whole queue.
	DedupPerGroup bool
	// StaleReceiptsVoid says that the service promises this: a receipt changes nothing once its
	// message was delivered again. SQS does not promise it for standard queues. There such a
	// receipt may or may not work, and with false both pass.
	StaleReceiptsVoid bool
	// Missing makes a broker for a queue that is not there; nil rules its case out.
	Missing func(t testing.TB) broker.Broker
	// Known names the cases in which what stands for the service is known to differ, with
	// the reason. Such a case must fail: when it passes, the suite asks for its removal.
	Known map[string]string
	// Unsteady names the cases in which what stands for the service differs at times, with the
	// reason. Such a case runs, and what fails in it is told and fails no test. A driver's own
	// service never needs it.
	Unsteady map[string]string
}

// QueueOptions say what queue a case needs.
type QueueOptions struct {
	// Visibility is the timeout of a received message.
	Visibility time.Duration
	// Groups asks for a queue that orders messages of one group, where the driver knows several
	// kinds. Limits say which kind came.
	Groups bool
	// MaxReceives asks for a queue that dead-letters by itself after so many receives;
	// 0 = one that does not.
	MaxReceives int
}

// Queue is a queue under test. Broker is required; a nil hook rules out the cases that need it.
type Queue struct {
	Broker broker.Broker
	// Close closes the broker, as its owner would.
	Close func() error
	// SendRaw sends as another producer would, past the driver: these attributes and no
	// others. When the group is required, it chooses one.
	SendRaw func(ctx context.Context, body []byte, attributes map[string]string) error
	// Throttle has the service throttle every call, until it is called with false. Where a service
	// throttles whole batches as well as single entries of them, give a Harness for each.
	Throttle func(on bool)
	// DeadLetters reads the queue to which QueueOptions.MaxReceives moves messages.
	DeadLetters broker.Receiver
}

// Run checks the driver that h makes, one subtest for each case.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Open == nil {
		t.Fatal("brokertest: Harness.Open is nil")
	}
	h.suite().Run(t)
}

// suite are the cases, on h.
func (h Harness) suite() *suite.Suite[*env, QueueOptions] {
	h = h.withDefaults()
	return &suite.Suite[*env, QueueOptions]{
		Name: "brokertest", Virtual: h.Virtual, Known: h.Known, Unsteady: h.Unsteady, Cases: cases(),
		Open: func(e *suite.Env, o QueueOptions) *env { return newEnv(e, h, o) },
	}
}

func (h Harness) withDefaults() Harness {
	if h.Virtual {
		h.Visibility = cmp.Or(h.Visibility, 30*time.Second)
		h.Slack = cmp.Or(h.Slack, time.Millisecond)
	} else {
		h.Visibility = cmp.Or(h.Visibility, 2*time.Second)
		h.Slack = cmp.Or(h.Slack, max(2*time.Second, h.Visibility/2))
	}
	return h
}
