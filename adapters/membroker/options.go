package membroker

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file owns the options, and what each preset means in limits and habits. New calls complete;
// the other files read Broker.rules. Nothing here changes after New, so nothing is locked.

// Options set up a broker. The zero value, and nil, mean the defaults.
type Options struct {
	// Name stands in errors and is the target in another broker's redrive policy. Default
	// "memory".
	Name string
	// Preset chooses limits and habits. Default Memory.
	Preset Preset
	// Visibility is how long a received message stays hidden when the receive does not say.
	// Default 30 s; within [broker.Limits.MinHold] and MaxHold of the preset.
	Visibility time.Duration
	// Redrive is the queue's own dead-lettering. Default nil: none.
	Redrive *Redrive
}

// Redrive moves a message to another queue, instead of delivering it once more, when it was
// received MaxReceives times and not acked. It moves at the end of its last delivery, or of that
// one's nack delay, without waiting for another receive. In the other queue its deliveries are
// counted from 1.
//
// The preset PubSub publishes it anew, as Pub/Sub does: new ID, new time, and attributes named
// CloudPubSubDeadLetterSource…. The others keep the ID. Of these, SQSFIFO alone sets a new time.
type Redrive struct {
	// MaxReceives is 1 or more; 1..1000 on the SQS presets, 5..100 on PubSub.
	MaxReceives int
	// To is the dead-letter queue; it has the same preset. While it is closed, messages
	// are delivered again instead.
	To *Broker
}

// Preset names the service whose limits and habits a broker has.
type Preset uint8

// The presets.
const (
	// Memory has generous limits (batches of 100, messages of 64 MiB, times of a year),
	// honours groups where they are set, and is strict about receipts.
	Memory Preset = iota
	// SQSStandard is a standard SQS queue. Groups are carried and order nothing.
	SQSStandard
	// SQSFIFO is a FIFO SQS queue. Every message needs a group. A message without a DedupID is
	// taken as a new one.
	SQSFIFO
	// PubSub is a Pub/Sub topic with one subscription: ordering on, exactly-once delivery
	// off.
	PubSub
)

// String is the preset's name as it is written in code.
func (p Preset) String() string {
	switch p {
	case Memory:
		return "Memory"
	case SQSStandard:
		return "SQSStandard"
	case SQSFIFO:
		return "SQSFIFO"
	case PubSub:
		return "PubSub"
	}
	return fmt.Sprintf("Preset(%d)", uint8(p))
}

const (
	defaultName       = "memory"
	defaultVisibility = 30 * time.Second
	dedupWindow       = 5 * time.Minute
	sqsMaxInFlight    = 120_000
	// longest is the Memory preset's bound for delays, so that an absurd one is an error and not an
	// overflow.
	longest = 365 * 24 * time.Hour
)

// preset is what a Preset stands for.
type preset struct {
	limits broker.Limits
	// maxInFlight is the most messages in flight.
	maxInFlight int
	// throttles: a receive over maxInFlight that does not wait is an error instead of empty.
	throttles bool
	// lenient: a receipt that is no longer good answers success; a late ack removes.
	lenient bool
	// holdsNack: a nack with a delay leaves the delivery in flight, its receipt valid.
	holdsNack bool
	// groups: the order of groups is kept.
	groups bool
	dedup  bool
	// republishes: redrive makes a new message.
	republishes bool
	// retimes: redrive sets a new publish time.
	retimes                  bool
	minReceives, maxReceives int
	// maxBatch is the most bytes of one Send, 0 = no limit.
	maxBatch int
	// perAttribute is what an attribute counts besides its name and value.
	perAttribute int
	// maxName and maxValue bound the bytes of one attribute, 0 = no limit.
	maxName, maxValue int
	// maxGroup bounds the bytes of a group's name, 0 = no limit.
	maxGroup int
	// maxDedupID bounds the bytes of a DedupID, 0 = no limit.
	maxDedupID int
}

