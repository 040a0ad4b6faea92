package awssqs_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/sqsfake"
)

// world is a server, a queue with its dead-letter queue, and a store, for workers that come and go
// in virtual time.
type world struct {
	*rig.World
	srv           *sqsfake.Server
	url, dlqURL   string
	queue, letter *awssqs.Broker // the test's own
}

// inWorld runs f twice: with the receipt handles of earlier receives at work, and ignored. AWS does
// either.
func inWorld(t *testing.T, fifo bool, f func(w *world)) {
	t.Helper()
	if fifo { // there they are refused
		inWorldOf(t, fifo, sqsfake.StaleRandom, f)
		return
	}
	for _, stale := range []sqsfake.StaleHandles{sqsfake.StaleWork, sqsfake.StaleIgnored} {
		name, err := stale.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		t.Run("old handles: "+string(name), func(t *testing.T) { inWorldOf(t, fifo, stale, f) })
	}
}

func inWorldOf(t *testing.T, fifo bool, stale sqsfake.StaleHandles, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{World: rig.NewWorld(t), srv: fake(t, &sqsfake.Options{StaleHandles: stale})}
		c := fakeClient(w.srv)
		w.url, w.dlqURL = makeQueue(t, c, fifo, nil), makeQueue(t, c, fifo, nil)
		w.queue, w.letter = makeBroker(t, c, w.url, nil), makeBroker(t, c, w.dlqURL, nil)
		w.Sender = w.queue
		w.Queues = func(p *onceqtest.Process) (queue, letters broker.Broker) {
			c := newClient(w.srv.URL, func(o *sqs.Options) { o.HTTPClient = mortal{p, w.srv} })
			return makeBroker(t, c, w.url, nil), makeBroker(t, c, w.dlqURL, nil)
		}
		f(w)
	})
}

// mortal lets a process's requests out while it lives.
type mortal struct {
	p   *onceqtest.Process
	srv *sqsfake.Server
}

func (m mortal) Do(r *http.Request) (res *http.Response, err error) {
	err = m.p.Call(r.Context(), "http", func(context.Context) (err error) {
		res, err = m.srv.Client().Do(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// once checks that each of n jobs has had its effect once, and that nothing is left.
func (w *world) once(n int) {
	w.Helper()
	w.Once(n)
	w.empty(w.url)
	w.empty(w.dlqURL)
}

func (w *world) empty(url string) {
	w.Helper()
	as := w.attributes(url)
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		if as[name] != "0" {
			w.Errorf("%s: %s is %s", url, name, as[name])
		}
	}
}

func (w *world) attributes(url string) map[string]string {
	w.Helper()
	out, err := fakeClient(w.srv).GetQueueAttributes(w.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		w.Fatal(err)
	}
	return out.Attributes
}

// delivered is how many messages the receives have brought.
func (w *world) delivered() (n int) {
	for _, r := range w.srv.Requests() {
		n += r.Messages
	}
	return n
}
