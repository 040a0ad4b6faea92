package snippets

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/broker"
)

// One of our own messages keeps its key, another producer's is named by its order, and one without
// an order has no key.
func TestOrderKey(t *testing.T) {
	for _, c := range []struct {
		message broker.Message
		want    string
	}{
		{broker.Message{Meta: &broker.Meta{Key: "k"}, Body: []byte(`{"OrderID": "A-1"}`)}, "k"},
		{broker.Message{Body: []byte(`{"OrderID": "A-1"}`)}, "A-1"},
		{broker.Message{Body: []byte(`{}`)}, ""},
		{broker.Message{Body: []byte(`<order/>`)}, ""},
	} {
		key, err := orderKey(&c.message)
		require.Equal(t, c.want, key.Key)
		require.Equal(t, c.want == "", err != nil)
	}
}
