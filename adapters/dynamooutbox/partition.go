package dynamooutbox

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns what a relay knows of a partition: whether it holds the claim, how far its round
// through the items has come, and what it has handed out. Outbox.mu guards all of it but what never
// changes. While looking is set, the receive that has set it reads the partition, and nobody else.
//
// A round begins at the first item and ends behind the last one that is due. Rounds follow each
// other at a pace: one a Poll, and fewer where a round reads much that is in somebody's hands, or
// waits for its delay, because reading that again costs and brings nothing.

// partition is one of the keys that the messages are spread over.
type partition struct {
	n   int
	pk  string
	key dedupe.Key

	// The claim. Without one, deadline is zero.
	token    dedupe.Token
	deadline time.Time
	tryAt    time.Time // when it is claimed again

	// The round.
	looking bool
	soon    bool // a round is due, whatever the pace says
	ended   bool
	began   time.Time
	from    string // where the next page begins
	no      uint64 // the round's number
	skipped int    // items of the round that were not handed out
	handed  bool   // the round has handed something out

	entries map[string]*entry // by sort key: what was handed out, or was given back
	gone    map[string]bool   // what was acked during the look
}

// entry is an item that was handed out at least once, since the claim was won.
type entry struct {
	n        uint64 // names the delivery; 0 = none is open
	deadline time.Time
	until    time.Time // it waits for its nack's delay
	times    int       // how often it was handed out
	seen     uint64    // the last round that has read it
	acking   bool
	// last: more of its group is waiting behind it.
	last bool
}

func (e *entry) isLive(now time.Time) bool { return e.n != 0 && (e.acking || now.Before(e.deadline)) }

// isOut reports whether the item must not be handed out now.
func (e *entry) isOut(now time.Time) bool {
	return e != nil && (e.isLive(now) || now.Before(e.until))
}

func (b *Outbox) newPartition(n int) *partition {
	key := strings.Join([]string{b.region, b.tableName(), b.queue, strconv.Itoa(n)}, "/")
	return &partition{n: n, pk: b.pk(n), key: dedupe.Key{Scope: leaseScope, Key: key}, ended: true, entries: make(map[string]*entry)}
}

// drop forgets all that was known under a claim that is lost.
func (p *partition) drop() {
	p.token, p.deadline, p.soon, p.ended, p.from = dedupe.Token{}, time.Time{}, false, true, ""
	p.entries, p.gone = make(map[string]*entry), nil
}

// isHeld reports whether the claim is this relay's, for so long at least.
func (p *partition) isHeld(now time.Time, left time.Duration) bool {
	return !p.deadline.IsZero() && p.deadline.Sub(now) > left
}

// full is how many items that brought nothing a round may read in a Poll.
const full = 100

// pace is the time from the beginning of one round to that of the next.
func (p *partition) pace(poll time.Duration) time.Duration {
	return max(poll, time.Duration(p.skipped)*(poll/full))
}

// isDue reports whether there may be something to read now.
func (p *partition) isDue(now time.Time, poll time.Duration) bool {
	return !p.looking && p.isHeld(now, leastLeft) && (!p.ended || p.soon || !now.Before(p.began.Add(p.pace(poll))))
}

// begin starts a page, and a round where one is due. One that goes on for long starts again, so
// that what was given back, and groups, come between. It does so only after it has handed something
// out: otherwise it would never come past many items that are in somebody's hands.
func (p *partition) begin(now time.Time, poll time.Duration) {
	if p.ended || p.handed && (p.soon || !now.Before(p.began.Add(p.pace(poll)))) {
		p.soon, p.ended, p.began, p.from, p.skipped, p.handed = false, false, now, regionGroup, 0, false
		p.no++
	}
	p.looking, p.gone = true, make(map[string]bool)
}

// page is one answer of DynamoDB, in the order of the sort keys.
type page struct {
	p       *partition
	items   []item
	cut     bool // there is more behind it
	most    int  // messages that may be handed out
	now     time.Time
	due     int64     // what is due until then is due, in milliseconds
	until   time.Time // when these deliveries end
	shown   time.Time // the deadline that their messages show
	b       *Outbox
	ms      []*broker.Message
	group   string // that of the item before
	blocked bool   // nothing more of group may be handed out
	last    *entry // the last of group that was handed out
}

// take hands out what may be. Outbox.mu is held.
func (g *page) take() {
	p := g.p
	for _, it := range g.items {
		sk := textOf(it[attrSK])
		e := p.entries[sk]
		if e != nil {
			e.seen = p.no
		}
		if group := groupOf(sk); group != g.group || group == "" {
			g.group, g.blocked, g.last = group, false, nil
		}
		waits := e.isOut(g.now) || p.gone[sk] || g.group != "" && numberOf(it[attrDue]) > g.due
		switch {
		case g.blocked || waits:
			// Of a group only what stands before the first that is held, or waits.
			g.blocked = g.group != "" && !p.gone[sk] || g.blocked
			if !p.gone[sk] {
				p.skipped++
			}
		case len(g.ms) == g.most:
			g.stop(sk)
			return
		default:
			g.hand(sk, it, e)
		}
		p.from = sk + "\x00"
	}
	g.stop("")
}

// stop ends the page before the item at sk; empty = behind the last one.
func (g *page) stop(sk string) {
	p := g.p
	if g.cut = g.cut || sk != ""; !g.cut {
		p.finish(g.now)
		return
	}
	if g.last == nil && !g.blocked {
		return
	}
	// What is left of the group waits for what was handed out, or for what holds it.
	p.from = behind(g.group)
	if g.last != nil {
		g.last.last = true
	}
}

// finish ends a round that has read everything: what it has not seen is not there any more.
func (p *partition) finish(now time.Time) {
	p.ended = true
	maps.DeleteFunc(p.entries, func(_ string, e *entry) bool { return e.seen != p.no && !e.isOut(now) })
}

// hand hands out one item.
func (g *page) hand(sk string, it item, e *entry) {
	if e == nil {
		e = &entry{}
		g.p.entries[sk] = e
	}
	g.b.n++
	*e = entry{n: g.b.n, deadline: g.until, times: e.times + 1, seen: g.p.no}
	m := message(g.p.n, it)
	m.Attempt, m.Deadline, m.Receipt = e.times, g.shown, receipt{n: e.n, part: g.p.n, sk: sk}.text()
	g.ms = append(g.ms, m)
	g.p.handed = true
	if g.group != "" {
		g.last = e
	}
}
