package snippets

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/fan"
)

func TestFan(t *testing.T) {
	store, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	queue, err := membroker.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	letters, err := membroker.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	booked := 0
	months := onceq.Kind[[]string]{Type: "month", Key: func([]string) string { return "2026-11" }}
	var mux onceq.Mux
	handle(&mux, func(_ context.Context, _ *onceq.Job, customer string) (int, error) { return len(customer), nil })
	months.On(&mux, month(store, queue, func(_ context.Context, _ string, cents int) error {
		booked = cents
		stop()
		return nil
	}))
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: &mux, Store: store, Scope: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: letters})
	if err != nil {
		t.Fatal(err)
	}
	if err := months.Send(ctx, queue, []string{"a", "bb", "ccc"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if booked != 6 {
		t.Errorf("%d were booked, want 6", booked)
	}

	child := fan.Key(dedupe.Key{Scope: "billing:month", Key: "2026-11"}, "invoices", 2)
	answer := httptest.NewRecorder()
	total(answer, httptest.NewRequest(http.MethodGet, "/?id="+child, nil), store)
	if got := answer.Body.String(); answer.Code != http.StatusOK || got != "3\n" {
		t.Errorf("the page answers %d %q", answer.Code, got)
	}

	for range 2 {
		if err := onClick(t.Context(), store, queue, "A-1", nil); err != nil {
			t.Fatal(err)
		}
	}
}
