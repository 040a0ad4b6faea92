package dynamooutbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/dynamokit"
)

// This file owns the table and what is recorded in it of the queue: the version of the items, and
// the number of partitions. It also finds messages that a producer with another number has put
// where nobody would look. Outbox.mu guards stray.

const (
	// version is that of the items and keys that this package writes and reads.
	version = 1
	// settingsSK is the sort key of the item that records the queue's settings.
	settingsSK     = "config"
	attrVersion    = "version"
	attrPartitions = "partitions"
	// strayPause is the one between two looks for strays: 128 keys take some ten minutes.
	strayPause = 5 * time.Second
)

// CreateTable makes the table if there is none, billed by request, and waits until it can be used,
// or ctx ends. It records the queue's number of partitions in the table, or compares it with what
// is recorded. Call it at each start of producers and relays, as many at once as there are.
//
// A table with another key, one that a newer version of this package has written, or another
// number of partitions is an error. It needs the rights dynamodb:DescribeTable, GetItem and
// PutItem, and CreateTable where there is none. The package comment has the table in Terraform.
func (b *Outbox) CreateTable(ctx context.Context) error {
	if err := b.ready(ctx, callCreate, 1, 1); err != nil {
		return err
	}
	t := &dynamokit.Table{Name: b.table, Partition: attrPK, Sort: attrSK}
	d, err := dynamokit.Create(ctx, b.rest, t.Definition())
	if err != nil {
		return b.explain(ctx, callCreate, err)
	}
	if err := t.CheckKey(d); err != nil {
		return b.wrap(callCreate, err)
	}
	return b.explain(ctx, callCreate, b.record(ctx))
}

// record writes the queue's settings where there are none, and compares them otherwise.
func (b *Outbox) record(ctx context.Context) error {
	err := b.compare(ctx)
	if !errors.Is(err, errNoSettings) {
		return err
	}
	it := b.settingsKey()
	it[attrVersion], it[attrPartitions] = number(version), number(int64(b.o.Partitions))
	_, err = b.rest.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &b.table, Item: it,
		ConditionExpression: aws.String("attribute_not_exists(#pk)"), ExpressionAttributeNames: map[string]string{"#pk": attrPK},
	})
	if err != nil && !errors.As(err, new(*types.ConditionalCheckFailedException)) {
		return err
	}
	return b.compare(ctx)
}

var errNoSettings = fmt.Errorf("%w: the table holds nothing of this queue; call CreateTable at each start", broker.ErrNotFound)

func (b *Outbox) settingsKey() item {
	return item{attrPK: text(b.queue + "#" + settingsSK), attrSK: text(settingsSK)}
}

// settingsItem names the item to look at, and to mend where somebody has overwritten it.
func (b *Outbox) settingsItem() string {
	return fmt.Sprintf("item %s=%q, %s=%q", attrPK, b.queue+"#"+settingsSK, attrSK, settingsSK)
}

// compare reads the queue's settings, and refuses others than its own.
func (b *Outbox) compare(ctx context.Context) error {
	out, err := b.rest.GetItem(ctx, &dynamodb.GetItemInput{TableName: &b.table, Key: b.settingsKey(), ConsistentRead: aws.Bool(true)})
	switch {
	case err != nil:
		return err
	case len(out.Item) == 0:
		return errNoSettings
	}
	v, n := numberOf(out.Item[attrVersion]), numberOf(out.Item[attrPartitions])
	switch {
	case v != version:
		return fmt.Errorf("table %s holds version %d of this queue, and this package knows version %d: update the program, or take another queue; it stands in %s", b.table, v, version, b.settingsItem())
	case n != int64(b.o.Partitions):
		return fmt.Errorf("Options.Partitions: %d, and the queue was made with %d, which never changes; set %d, or take another queue; it stands in %s of table %s", b.o.Partitions, n, n, b.settingsItem(), b.table)
	}
	return nil
}

// check compares the settings before the first receive.
func (b *Outbox) check(ctx context.Context) error {
	if b.checked.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := b.compare(ctx); err != nil {
		return err
	}
	b.checked.Store(true)
	return nil
}

// stray says where messages are looked for that no partition of this queue would hold.
type stray struct {
	at   time.Time
	next int
}

// lookForStrays looks into one partition beyond Options.Partitions, now and then. A producer with a
// larger number, which has not called CreateTable, puts messages there. They are sent as all
// others, but without an order beside those of the same group elsewhere. The relay that has the
// first partition looks. An error means that the next look comes later.
func (b *Outbox) lookForStrays(ctx context.Context) {
	b.mu.Lock()
	now := time.Now()
	n, due := b.stray.next, !now.Before(b.stray.at) && b.parts[0].isHeld(now, leastLeft) && b.o.Partitions < maxPartitions
	if due {
		b.stray.at = now.Add(strayPause)
	}
	known := b.known(n)
	b.mu.Unlock()
	if !due {
		return
	}
	found := known
	if !known {
		items, _, err := b.query(ctx, b.calls, b.pk(n), regionGroup, regionEnd, 1, true, callTimeout)
		if err != nil {
			return
		}
		found = len(items) > 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if found && !b.known(n) {
		b.parts = append(b.parts, b.newPartition(n))
	}
	if b.stray.next = n + 1; b.stray.next >= maxPartitions {
		b.stray.next = b.o.Partitions
	}
}

// known reports whether the partition is among those that are read. Outbox.mu is held.
func (b *Outbox) known(n int) bool {
	for _, p := range b.parts {
		if p.n == n {
			return true
		}
	}
	return false
}

// regionEnd is behind all sort keys of messages.
const regionEnd = "u$"
