package webonceq

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

const secret = "dial tcp 10.1.2.3:5432: password authentication failed for user \"root\""

// The rule: who lacks Bodies reads no service's error, on no screen and in no JSON.
func TestHiddenTroubles(t *testing.T) {
	t.Parallel() // the store is asked for a while
	n := newNight(t, nil).usual()
	s := &rig.Store{Store: n.store, T: t}
	n.ops = must(ops.New([]ops.Target{{Name: "orders", Queue: n.orders, DeadLetters: n.dead, Store: s, Scopes: []string{"shop:charge"}}}, &ops.Options{By: "the program"}))
	n.open(&Options{Access: who("ana", All&^Bodies)})
	screens := n.screens()
	plan := n.planned("plan", n.group())
	s.Fails(errors.New(secret), onceqtest.Get, onceqtest.Claim)
	form := url.Values{"for": {"1h"}, "slots": {"1"}, "reason": {"x"}, "queue": {"orders"}, "scope": {"shop:charge"}, "key": {"parked-1"}, "fence": {"1"}, "to": {"done"}, "canary": {"0"}, "rate": {"0"}}
	see := func(what string, w *httptest.ResponseRecorder) {
		if strings.Contains(w.Body.String(), "10.1.2.3") {
			t.Errorf("%s: %d shows the store's error", what, w.Code)
		}
	}
	for _, path := range append(screens, "/key?key=order-1", "/api/queues.json", "/api/acts.json", "/api/audit.json", "/api/letters.json?queue=orders") {
		see(path, n.get(path))
	}
	for _, path := range []string{"/q/orders/pause", "/q/orders/limit", "/rules/x/end", "/key/resolve", "/key/forget", "/key/look", "/key/plan"} {
		see("POST "+path, n.post(path, form))
	}
	see("POST "+plan, n.post(plan+"/run", form))
	w := n.post("/q/orders/plan", url.Values{})
	see("a plan", n.get(n.made(w.Header().Get("Location"))))
	for _, x := range n.page.running.Acts() {
		for { // it ends because the store takes no audit
			changed := n.page.running.Changed()
			if x, _ = n.page.running.Act(x.ID); !x.Ended.IsZero() {
				break
			}
			<-changed
		}
		see("an act", n.get("/acts/"+x.ID))
		see("acts", n.get("/api/acts.json"))
	}
}

// group is a group of letters that the last pass has seen.
func (n *night) group() string { return must(n.page.board.Letters("orders")).Groups[0].Group.Group }

// stuck is a browser that does not read.
type stuck struct {
	h     http.Header
	in    chan struct{} // closed when something is written
	until chan time.Time
	gone  chan struct{}
}

func (w *stuck) Header() http.Header { return w.h }
func (w *stuck) WriteHeader(int)     {}
func (w *stuck) SetWriteDeadline(t time.Time) error {
	select {
	case w.until <- t:
	default:
	}
	return nil
}

func (w *stuck) Write([]byte) (int, error) {
	select {
	case <-w.in:
	default:
		close(w.in)
	}
	<-w.gone
	return 0, errors.New("gone")
}

// The rule: a browser that does not read an export keeps nobody from the letters for ever.
func TestExportToWhoDoesNotRead(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	n.waitLetters()
	w := &stuck{h: http.Header{}, in: make(chan struct{}), until: make(chan time.Time, 1), gone: make(chan struct{})}
	r := httptest.NewRequest(http.MethodGet, "/q/orders/letters/"+n.group()+"/export", nil)
	r.Host = "localhost"
	done := make(chan struct{})
	go func() { defer close(done); n.page.ServeHTTP(w, r) }()
	<-w.in
	select {
	case at := <-w.until:
		if d := time.Until(at); d <= 0 || d > writeFor {
			t.Errorf("the write may take %v", d)
		}
	default:
		t.Error("the write has no end, and the letters are the browser's until then")
	}
	close(w.gone)
	<-done
}

// The rule: what panics while a plan is made ends the plan alone.
func TestPlanPanics(t *testing.T) {
	n := newNight(t, nil).usual()
	n.ops = must(ops.New([]ops.Target{{Name: "orders", Queue: n.orders, DeadLetters: n.dead, Letters: must(dlq.New(panics{n.dead}, &dlq.Options{Name: "orders-dead"})), Store: n.store}}, &ops.Options{By: "p"}))
	n.open(&Options{Access: who("ana", All)})
	w := n.post("/q/orders/plan", url.Values{})
	if body := n.get(n.made(w.Header().Get("Location"))).Body.String(); !strings.Contains(body, "panicked") {
		t.Error(body)
	}
}

type panics struct{ broker.Broker }

func (panics) Receive(context.Context, broker.ReceiveOptions) ([]*broker.Message, error) {
	panic("a driver's bug")
}
