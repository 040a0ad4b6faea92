package dynamostore

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/storetest"
)

// TestRules: of rules that many operators edit at once no edit is lost, and an operator who dies
// leaves them whole.
func TestRules(t *testing.T) {
	t.Run("rivals", func(t *testing.T) { storetest.EditRules(t, openStore(t), 8, 25) })
	t.Run("deaths", func(t *testing.T) { storetest.KillOperators(t, openStore(t)) })
}

// TestBeatCost: what a worker writes each time it renews its seat is one write unit, and what it
// reads are the rules, in one read unit.
func TestBeatCost(t *testing.T) {
	m := &oneItem{tb: t}
	seen := object{}
	s, calls := warmed(t, func(c stubCall) stubAnswer {
		switch c.op {
		case "GetItem":
			return stubAnswer{out: object{}}
		case "UpdateItem":
			values, _ := c.in["ExpressionAttributeValues"].(object)
			for name, v := range values {
				seen[strings.TrimPrefix(name, ":")] = v
			}
			return applied
		}
		a := m.answer(c)
		maps.Copy(seen, m.item)
		return a
	})
	const owner = "ip-10-0-131-77.eu-central-1.compute.internal/28411"
	seat := must.Get(controlstore.NewSeat(s, controlstore.SeatOptions{Queue: "orders-eu-central-1-production", Owner: owner}))
	card := &control.WorkerStatus{
		Version: "v0.9.2", Scope: "orders", Types: []string{"charge", "refund"}, At: time.Now(), Started: time.Now(), Slots: 100, Busy: 8, State: "running",
		Outcomes: map[string]uint64{"done": 1_234_567, "retried": 512}, Durations: map[string]control.Quantiles{"charge": {P95: time.Second}},
	}
	for i := range 8 {
		id := fmt.Sprintf("0198c1d2-7d4f-7a3b-9c0d-%012d", i)
		card.Jobs = append(card.Jobs, control.RunningJob{Key: id, ID: id, Type: "charge", At: time.Now(), Attempt: 1, Fence: 1_795_318_330_000_000})
	}
	if err := seat.Beat(t.Context(), card); err != nil {
		t.Fatal(err)
	}
	was := len(calls.calls)
	const beats = 100
	for range beats {
		if err := seat.Beat(t.Context(), card); err != nil {
			t.Fatal(err)
		}
		if _, err := controlstore.Read(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if writes, reads, all := len(calls.of("UpdateItem")), len(calls.of("GetItem")), len(calls.calls)-was; writes != beats+1 || all != 2*beats {
		t.Errorf("%d beats are %d writes, %d reads, %d requests", beats, writes, reads, all)
	}
	size := 0
	for name, v := range seen {
		n := bytesOf(t, v)
		size += len(name) + n
	}
	if size > 1024 || size < 600 {
		t.Errorf("the item of a seat has %d bytes", size)
	}
}

// bytesOf is how many bytes DynamoDB counts for a value: a number has one for two digits, and one
// more.
func bytesOf(tb testing.TB, v any) int {
	for kind, x := range v.(object) {
		s, _ := x.(string)
		switch kind {
		case "S":
			return len(s)
		case "B":
			return len(s) / 4 * 3 // base64
		case "N":
			return (len(s)+1)/2 + 1
		case "BOOL":
			return 1
		}
	}
	tb.Fatalf("the value is %v", v)
	return 0
}
