package dynamooutbox

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/broker"
)

// This file owns acks, nacks and extensions, and the receipts that they name. A worker's calls come
// from many goroutines. An ack deletes items; a nack and an extension change what this relay
// remembers, under Outbox.mu, and nothing in the table.

// receipt names one delivery: its number, which no other delivery of this Outbox has, and the item.
type receipt struct {
	n    uint64
	part int
	sk   string
}

func (r receipt) text() broker.Receipt {
	return broker.Receipt(strconv.FormatUint(r.n, 36) + "." + strconv.Itoa(r.part) + "." + r.sk)
}

func parseReceipt(s broker.Receipt) (r receipt, ok bool) {
	n, rest, ok1 := strings.Cut(string(s), ".")
	part, sk, ok2 := strings.Cut(rest, ".")
	number, err1 := strconv.ParseUint(n, 36, 64)
	p, err2 := strconv.Atoi(part)
	return receipt{number, p, sk}, ok1 && ok2 && err1 == nil && err2 == nil && number > 0
}

// open finds the delivery that a receipt names. Outbox.mu is held.
func (b *Outbox) open(s broker.Receipt) (p *partition, sk string, e *entry) {
	r, ok := parseReceipt(s)
	if !ok {
		return nil, "", nil
	}
	for _, p := range b.parts {
		if p.n != r.part {
			continue
		}
		if e := p.entries[r.sk]; e != nil && e.n == r.n {
			return p, r.sk, e
		}
	}
	return nil, "", nil
}

// deletion is an item on its way out.
type deletion struct {
	p  *partition
	sk string
	e  *entry
	n  uint64 // the delivery
	i  int    // its place in the batch
}

// Ack deletes the messages, in one request. An ack is late only when the message was handed out
// again, was given back, or its partition's claim was lost: then it answers
// [broker.ErrReceiptExpired] and changes nothing. So does an ack that is repeated. An entry that
// DynamoDB throttles is answered [broker.ErrThrottled]. After an error that is not by position,
// each message is deleted or is not; ack them again.
func (b *Outbox) Ack(ctx context.Context, rs []broker.Receipt) error {
	if len(rs) == 0 {
		return nil
	}
	if err := b.ready(ctx, callAck, len(rs), settleBatch); err != nil {
		return err
	}
	errs := make([]error, len(rs))
	ds := b.beginAck(rs, errs)
	if len(ds) == 0 {
		return broker.JoinEntries(errs)
	}
	left, err := b.remove(ctx, ds)
	if b.endAck(ds, left, err) {
		b.wakes.wake()
	}
	if err != nil {
		return b.explain(ctx, callAck, err)
	}
	for _, d := range ds {
		if left[d.at()] {
			errs[d.i] = b.wrap(callAck, fmt.Errorf("%w: DynamoDB has left the message out", broker.ErrThrottled))
		}
	}
	return broker.JoinEntries(errs)
}

func (b *Outbox) beginAck(rs []broker.Receipt, errs []error) (ds []deletion) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range rs {
		p, sk, e := b.open(r)
		if e == nil || e.acking { // twice in a batch, too
			errs[i] = b.wrap(callAck, broker.ErrReceiptExpired)
			continue
		}
		e.acking = true
		ds = append(ds, deletion{p, sk, e, e.n, i})
	}
	return ds
}

// endAck takes the answer. It reports whether more of a group may go now.
func (b *Outbox) endAck(ds []deletion, left map[[2]string]bool, err error) (more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range ds {
		if d.e.acking = false; err != nil || left[d.at()] {
			continue
		}
		if d.p.gone != nil { // a look may have read it before it was deleted
			d.p.gone[d.sk] = true
		}
		if d.p.entries[d.sk] != d.e {
			continue // the claim was lost meanwhile
		}
		delete(d.p.entries, d.sk)
		if d.e.last {
			d.p.soon, more = true, true
		}
	}
	return more
}

// at is the item's key.
func (d *deletion) at() [2]string { return [2]string{d.p.pk, d.sk} }

