package snippets

import (
	"encoding/json"
	"errors"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

func orderKey(m *broker.Message) (dedupe.Key, error) {
	if m.Meta != nil && m.Meta.Key != "" { // one of our own producers
		return dedupe.Key{Key: m.Meta.Key}, nil
	}
	var body struct{ OrderID string }
	if err := json.Unmarshal(m.Body, &body); err != nil || body.OrderID == "" {
		return dedupe.Key{}, errors.New("no OrderID in the body")
	}
	return dedupe.Key{Key: body.OrderID}, nil
}
