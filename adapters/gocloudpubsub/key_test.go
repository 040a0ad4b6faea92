package gocloudpubsub_test

import (
	"testing"

	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/broker"
)

func TestDriverKeyOf(t *testing.T) {
	attributes := map[string]string{gocloudpubsub.KeyMetadata: "attribute"}
	for _, c := range []struct {
		m    broker.Message
		want string
	}{
		{broker.Message{Meta: &broker.Meta{Key: "key", ID: "id"}, Attributes: attributes}, "key"},
		{broker.Message{Meta: &broker.Meta{ID: "id"}, Attributes: attributes}, "attribute"},
		{broker.Message{Attributes: attributes}, "attribute"},
		{broker.Message{Meta: &broker.Meta{ID: "id"}}, "id"},
		{broker.Message{ID: "the broker's own", Body: []byte("x")}, ""},
	} {
		got, err := gocloudpubsub.KeyOf(&c.m)
		if got.Key != c.want || got.Scope != "" || (err == nil) != (c.want != "") {
			t.Errorf("%+v: got %+v and %v, want %q", c.m, got, err, c.want)
		}
	}
}
