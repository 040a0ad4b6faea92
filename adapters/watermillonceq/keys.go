package watermillonceq

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// KeyMetadata is the metadata in which a message carries its idempotency key. A producer sets it:
//
//	msg.Metadata.Set(watermillonceq.KeyMetadata, "order-7")
//
// A [Publisher] makes it the job's key. The middleware sets it in the messages that a handler
// produces, unless the handler has set another one than the message that it got.
const KeyMetadata = "onceq_key"

// ErrNoKey answers a message without an idempotency key. Such an error is final, see [IsFinal].
var ErrNoKey = errors.New("watermillonceq: the message has no idempotency key")

// KeyFunc finds a message's idempotency key. Handlers' goroutines call it. An answer with an empty
// Key counts as [ErrNoKey], because messages without a key are not one job.
//
// With an empty Scope in the answer the scope is the Processor's, and each handler of a Router has
// keys of its own there, by the handler's name, because two handlers of one topic do two things.
// Renaming a handler makes other keys. With a Scope the key is taken as it is.
type KeyFunc func(*message.Message) (dedupe.Key, error)

// KeyFromMetadata is the [KeyFunc] where Options do not name another. It takes [KeyMetadata], else
// the key, else the id, of the job that onceq's own sender has sent (broker.MetaAttribute). Where
// there is neither, its error is [ErrNoKey].
func KeyFromMetadata(msg *message.Message) (dedupe.Key, error) {
	if k := msg.Metadata.Get(KeyMetadata); k != "" {
		return dedupe.Key{Key: k}, nil
	}
	text := msg.Metadata.Get(broker.MetaAttribute)
	if text == "" {
		return dedupe.Key{}, ErrNoKey
	}
	meta, err := broker.DecodeMeta(text)
	if err != nil {
		return dedupe.Key{}, err
	}
	k := cmp.Or(meta.Key, meta.ID)
	if k == "" {
		return dedupe.Key{}, ErrNoKey
	}
	return dedupe.Key{Key: k}, nil
}

// KeyFromUUID takes the message's UUID for its key. Beware: Watermill says that a UUID is for
// debugging, and that it may be empty. It is a key only where all these hold:
//
//   - Each producer makes a new one for each piece of work, as watermill.NewUUID does. Two messages
//     with one UUID are one job here, and one of them is dropped.
//   - A producer that repeats a publish repeats it with the same message. A new message for the
//     same work has another UUID, and the work is done twice.
//   - The Pub/Sub keeps it over all deliveries.
//
// A key of the business, such as the order's number, has none of these conditions.
func KeyFromUUID(msg *message.Message) (dedupe.Key, error) {
	if msg.UUID == "" {
		return dedupe.Key{}, ErrNoKey
	}
	return dedupe.Key{Key: msg.UUID}, nil
}

// InScope is the keys of f in a scope, as they are: handlers that are given the same scope share
// them, and so does an onceq Worker whose Scope it is. A worker under a Mux has scopes of its own
// for types.
func InScope(scope string, f KeyFunc) KeyFunc {
	return func(msg *message.Message) (dedupe.Key, error) {
		k, err := f(msg)
		k.Scope = scope
		return k, err
	}
}

// noKey is the error of a message whose key cannot be found.
func noKey(err error) error {
	if errors.Is(err, ErrNoKey) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoKey, err)
}
