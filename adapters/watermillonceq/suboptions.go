package watermillonceq

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/values"
)

// The defaults of [SubscriberOptions].
const (
	DefaultConcurrency  = onceq.DefaultConcurrency
	DefaultVisibility   = onceq.DefaultVisibility
	DefaultCloseTimeout = 30 * time.Second
	DefaultCallTimeout  = onceq.DefaultCallTimeout
)

// SubscriberOptions say how messages are received. The zero value, and nil, mean the defaults.
type SubscriberOptions struct {
	// Concurrency is how many messages of one subscription may be on their way at once: handed on
	// and neither acked nor nacked, or about to be handed on. With 1 they come one by one. 0 =
	// DefaultConcurrency (10); at most 100,000. Messages of one group come one by one, where the
	// broker orders groups.
	Concurrency int
	// Visibility is how long a message stays hidden when its subscriber dies. Meanwhile heartbeats
	// extend it. 0 = DefaultVisibility (30 s); else within the broker's Limits.MinHold and MaxHold,
	// which Subscribe checks, and at least 10 ms.
	Visibility time.Duration
	// Grace is how long the contexts of messages outlive their subscription, so that handlers can
	// end their work. 0 = not at all, as with Watermill's other subscribers; else at least 1 ms and
	// less than CloseTimeout.
	Grace time.Duration
	// CloseTimeout is how long Close, and the end of a subscription, wait for the Ack or Nack of
	// messages that were handed on. After that a message comes again when its Visibility is over,
	// and its Ack does nothing. 0 = DefaultCloseTimeout (30 s); else at least 1 ms.
	CloseTimeout time.Duration
	// CallTimeout bounds one call of the broker. 0 = DefaultCallTimeout (5 s); else at least 1 ms.
	CallTimeout time.Duration
	// Backoff is how long a nacked message is hidden, by the broker's count of its deliveries, 1
	// where it does not count. The broker's longest delay is the limit. The subscription's
	// goroutines call it; where it panics, the message is not hidden. Default: 1 s, doubled up to
	// 1 min, half of it at random.
	Backoff func(deliveries int) time.Duration
	// Logger is told what fails. Default: none.
	Logger watermill.LoggerAdapter
}

func (o SubscriberOptions) withDefaults() SubscriberOptions {
	o.Concurrency = cmp.Or(o.Concurrency, DefaultConcurrency)
	o.Visibility = cmp.Or(o.Visibility, DefaultVisibility)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, DefaultCloseTimeout)
	o.CallTimeout = cmp.Or(o.CallTimeout, DefaultCallTimeout)
	if o.Backoff == nil {
		o.Backoff = func(n int) time.Duration { return retry.Within(time.Second, time.Minute, n) }
	}
	if values.IsNil(o.Logger) {
		o.Logger = watermill.NopLogger{}
	}
	return o
}

// mostConcurrency is the limit of SubscriberOptions.Concurrency.
const mostConcurrency = 100_000

func (o *SubscriberOptions) check() error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("watermillonceq: SubscriberOptions.%s: %s", field, fmt.Sprintf(format, args...))
	}
	switch {
	case o.Concurrency < 0 || o.Concurrency > mostConcurrency:
		return bad("Concurrency", "%d is not within 1 and %d", o.Concurrency, mostConcurrency)
	case o.Visibility < 10*time.Millisecond:
		return bad("Visibility", "%v is below 10ms", o.Visibility)
	case o.Grace < 0:
		return bad("Grace", "%v is negative", o.Grace)
	case durations.IsBare(o.Grace):
		return bad("Grace", "%s", durations.AskUnit(o.Grace))
	case o.CloseTimeout < durations.Least:
		return bad("CloseTimeout", "%s", durations.AskUnit(o.CloseTimeout))
	case o.Grace >= o.CloseTimeout:
		return bad("Grace", "%v is not less than CloseTimeout, %v", o.Grace, o.CloseTimeout)
	case o.CallTimeout < durations.Least:
		return bad("CallTimeout", "%s", durations.AskUnit(o.CallTimeout))
	}
	return nil
}
