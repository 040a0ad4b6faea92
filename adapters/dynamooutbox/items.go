package dynamooutbox

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
)

// This file owns what enters the outbox: which messages are refused, under which key an item
// stands, and what it holds. Producers call Items from many goroutines. It does no I/O, and the one
// lock that it takes is that of the hints for Wake. record.go reads what is written here.

// SequenceAttribute is the attribute of an Outgoing that says where the message stands in its
// group: a number of 0 to 9,223,372,036,854,775,807, in decimal, such as the version of the
// aggregate that the group is named after. The relay sends a group by it, lowest first, whatever
// the clocks of the producers say. Gaps do not matter. It travels on as it is.
const SequenceAttribute = "onceq-seq"

const (
	// maxActions and maxTransaction are DynamoDB's limits on a TransactWriteItems, maxItem that on
	// an item, names and values together.
	maxActions     = 100
	maxTransaction = 4 << 20
	maxItem        = 400 << 10
	// maxBody leaves the rest of the item to keys, attributes and metadata.
	maxBody = 384 << 10
	// maxAttributes is no limit of DynamoDB's.
	maxAttributes = 100
	maxGroup      = 1024
	// longest is the longest delay: years, and no overflow.
	longest = 10 * 365 * 24 * time.Hour
)

// The attributes of an item.
const (
	attrPK    = "pk"
	attrSK    = "sk"
	attrBody  = "body"
	attrAttrs = "attrs"
	attrMeta  = "meta"
	attrGroup = "group"
	attrAt    = "at"  // when the message was made, in milliseconds
	attrDue   = "due" // when it may be sent at the earliest, in milliseconds; absent = at once
)

// The sort keys begin with the letter of a region. They are read in this order.
const (
	regionGroup = "g#" // of a group: its digest, the sequence, the position, the content's digest
	regionNow   = "t#" // due at once: when it was made, the position, the content's digest
	regionLater = "u#" // with a delay: when it is due, the position, the content's digest
)

type (
	item  = map[string]types.AttributeValue
	value = types.AttributeValue
)

func text(s string) value   { return &types.AttributeValueMemberS{Value: s} }
func number(n int64) value  { return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)} }
func binary(b []byte) value { return &types.AttributeValueMemberB{Value: b} }

// Items are the actions that put the messages into the outbox, one for each, in their order. They
// do nothing by themselves: give them to a TransactWriteItems of yours, beside the items that the
// messages tell of, or to dynamostore's Commit. The messages are in the outbox when the transaction
// was written, and never were when it was cancelled.
//
//	jobs, err := outbox.Items(broker.Outgoing{Body: b, Meta: &broker.Meta{Type: "mail", Key: "A-1"}})
//	_, err = client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
//		TransactItems: append(jobs, order), ClientRequestToken: aws.String("order-A-1"),
//	})
//	outbox.Wake() // where the relay is in this process
//
// It fills in Meta.ID, Meta.Key and Meta.Created in ms itself, as onceq.Send does, and they are
// stored with the message. So each send of it, by whichever relay, is of the same job. Messages
// that are filled in give the same items again: a transaction that is repeated with the same slice,
// after a lost answer for instance, puts no second message, with a ClientRequestToken or without.
//
// Where messages have a Group, they are sent in the order of their [SequenceAttribute], and without
// one in that of Meta.Created, by the clocks of the producers. Give all messages of a group a
// sequence, or none. A Delay, or a Meta.NotBefore, lets the message wait in the outbox, and its
// group behind it. DedupID is ignored.
//
// The error tells which message is refused, and nothing is returned then:
//
//   - [broker.ErrTooLarge]: an item above 400 KB, a body above 384 KiB, more than 100 attributes
//     with our own, or more than 4 MB in all,
//   - [broker.ErrUnsupported]: more than 100 messages, a Delay above 10 years, a Group above 1,024
//     bytes, a group or an attribute that is not UTF-8, an attribute without a name, a sequence
//     that is no such number, or one without a Group,
//   - what onceq.Send refuses.
//
// DynamoDB takes 100 actions and 4 MB in one transaction, yours among them, and bills two write
// units for each KB begun of each item. It does no I/O.
func (b *Outbox) Items(ms ...broker.Outgoing) ([]types.TransactWriteItem, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	fail := func(err error) ([]types.TransactWriteItem, error) { return nil, b.wrap("Items", err) }
	if len(ms) > maxActions {
		return fail(unsupported("%d messages; a transaction has at most %d actions", len(ms), maxActions))
	}
	if err := onceq.Fill(ms); err != nil {
		return fail(err)
	}
	items, parts, total := make([]types.TransactWriteItem, len(ms)), make([]int, len(ms)), 0
	for i := range ms {
		it, n, size, err := b.item(&ms[i], i)
		if err != nil {
			return fail(fmt.Errorf("message %d: %w", i, err))
		}
		if total += size; total > maxTransaction {
			return fail(fmt.Errorf("%w: the first %d messages have %d bytes; a transaction has at most %d", broker.ErrTooLarge, i+1, total, maxTransaction))
		}
		items[i].Put, parts[i] = &types.Put{TableName: &b.table, Item: it}, n
	}
	b.hintAt(parts)
	return items, nil
}

