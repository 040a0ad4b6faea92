package gocloudpubsub

import (
	"runtime"
	"strconv"
	"time"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/broker"
)

// This file owns the deliveries that are not settled yet: gocloud's messages, by the receipts that
// the Broker made for them. Receive enters them, settles take them out. Broker.mu guards the ledger
// and all of its deliveries.

// delivery is one message of gocloud.
type delivery struct {
	m        *pubsub.Message
	from     *source
	received time.Time // at the latest
	until    time.Time // the deadline that is known
}

// source is a subscription, and how many of its deliveries are not settled. b.mu guards it.
type source struct {
	sub    *pubsub.Subscription
	open   int
	asked  bool // gocloud may hold messages
	failed bool
	gone   bool
}

type ledger struct {
	prefix string
	n      uint64
	of     map[broker.Receipt]*delivery
	sweep  int // how many there are when those that ran out are looked for
}

func (l *ledger) init(prefix string) {
	l.prefix, l.of, l.sweep = prefix+"-", make(map[broker.Receipt]*delivery), 1000
}

// enter gives the delivery its receipt.
func (l *ledger) enter(d *delivery) broker.Receipt {
	l.n++
	r := broker.Receipt(l.prefix + strconv.FormatUint(l.n, 36))
	l.of[r] = d
	d.from.open++
	return r
}

// leave takes out what is settled, or will never be.
func (l *ledger) leave(r broker.Receipt) {
	if d := l.of[r]; d != nil {
		delete(l.of, r)
		d.from.open--
	}
}

// lapsed takes out the deliveries that ran out so long ago that nobody will settle them, and
// answers their sources. It looks where there are many, or where asked to.
func (l *ledger) lapsed(now time.Time, keep time.Duration, look bool) (from []*source) {
	if len(l.of) < l.sweep && !look {
		return nil
	}
	for r, d := range l.of {
		if now.Sub(d.until) > keep {
			silence(d.m)
			l.leave(r)
			from = append(from, d.from)
		}
	}
	l.sweep = max(1000, 2*len(l.of))
	return from
}

func (l *ledger) clear() {
	for r, d := range l.of {
		silence(d.m)
		delete(l.of, r)
	}
}

// silence keeps gocloud from writing to the standard logger that nobody acked m: it was settled
// past gocloud, or it is not ours any more.
func silence(m *pubsub.Message) { runtime.SetFinalizer(m, nil) }
