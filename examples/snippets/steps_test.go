package snippets

import (
	"context"
	"net/http"
	"testing"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

type receipts struct{ calls int }

func (r *receipts) Charge(context.Context, string, int) (string, error) {
	r.calls++
	return "ch_1", nil
}

func (r *receipts) Receipt(context.Context, string, string) (string, error) {
	r.calls++
	return "sent", nil
}

func TestSteps(t *testing.T) {
	store, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "s"})
	if err != nil {
		t.Fatal(err)
	}
	b, moved := &receipts{}, 0
	for range 2 {
		_, err := onceq.Do(t.Context(), p, dedupe.Key{Key: "a"}, nil, func(ctx context.Context, j *onceq.Job) (int, error) {
			if err := charged(ctx, j, b, b); err != nil {
				return 0, err
			}
			if err := moveRows(ctx, j, 3000, func(from, to int) error { moved += to - from; return nil }); err != nil {
				return 0, err
			}
			return 0, trial(ctx, j, func(context.Context) error { return nil })
		})
		if err == nil {
			t.Fatal("the trial is over at once")
		}
	}
	if b.calls != 2 || moved != 3000 {
		t.Errorf("%d calls, %d rows", b.calls, moved)
	}
	if limited(&http.Response{StatusCode: 429, Status: "429"}) == nil || limited(&http.Response{StatusCode: 200}) != nil {
		t.Error("limited tells a 429 wrongly")
	}
	queue, err := membroker.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := membroker.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = onceq.NewProcessor(onceq.ProcessorConfig{
		Store: store, Scope: "s", Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := carrying(p, queue, dead); err != nil {
		t.Error(err)
	}
}
