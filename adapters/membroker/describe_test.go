package membroker_test

import (
	"testing"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

func TestDescribe(t *testing.T) {
	b := must.Get(membroker.New(&membroker.Options{Name: "orders"}))
	if got, want := b.Describe(), (broker.Description{System: "onceq_memory", Name: "orders"}); got != want {
		t.Errorf("it is %+v, want %+v", got, want)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b.Describe().Name != "orders" {
		t.Error("a closed queue has lost its name")
	}
	if got := (*membroker.Broker)(nil).Describe(); got != (broker.Description{}) {
		t.Errorf("of nil it is %+v", got)
	}
}