// item is the item of a message whose Meta was filled in, the number of its partition, and its
// size. at is its place among its Items.
func (b *Outbox) item(o *broker.Outgoing, at int) (it item, part, size int, err error) {
	sequence, err := check(o)
	if err != nil {
		return nil, 0, 0, err
	}
	// Whatever the clock says meanwhile, the same message makes the same item.
	made := o.Meta.Created
	due := dueAt(o)
	meta := broker.EncodeMeta(o.Meta)
	tail := fmt.Sprintf("#%03d#%s", at, digest(o, meta))
	by, sk := o.Group, ""
	switch {
	case o.Group != "":
		if sequence < 0 {
			sequence = max(0, made.UnixMicro())
		}
		sk = regionGroup + groupDigest(o.Group) + fmt.Sprintf("#%019d", sequence) + tail
	case due > 0:
		by, sk = o.Meta.ID, laterKey(due)+tail
	default:
		by, sk = o.Meta.ID, regionNow+fmt.Sprintf("%016d", max(0, made.UnixMicro()))+tail
	}
	part = partOf(by, b.o.Partitions)
	it = item{
		attrPK: text(b.pk(part)), attrSK: text(sk), attrBody: binary(append([]byte{}, o.Body...)),
		attrMeta: text(meta), attrAt: number(made.UnixMilli()),
	}
	if o.Group != "" {
		it[attrGroup] = text(o.Group)
	}
	if due > 0 {
		it[attrDue] = number(due)
	}
	if len(o.Attributes) > 0 {
		as := make(item, len(o.Attributes))
		for name, v := range o.Attributes {
			as[name] = text(v)
		}
		it[attrAttrs] = &types.AttributeValueMemberM{Value: as}
	}
	if size = sizeOf(it); size > maxItem {
		return nil, 0, 0, fmt.Errorf("%w: an item of %d bytes, with attributes and metadata; at most %d", broker.ErrTooLarge, size, maxItem)
	}
	return it, part, size, nil
}

// check refuses what an item cannot hold, and reads the sequence; -1 = there is none.
func check(o *broker.Outgoing) (sequence int64, err error) {
	n := len(o.Attributes)
	if o.Meta != nil {
		n++
	}
	switch {
	case o.Delay < 0 || o.Delay > longest:
		return 0, unsupported("a Delay of %v; it is within 0 and %v", o.Delay, longest)
	case len(o.Body) > maxBody:
		return 0, fmt.Errorf("%w: a body of %d bytes; at most %d, because an item has at most %d", broker.ErrTooLarge, len(o.Body), maxBody, maxItem)
	case len(o.Group) > maxGroup:
		return 0, unsupported("a Group of %d bytes; it has at most %d", len(o.Group), maxGroup)
	case !utf8.ValidString(o.Group):
		return 0, unsupported("Group %.100q has bytes that are not UTF-8", o.Group)
	case n > maxAttributes:
		return 0, fmt.Errorf("%w: %d attributes, with our own; at most %d", broker.ErrTooLarge, n, maxAttributes)
	}
	for name, v := range o.Attributes {
		switch {
		case name == "":
			return 0, unsupported("an attribute without a name")
		case !utf8.ValidString(name):
			return 0, unsupported("the attribute's name %.100q has bytes that are not UTF-8", name)
		case !utf8.ValidString(v):
			return 0, unsupported("attribute %.100q has bytes that are not UTF-8", name)
		}
	}
	given, ok := o.Attributes[SequenceAttribute]
	if !ok {
		return -1, nil
	}
	sequence, err = strconv.ParseInt(given, 10, 64)
	switch {
	case err != nil || sequence < 0:
		return 0, unsupported("attribute %s is %.40q; it is a decimal number of 0 to 9223372036854775807", SequenceAttribute, given)
	case o.Group == "":
		return 0, unsupported("attribute %s without a Group, whose order it would be", SequenceAttribute)
	}
	return sequence, nil
}

// dueAt is when the message may be sent, in milliseconds; 0 = at once. A letter is for people, who
// need not wait.
func dueAt(o *broker.Outgoing) int64 {
	var at time.Time
	if o.Delay > 0 {
		at = o.Meta.Created.Add(o.Delay)
	}
	if n := o.Meta.NotBefore; o.Meta.Dead == nil && n.After(at) {
		at = n
	}
	switch latest := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC); {
	case at.IsZero():
		return 0
	case at.After(latest):
		at = latest
	}
	// Rounded up: no message is early.
	return max(1, at.Add(time.Millisecond-1).UnixMilli())
}

func laterKey(ms int64) string { return fmt.Sprintf("%s%015d", regionLater, ms) }

// partOf is the partition of what has that group, or that id.
func partOf(by string, of int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(by)) // it never fails
	return int(h.Sum32() % uint32(of))
}

func (b *Outbox) pk(part int) string { return b.queue + "#" + strconv.Itoa(part) }

// groupDigest takes the place of a group in the key, which has at most 1,024 bytes.
func groupDigest(group string) string {
	sum := sha256.Sum256([]byte(group))
	return base64.RawURLEncoding.EncodeToString(sum[:digestBytes])
}

const (
	digestBytes = 16
	digestText  = 22
)

// digest names the content, so that two messages never have one key, and one message never two.
func digest(o *broker.Outgoing, meta string) string {
	h := sha256.New()
	part := func(s string) { fmt.Fprintf(h, "%d:%s", len(s), s) }
	part(meta)
	part(string(o.Body))
	part(o.Group)
	for _, name := range slices.Sorted(maps.Keys(o.Attributes)) {
		part(name)
		part(o.Attributes[name])
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:digestBytes])
}

// sizeOf is what DynamoDB counts of an item, or a little more.
func sizeOf(it item) int {
	size := 0
	for name, v := range it {
		size += len(name)
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			size += len(v.Value)
		case *types.AttributeValueMemberB:
			size += len(v.Value)
		case *types.AttributeValueMemberM:
			size += 3 + len(v.Value) + sizeOf(v.Value)
		default:
			size += 21 // a number
		}
	}
	return size
}
