package onceq_test

import (
	"encoding/json"
	"fmt"
	"log"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
)

// An outbox stores messages in the transaction that makes their jobs, and sends them later. Fill
// gives them their ids before they are stored: however often the outbox sends one, it is the same
// job.
func ExampleFill() {
	ms := []broker.Outgoing{onceq.Message("mail", "", []byte(`{"to":"ada@example.com"}`))}
	if err := onceq.Fill(ms); err != nil {
		log.Fatal(err)
	}
	row, err := json.Marshal(ms[0]) // what the table of the outbox holds
	if err != nil {
		log.Fatal(err)
	}

	var first, second broker.Outgoing // two tries of the relay
	for _, m := range []*broker.Outgoing{&first, &second} {
		if err := json.Unmarshal(row, m); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("the same job:", first.Meta.ID != "" && first.Meta.ID == second.Meta.ID && first.Meta.Key == second.Meta.Key)
	// Output:
	// the same job: true
}
