package dlq_test

import (
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// A letter is the message as it was, with the reason in its metadata. The worker makes and sends it; this is for whoever
// writes an entry point, or a tool, of their own.
func ExampleLetter() {
	m := &broker.Message{
		ID: "m-1", Body: []byte(`{"cents":995}`), Attributes: map[string]string{"tenant": "acme"},
		Meta: &broker.Meta{ID: "j-1", Key: "order-7"},
	}
	sqs := broker.Limits{MaxAttributes: 10}
	letter := dlq.Letter(m, dlq.Key{Scope: "payments", Key: "order-7"}, broker.Dead{
		Fence: 41, Class: "permanent", FirstErr: "no such account", LastErr: "no such account",
		Attempts: 1, Source: "payments", At: time.UnixMilli(1764000000000),
	}, dlq.FitFor(m, sqs))
	fmt.Printf("%s %v\n", letter.Body, letter.Attributes)
	fmt.Println(broker.EncodeMeta(letter.Meta))
	fmt.Println(letter.DedupID)
	// Output:
	// {"cents":995} map[tenant:acme]
	// {"v":1,"id":"j-1","k":"order-7","dead":{"f":41,"c":"permanent","fe":"no such account","le":"no such account","a":1,"s":"payments","at":1764000000000}}
	// 24ab6897eea698b60b599d9f8d8f84b5
}

// A queue with room for one attribute gets the user's inside our own.
func ExampleFitFor() {
	m := &broker.Message{
		ID: "m-1", Attributes: map[string]string{"tenant": "acme"},
		Meta: &broker.Meta{ID: "j-1", Key: "order-7"},
	}
	fit := dlq.FitFor(m, broker.Limits{MaxAttributes: 1})
	letter := dlq.Letter(m, dlq.Key{Scope: "payments", Key: "order-7"}, broker.Dead{Fence: 41, Class: "permanent"}, fit)
	fmt.Println(fit == dlq.Folded, len(letter.Attributes), letter.Meta.Dead.Attributes)
	// Output:
	// true 0 map[tenant:acme]
}
