package broker_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// decorated hides the powers of what it wraps, because it embeds an interface.
type decorated struct{ broker.Broker }

func (d *decorated) Unwrap() any { return d.Broker }

type round struct{ broker.Broker }

func (r *round) Unwrap() any { return r }

func TestAs(t *testing.T) {
	q := must.Get(membroker.New(&membroker.Options{Name: "orders"}))
	wrap := func(levels int) broker.Broker {
		var b broker.Broker = q
		for range levels {
			b = &decorated{b}
		}
		return b
	}
	for levels, want := range map[int]bool{0: true, 1: true, 8: true, 9: false} {
		d, ok := broker.As[broker.Describer](wrap(levels))
		if ok != want || ok && d.Describe().Name != "orders" {
			t.Errorf("%d levels down: found %v, want %v", levels, ok, want)
		}
	}
	var none *decorated
	for name, v := range map[string]any{"nil": nil, "a nil pointer": none, "one that wraps nil": &decorated{}, "one that wraps itself": &round{}, "another type": 7} {
		if d, ok := broker.As[broker.Depther](v); ok || d != nil {
			t.Errorf("%s: found %v, %v", name, d, ok)
		}
	}
	if _, ok := broker.As[broker.Sender](none); !ok {
		t.Error("a nil pointer has its type's own methods")
	}
}

// counting is a decorator that counts sends, and hides nothing of the queue.
type counting struct {
	broker.Broker
	sent int
}

func (c *counting) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	c.sent += len(ms)
	return c.Broker.Send(ctx, ms)
}

func (c *counting) Unwrap() any { return c.Broker }

func ExampleAs() {
	queue, err := membroker.New(&membroker.Options{Name: "orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	counted := &counting{Broker: queue} // it has no Depth of its own
	if d, ok := broker.As[broker.Depther](counted); ok {
		depth, err := d.Depth(context.Background())
		fmt.Println(depth.Visible, err)
	}
	if d, ok := broker.As[broker.Describer](counted); ok {
		fmt.Println(d.Describe().Name)
	}
	// Output:
	// 0 <nil>
	// orders
}