func presetOf(p Preset) (preset, bool) {
	sqs := preset{
		limits: broker.Limits{
			ReceiveBatch: 10, SettleBatch: 10, SendBatch: 10,
			MinHold: time.Second, MaxHold: 12 * time.Hour, MaxTotal: 12 * time.Hour,
			MaxNack: 12 * time.Hour, MaxDelay: 15 * time.Minute, MaxWait: 20 * time.Second,
			MaxBody: 1 << 20, MaxAttributes: 10,
			Attempts: true, Extends: true, PerRequestCost: true,
		},
		maxInFlight: sqsMaxInFlight, throttles: true, lenient: true, holdsNack: true,
		minReceives: 1, maxReceives: 1000, maxBatch: 1 << 20, perAttribute: len("String"), maxGroup: 128,
	}
	switch p {
	case Memory:
		return preset{
			limits: broker.Limits{
				ReceiveBatch: 100, SettleBatch: 100, SendBatch: 100,
				MinHold: time.Millisecond, MaxHold: longest,
				MaxNack: longest, MaxDelay: longest, MaxWait: time.Hour,
				MaxBody: 64 << 20, MaxAttributes: 1000,
				Attempts: true, OrderedGroups: true, Extends: true,
			},
			maxInFlight: math.MaxInt, groups: true, minReceives: 1, maxReceives: math.MaxInt,
		}, true
	case SQSStandard:
		return sqs, true
	case SQSFIFO:
		sqs.limits.MaxDelay = 0
		sqs.limits.OrderedGroups, sqs.limits.RequireGroup = true, true
		sqs.throttles, sqs.lenient = false, false
		sqs.groups, sqs.dedup, sqs.retimes = true, true, true
		sqs.maxDedupID = 128
		return sqs, true
	case PubSub:
		return preset{
			limits: broker.Limits{
				ReceiveBatch: 1000, SettleBatch: 1000, SendBatch: 1000,
				MinHold: 10 * time.Second, MaxHold: 600 * time.Second,
				MaxNack: 600 * time.Second, MaxWait: 30 * time.Second,
				MaxBody: 10_000_000, MaxAttributes: 100,
				OrderedGroups: true, Extends: true, PerRequestCost: true,
			},
			maxInFlight: math.MaxInt, lenient: true, holdsNack: true, groups: true,
			republishes: true, retimes: true, minReceives: 5, maxReceives: 100,
			maxBatch: 10_000_000, maxName: 256, maxValue: 1024, maxGroup: 1024,
		}, true
	}
	return preset{}, false
}

// complete fills in the defaults and checks the rest.
func (o Options) complete() (Options, preset, error) {
	o.Name = cmp.Or(o.Name, defaultName)
	p, ok := presetOf(o.Preset)
	if !ok {
		return o, p, fmt.Errorf("membroker: Options.Preset: %v is none of the presets", o.Preset)
	}
	if o.Visibility == 0 {
		o.Visibility = defaultVisibility
	}
	if l := p.limits; o.Visibility < l.MinHold || o.Visibility > l.MaxHold {
		return o, p, fmt.Errorf("membroker: Options.Visibility: %v is not within %v and %v, the limits of preset %v",
			o.Visibility, l.MinHold, l.MaxHold, o.Preset)
	}
	if o.Redrive == nil {
		return o, p, nil
	}
	r := *o.Redrive
	o.Redrive = &r
	switch {
	case r.To == nil:
		return o, p, errors.New("membroker: Options.Redrive.To: nil; it names the queue that takes the dead letters")
	case r.To.preset != o.Preset:
		return o, p, fmt.Errorf("membroker: Options.Redrive.To: preset %v; it must be that of the source, %v", r.To.preset, o.Preset)
	case r.MaxReceives < p.minReceives || r.MaxReceives > p.maxReceives:
		return o, p, fmt.Errorf("membroker: Options.Redrive.MaxReceives: %d is not within %d and %d, the limits of preset %v",
			r.MaxReceives, p.minReceives, p.maxReceives, o.Preset)
	}
	// Pub/Sub counts deliveries only where a dead-letter policy needs the number.
	p.limits.Attempts = true
	return o, p, nil
}