// remove deletes items. It answers those that DynamoDB has left out.
func (b *Outbox) remove(ctx context.Context, ds []deletion) (left map[[2]string]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rs := make([]types.WriteRequest, len(ds))
	for i := range ds {
		rs[i].DeleteRequest = &types.DeleteRequest{Key: item{attrPK: text(ds[i].p.pk), attrSK: text(ds[i].sk)}}
	}
	out, err := b.calls.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{b.table: rs}})
	if err != nil {
		return nil, err
	}
	left = make(map[[2]string]bool)
	for _, rs := range out.UnprocessedItems { // the answer may name the table otherwise
		for _, r := range rs {
			if r.DeleteRequest != nil {
				left[[2]string{textOf(r.DeleteRequest.Key[attrPK]), textOf(r.DeleteRequest.Key[attrSK])}] = true
			}
		}
	}
	return left, nil
}

// Nack gives the messages back after their delay, 0 to 12 h. A message of a group holds those
// behind it. The relay remembers the delay: when it dies, another one hands the message out at
// once. The receipt is void afterwards. It does no I/O.
func (b *Outbox) Nack(ctx context.Context, hs []broker.Hold) error {
	errs, err := b.held(ctx, callNack, hs, 0, maxNack)
	if errs == nil {
		return err
	}
	again := false
	b.mu.Lock()
	now := time.Now()
	for i, h := range hs {
		p, _, e := b.open(h.Receipt)
		switch {
		case errs[i] != nil:
		case e == nil || e.acking:
			errs[i] = b.wrap(callNack, broker.ErrReceiptExpired)
		default:
			e.n, e.until, e.last = 0, now.Add(h.For), false
			if h.For == 0 {
				p.soon, again = true, true
			}
		}
	}
	b.mu.Unlock()
	if again {
		b.wakes.wake()
	}
	return broker.JoinEntries(errs)
}

// Extend hides the messages for their time from now, 100 ms to two thirds of [Options].Lease, as
// often as the caller likes. It renews the claims of their partitions where less than that is left
// of them. An extension that comes after the deadline answers [broker.ErrReceiptExpired] and
// changes nothing, and so does one of a message whose partition another relay has claimed.
func (b *Outbox) Extend(ctx context.Context, hs []broker.Hold) error {
	errs, err := b.held(ctx, callExtend, hs, minHold, b.o.maxHold())
	if errs == nil {
		return err
	}
	need, of := b.partitionsOf(hs, errs)
	// The times count from here. A claim that lasts so long is not renewed, and is long enough also
	// when others take their time.
	began := time.Now()
	kept := b.keep(ctx, need, of)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for i, h := range hs {
		p, _, e := b.open(h.Receipt)
		switch until := began.Add(h.For); {
		case errs[i] != nil:
		case e == nil || !e.isLive(now):
			errs[i] = b.wrap(callExtend, broker.ErrReceiptExpired)
		case !p.deadline.Before(until):
			e.deadline = until
		case kept != nil:
			errs[i] = b.explain(ctx, callExtend, kept)
		default:
			errs[i] = b.wrap(callExtend, errNotKept)
		}
	}
	return broker.JoinEntries(errs)
}

// partitionsOf are those of the open deliveries, and the longest time that one asks for.
func (b *Outbox) partitionsOf(hs []broker.Hold, errs []error) (need time.Duration, of map[int]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of = make(map[int]bool)
	for i, h := range hs {
		if p, _, e := b.open(h.Receipt); e != nil && errs[i] == nil {
			need, of[p.n] = max(need, h.For), true
		}
	}
	return need, of
}

// held checks a call with times. No errs means that the call ends with err.
func (b *Outbox) held(ctx context.Context, call string, hs []broker.Hold, least, most time.Duration) (errs []error, err error) {
	if len(hs) == 0 {
		return nil, nil
	}
	if err := b.ready(ctx, call, len(hs), settleBatch); err != nil {
		return nil, err
	}
	errs = make([]error, len(hs))
	for i, h := range hs {
		if h.For < least || h.For > most {
			errs[i] = b.wrap(call, unsupported("%v; it is within %v and %v", h.For, least, most))
		}
	}
	return errs, nil
}
