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
	pubsubMinHold = 10 * time.Second
	pubsubMaxHold = 10 * time.Minute
	anyBatch      = 100
	longestWait   = 20 * time.Second
)

func (b *Broker) makeLimits() broker.Limits {
	l := broker.Limits{
		ReceiveBatch: anyBatch, SettleBatch: anyBatch, SendBatch: anyBatch, MaxWait: longestWait,
		Durable: true, PerRequestCost: b.sends != anyDriver || b.comes != anyDriver,
	}
	switch b.sends {
	case onSQS:
		l.SendBatch, l.MaxBody, l.MaxAttributes = sqsBatch, sqsBytes, sqsAttributes
		l.OrderedGroups, l.RequireGroup = b.o.Ordered, b.o.Ordered
		if !b.o.Ordered {
			l.MaxDelay = sqsDelay
		}
	case onPubSub:
		l.MaxBody, l.MaxAttributes = pubsubBytes, pubsubwire.MaxAttributes
	case anyDriver:
	}
	switch b.comes {
	case onSQS:
		l.ReceiveBatch, l.Attempts = sqsBatch, true
		l.OrderedGroups = b.o.Ordered
	case onPubSub:
		l.Attempts, l.OrderedGroups = b.o.Attempts, b.o.Ordered
	case anyDriver:
	}
	switch x := b.o.Extender; {
	case b.service == nil:
	case x != nil:
		l.Extends, l.MinHold, l.MaxHold, l.MaxTotal = true, x.MinHold, x.MaxHold, x.MaxTotal
	case b.comes == onSQS:
		l.SettleBatch = sqsBatch
		l.Extends, l.MinHold, l.MaxHold, l.MaxTotal, l.MaxNack = true, time.Second, sqsTotal, sqsTotal, sqsTotal
	default:
		l.Extends, l.MinHold, l.MaxHold, l.MaxNack = true, pubsubMinHold, pubsubMaxHold, pubsubMaxHold
	}
	return l
}
