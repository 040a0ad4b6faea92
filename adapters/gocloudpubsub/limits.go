package gocloudpubsub

import (
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pubsubwire"
)

// What the services allow.
const (
	sqsBatch      = 10
	sqsBytes      = 1 << 20
	sqsAttributes = 10
	sqsDelay      = 15 * time.Minute
	sqsTotal      = 12 * time.Hour
	pubsubBytes   = 8 << 20 // gocloud puts no more into one request
	pubsubMaxHold = 10 * time.Minute
	anyBatch      = 100
	longestWait   = 20 * time.Second
)

// makeLimits is what a Broker of these drivers can do; s is nil where gocloud settles.
func makeLimits(sends, comes kind, s *service, o *Options) broker.Limits {
	l := broker.Limits{
		ReceiveBatch: anyBatch, SettleBatch: anyBatch, SendBatch: anyBatch, MaxWait: longestWait,
		Durable: true, PerRequestCost: sends != anyDriver || comes != anyDriver,
	}
	switch sends {
	case onSQS:
		l.SendBatch, l.MaxBody, l.MaxAttributes = sqsBatch, sqsBytes, sqsAttributes
		l.OrderedGroups, l.RequireGroup = o.Ordered, o.Ordered
		if !o.Ordered {
			l.MaxDelay = sqsDelay
		}
	case onPubSub:
		l.MaxBody, l.MaxAttributes = pubsubBytes, pubsubwire.MaxAttributes
	case anyDriver:
	}
	switch comes {
	case onSQS:
		l.ReceiveBatch, l.Attempts = sqsBatch, true
		l.OrderedGroups = o.Ordered
	case onPubSub:
		l.Attempts, l.OrderedGroups = o.Attempts, o.Ordered
	case anyDriver:
	}
	switch x := o.Extender; {
	case s == nil:
	case x != nil:
		l.Extends, l.MinHold, l.MaxHold, l.MaxTotal = true, x.MinHold, x.MaxHold, x.MaxTotal
	case comes == onSQS:
		l.SettleBatch = sqsBatch
		l.Extends, l.MinHold, l.MaxHold, l.MaxTotal, l.MaxNack = true, time.Second, sqsTotal, sqsTotal, sqsTotal
	default:
		l.Extends, l.MinHold, l.MaxHold, l.MaxNack = true, pubsubMinHold, pubsubMaxHold, pubsubMaxHold
	}
	return l
}
