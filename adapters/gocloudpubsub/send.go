package gocloudpubsub

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"sync"
	"unicode/utf8"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pubsubwire"
)

// This file owns Send: which messages go at once, and how each of them is written. Producers, a
// worker that puts letters, and dlq's replay call it, from many goroutines. gocloud's Send takes
// one message and gathers those of several goroutines, so a Send has some, all of which end with
// it. A sending belongs to one call. read.go reads, and sqsform.go has the form on SQS.

// Send puts the messages. gocloud gathers them into requests. Where a request fails, each message
// of it is answered so, also one that the service took: to repeat a Send may put a message twice,
// and its job is done once. Messages of one group go one after the other; when one was not sent,
// the later ones of its group are not sent either. On Pub/Sub a Group is sent where
// [Options].Ordered is set; there gocloud would mix several groups in a request, which Pub/Sub
// refuses, so one Send goes at a time.
//
// The ids are the service's, of SQS and Pub/Sub. Elsewhere they are the Broker's own, and travel in
// the metadata. On SQS and Pub/Sub the messages have the form of our own drivers there, so both
// ends of a queue may have either.
func (b *Broker) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	if err := b.check(callSend, len(ms), b.Limits().SendBatch); err != nil {
		return nil, err
	}
	caller := ctx
	ctx, end, err := b.begin(ctx, callSend)
	if err != nil {
		return nil, err
	}
	defer end()
	if b.gate != nil {
		select {
		case b.gate <- struct{}{}:
			defer func() { <-b.gate }()
		case <-ctx.Done():
			return nil, b.failed(caller, callSend, ctx.Err())
		}
	}
	ids, errs := make([]string, len(ms)), make([]error, len(ms))
	var all sync.WaitGroup
	for _, at := range chains(ms) {
		if b.gate != nil {
			all.Wait() // Pub/Sub refuses a request with several groups
		}
		all.Go(func() {
			var before error
			for _, i := range at {
				if before != nil {
					errs[i] = b.wrap(callSend, fmt.Errorf("not sent, because an earlier message of its group was not: %v", before)) //nolint:errorlint // it says nothing of this one
					continue
				}
				var err error
				if ids[i], err = b.sendOne(ctx, &ms[i]); err != nil {
					ids[i], before = "", err
					errs[i] = b.failed(caller, callSend, err)
				}
			}
		})
	}
	all.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, err := range errs {
		if err == nil {
			b.stats.Sent++
		}
	}
	return ids, broker.JoinEntries(errs)
}

// chains are the positions of messages that go one after the other.
func chains(ms []broker.Outgoing) (at [][]int) {
	groups := make(map[string]int)
	for i := range ms {
		g := ms[i].Group
		n, ok := groups[g]
		if g == "" || !ok {
			groups[g] = len(at)
			at = append(at, []int{i})
			continue
		}
		at[n] = append(at[n], i)
	}
	return at
}

// sendOne answers the id of the message.
func (b *Broker) sendOne(ctx context.Context, o *broker.Outgoing) (id string, err error) {
	if o.Delay < 0 || o.Delay > b.limits.MaxDelay {
		return "", unsupported("a Delay of %v; it is within 0 and %v", o.Delay, b.limits.MaxDelay)
	}
	m := &pubsub.Message{}
	switch b.sends {
	case onSQS:
		entry, err := b.packSQS(o)
		if err != nil {
			return "", err
		}
		m.Body = []byte(*entry.MessageBody) // gocloud changes nothing of what is UTF-8
		m.BeforeSend = func(as func(any) bool) error {
			var e *types.SendMessageBatchRequestEntry
			if !as(&e) {
				return unsupported("the driver gives no entry of SQS")
			}
			number := e.Id
			*e = entry
			e.Id = number
			return nil
		}
		m.AfterSend = func(as func(any) bool) error {
			var r types.SendMessageBatchResultEntry
			if as(&r) {
				id = deref(r.MessageId)
			}
			return nil
		}
	case onPubSub:
		var size int
		if m.Body, m.Metadata, size, err = pubsubwire.Encode(o); err != nil {
			return "", err
		}
		if size > pubsubBytes {
			return "", fmt.Errorf("%w: %d bytes with attributes and metadata; at most %d", broker.ErrTooLarge, size, pubsubBytes)
		}
		m.Body = bytes.Clone(m.Body)
		m.BeforeSend = func(as func(any) bool) error {
			var p *pubsubpb.PubsubMessage
			if as(&p) && b.o.Ordered {
				p.OrderingKey = o.Group
			}
			return nil
		}
		m.AfterSend = func(as func(any) bool) error {
			as(&id)
			return nil
		}
	case anyDriver:
		if m.Metadata, id, err = pack(o); err != nil {
			return "", err
		}
		m.Body = bytes.Clone(o.Body)
	}
	if err := b.topic.Send(ctx, m); err != nil {
		return "", err
	}
	if id == "" {
		// A request that was answered in part: gocloud does not say more.
		return "", fmt.Errorf("the answer does not name the message")
	}
	return id, nil
}

// pack is the metadata of gocloud for a driver that is not known.
func pack(o *broker.Outgoing) (as map[string]string, id string, err error) {
	if _, ours := o.Attributes[broker.MetaAttribute]; ours {
		return nil, "", fmt.Errorf("%w: attribute %q is ours; every message of this driver has metadata", broker.ErrBadMeta, broker.MetaAttribute)
	}
	for name, value := range o.Attributes {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, "", unsupported("attribute %q is not UTF-8", name)
		}
	}
	id = rand.Text()
	meta := putID(o.Meta, id)
	meta.BodyEncoding = ""
	as = make(map[string]string, len(o.Attributes)+1)
	maps.Copy(as, o.Attributes)
	as[broker.MetaAttribute] = broker.EncodeMeta(meta)
	return as, id, nil
}
