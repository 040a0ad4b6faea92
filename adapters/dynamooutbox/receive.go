package dynamooutbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/broker"
)

// This file owns receives: how one goes from partition to partition, and how it waits. A worker's
// pollers call Receive, each in a goroutine of its own; partition.go says what is handed out, and
// lease.go whose partition it is.

// leastLeft is how much of a claim must be left for a look: what is read must reach its worker.
const leastLeft = time.Second

// Receive brings up to o.Max messages: those that are due, and of a group those that stand before
// the first one that is in somebody's hands or waits, in the group's order. It reads the partitions
// whose claim this Outbox holds, and claims those that are free. Where nothing is there it looks
// again each [Options].Poll until o.Wait is over, and at once after [Outbox.Wake].
//
// It reads consistently: what was written before it began is seen. An error of one partition is
// answered only where no other one brought anything.
//
// The first call reads the table's own settings: see [Outbox.CreateTable]. A table that is not
// there, or was never made an outbox, is [broker.ErrNotFound]. An Outbox without leases answers
// [broker.ErrUnsupported].
func (b *Outbox) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	if err := b.ready(ctx, callReceive, 1, 1); err != nil {
		return nil, err
	}
	if err := b.completeReceive(&o); err != nil {
		return nil, b.wrap(callReceive, err)
	}
	if err := b.check(ctx); err != nil {
		return nil, b.explain(ctx, callReceive, err)
	}
	end := time.Now().Add(o.Wait)
	if o.Wait == 0 {
		b.beginAnew()
	}
	for {
		ms, err := b.look(ctx, &o)
		if err != nil || len(ms) > 0 {
			return ms, err
		}
		left := time.Until(end)
		if left <= 0 {
			return nil, nil
		}
		if err := b.wakes.wait(ctx, min(left, b.untilDue())); err != nil {
			return nil, b.wrap(callReceive, err)
		}
	}
}

// completeReceive checks o and puts the defaults in.
func (b *Outbox) completeReceive(o *broker.ReceiveOptions) error {
	o.Visibility = cmp.Or(o.Visibility, b.o.Visibility)
	switch {
	case b.leases == nil:
		return unsupported("New was given no leases, so this Outbox sends alone; a relay needs the dynamostore there")
	case o.Max < 1 || o.Max > receiveBatch:
		return unsupported("a Max of %d; it is within 1 and %d", o.Max, receiveBatch)
	case o.Wait > maxWait:
		return unsupported("a Wait of %v; it is at most %v", o.Wait, maxWait)
	case o.Visibility < minHold || o.Visibility > b.o.maxHold():
		return unsupported("a Visibility of %v; it is within %v and %v, two thirds of Options.Lease", o.Visibility, minHold, b.o.maxHold())
	}
	if o.Wait < 0 {
		o.Wait = maxWait
	}
	return nil
}

// beginAnew lets a receive that does not wait look at everything.
func (b *Outbox) beginAnew() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.parts {
		p.soon = p.soon || !p.looking
	}
}

// untilDue is how long it is until something may be there.
func (b *Outbox) untilDue() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, d := time.Now(), b.o.Poll
	for _, p := range b.parts {
		switch {
		case p.looking:
		case p.isDue(now, b.o.Poll):
			return 0
		case p.isHeld(now, leastLeft):
			d = min(d, p.began.Add(p.pace(b.o.Poll)).Sub(now))
		}
	}
	return max(d, time.Millisecond)
}

// look goes once through the partitions that are due. One whose page brings nothing, and does not
// end its round, is read on.
func (b *Outbox) look(ctx context.Context, o *broker.ReceiveOptions) (ms []*broker.Message, err error) {
	failed := b.keepForReceive(ctx, o.Visibility)
	if b.wakes.isClosed() { // what was claimed meanwhile is on its way back
		return nil, b.explain(ctx, callReceive, broker.ErrClosed)
	}
	for _, p := range b.inTurn() {
		for len(ms) < o.Max && ctx.Err() == nil {
			page, more, err := b.page(ctx, p, o, o.Max-len(ms))
			if err != nil {
				failed = errors.Join(failed, err)
				break
			}
			if ms = append(ms, page...); len(page) > 0 || !more {
				break
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	switch {
	case len(ms) == o.Max:
		b.wakes.wake() // there may be more, for another receive
		return ms, nil
	case len(ms) > 0:
		return ms, nil
	case failed == nil:
		b.lookForStrays(ctx)
	}
	return nil, b.explain(ctx, callReceive, failed)
}

// inTurn are all partitions. Each receive begins with another one.
func (b *Outbox) inTurn() []*partition {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.parts)
	b.turn = (b.turn + 1) % n
	return append(append(make([]*partition, 0, n), b.parts[b.turn:]...), b.parts[:b.turn]...)
}

// page reads one page of the partition, where that is due, and hands out up to most messages. It
// reports whether the round goes on.
func (b *Outbox) page(ctx context.Context, p *partition, o *broker.ReceiveOptions, most int) (ms []*broker.Message, more bool, err error) {
	b.mu.Lock()
	if !p.isDue(time.Now(), b.o.Poll) {
		b.mu.Unlock()
		return nil, false, nil
	}
	p.begin(time.Now(), b.o.Poll)
	token, deadline, from := p.token, p.deadline, p.from
	// What is in somebody's hands is read as well, mostly at the round's beginning.
	limit := min(receiveBatch, most+len(p.entries))
	b.mu.Unlock()

	sent, due := time.Now(), b.wall().UnixMilli()
	items, cut, err := b.query(ctx, b.calls, p.pk, from, laterKey(due)+"$", limit, true, min(callTimeout, deadline.Sub(sent)))
	now := time.Now()

	b.mu.Lock()
	defer b.mu.Unlock()
	p.looking = false
	gone := p.gone
	p.gone = nil
	if err != nil {
		return nil, false, err
	}
	if p.token != token || !p.isHeld(now, leastLeft) {
		return nil, false, nil // somebody else reads it by now
	}
	took := now.Sub(sent)
	until := earlier(now.Add(o.Visibility), p.deadline)
	held := until.Sub(now)
	p.gone = gone
	g := page{b: b, p: p, items: items, cut: cut, most: most, now: now, due: due, until: until, shown: until.Add(-min(took, 5*time.Second, held/4))}
	g.take()
	p.gone = nil
	return g.ms, !p.ended, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// query reads the items of a partition whose sort keys are within from and to. It reports whether
// there are more than it brings.
func (b *Outbox) query(ctx context.Context, c *dynamodb.Client, pk, from, to string, limit int, consistent bool, patience time.Duration) ([]item, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := c.Query(ctx, &dynamodb.QueryInput{
		TableName: &b.table, ConsistentRead: &consistent, Limit: aws.Int32(int32(limit)),
		KeyConditionExpression:   aws.String("#pk = :pk AND #sk BETWEEN :from AND :to"),
		ExpressionAttributeNames: map[string]string{"#pk": attrPK, "#sk": attrSK},
		ExpressionAttributeValues: item{
			":pk": text(pk), ":from": text(from), ":to": text(to),
		},
	})
	if err != nil {
		return nil, false, err
	}
	for _, it := range out.Items {
		if sk := textOf(it[attrSK]); sk < from || sk > to {
			return nil, false, fmt.Errorf("DynamoDB answered an item at %q, which is not within %q and %q", sk, from, to)
		}
	}
	return out.Items, len(out.LastEvaluatedKey) > 0, nil
}
