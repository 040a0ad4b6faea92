package gocloudpubsub

import (
	"errors"

	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/wellknown"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// KeyMetadata is the metadata under which any publisher can name the job's idempotency key. The
// topics of [github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub] read the same.
const KeyMetadata = wellknown.Key

// KeyOf finds the key that a publisher gave to a message: the one in our metadata, else that under
// KeyMetadata, which any publisher can set, else the id in our metadata. Without one of them it is
// an error. It is for [github.com/onceq/onceq.ProcessorConfig].Key, which may also ask it first and
// then look elsewhere.
func KeyOf(m *broker.Message) (dedupe.Key, error) {
	key := ""
	if m.Meta != nil {
		key = m.Meta.Key
	}
	if key == "" {
		key = m.Attributes[KeyMetadata]
	}
	if key == "" && m.Meta != nil {
		key = m.Meta.ID
	}
	if key == "" {
		return dedupe.Key{}, errNoKey
	}
	return dedupe.Key{Key: key}, nil
}

var errNoKey = errors.New("gocloudpubsub: the message has neither our metadata nor metadata " + KeyMetadata)
