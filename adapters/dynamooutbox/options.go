package dynamooutbox

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/dynamokit"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the options and what New takes. New calls complete; nothing changes afterwards, so
// nothing is locked.

// Options tune an [Outbox]. The zero value and nil are usable.
type Options struct {
	// Partitions is how many partition keys the messages are spread over, 1 to 128: by their group,
	// or by their id where they have none. DynamoDB takes 1,000 write units a second for one key,
	// so 8 carry about 2,500 messages a second. All producers and relays of a queue must have the
	// same number: [Outbox.CreateTable] records it, and refuses another one. Default 8.
	Partitions int
	// Visibility is how long a received message stays hidden when the receive does not say: 100 ms
	// to two thirds of Lease. Default 30 s, or two thirds of Lease where that is less.
	Visibility time.Duration
	// Poll is how often an idle relay looks into each partition that it holds: 10 ms to 10 s. Each
	// look is a request, and a read unit at least. Default 1 s. After [Outbox.Wake] it looks at
	// once, whatever Poll is.
	Poll time.Duration
	// Lease is how long a relay that died keeps its partitions, 3 s to 10 min. A relay renews its
	// claims when a third of it is over. What is left then, two thirds, is the longest hold of a
	// message: a WorkerConfig.Visibility above that is refused. Default 45 s, so that the Worker's
	// default of 30 s fits.
	Lease time.Duration
}

const (
	defaultPartitions = 8
	maxPartitions     = 128
	defaultVisibility = 30 * time.Second
	defaultPoll       = time.Second
	minPoll, maxPoll  = 10 * time.Millisecond, 10 * time.Second
	defaultLease      = 45 * time.Second
	minLease          = 3 * time.Second
	maxLease          = 10 * time.Minute
	// maxQueue keeps the name, with what follows it, within the 1,024 bytes of a store's key,
	// beside the longest name of a table.
	maxQueue = 255
)

// complete fills in the defaults and refuses the rest.
func (o Options) complete() (Options, error) {
	o.Partitions = cmp.Or(o.Partitions, defaultPartitions)
	o.Poll = cmp.Or(o.Poll, defaultPoll)
	o.Lease = cmp.Or(o.Lease, defaultLease)
	if o.Partitions < 1 || o.Partitions > maxPartitions {
		return o, fmt.Errorf("dynamooutbox: Options.Partitions: %d is not within 1 and %d", o.Partitions, maxPartitions)
	}
	if err := within("Poll", o.Poll, minPoll, maxPoll); err != nil {
		return o, err
	}
	if err := within("Lease", o.Lease, minLease, maxLease); err != nil {
		return o, err
	}
	o.Visibility = cmp.Or(o.Visibility, min(defaultVisibility, o.maxHold()))
	return o, within("Visibility", o.Visibility, minHold, o.maxHold())
}

// maxHold is what is left of a claim at least, after it was renewed or needed no renewal.
func (o *Options) maxHold() time.Duration { return o.Lease / 3 * 2 }

func within(field string, d, least, most time.Duration) error {
	switch {
	case durations.IsBare(d):
		return fmt.Errorf("dynamooutbox: Options.%s: %s", field, durations.AskUnit(d))
	case d < least || d > most:
		return fmt.Errorf("dynamooutbox: Options.%s: %v is not within %v and %v", field, d, least, most)
	}
	return nil
}

func checkTable(table string) error {
	if !dynamokit.IsTableName(table) {
		return fmt.Errorf("dynamooutbox: New: table is %q, want 3 to 255 of A-Z a-z 0-9 _ - . or an ARN", table)
	}
	return nil
}

func checkQueue(name string) error {
	switch {
	case name == "":
		return errors.New("dynamooutbox: New: the queue's name is empty")
	case len(name) > maxQueue:
		return fmt.Errorf("dynamooutbox: New: the queue's name has %d bytes, the limit is %d", len(name), maxQueue)
	case !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("dynamooutbox: New: the queue's name %q holds a NUL, or bytes that are not UTF-8", name)
	case strings.Contains(name, "#"): // the policy of the producer of "a" would let it write into "a#b"
		return fmt.Errorf("dynamooutbox: New: the queue's name %q holds a '#', which ends the name in the keys of items", name)
	}
	return nil
}

// checkClient finds a client whose first request would fail.
func checkClient(c *dynamodb.Client) error {
	switch {
	case c == nil:
		return errors.New("dynamooutbox: New: client is nil")
	case c.Options().Region == "":
		return errors.New("dynamooutbox: New: the client has no region: set AWS_REGION, or give config.LoadDefaultConfig a config.WithRegion")
	}
	return nil
}

// checkLeases refuses a store in which two relays would not see each other's claims. None is right
// for a producer.
func checkLeases(s dedupe.Store) error {
	switch {
	case s == nil:
		return nil
	case values.IsNil(s):
		return fmt.Errorf("dynamooutbox: New: leases is a nil %T; a producer that receives nothing gives nil itself", s)
	}
	if n, ok := s.(interface{ Storeless() bool }); ok && n.Storeless() {
		return errors.New("dynamooutbox: New: leases is onceq.NoStore, in which every relay would win every partition; give it the dynamostore")
	}
	if l := s.Limits(); !l.Durable || l.MaxBatch < 1 {
		return fmt.Errorf("dynamooutbox: New: leases is a %T, whose records are lost with its process: "+
			"two relays would not see each other's claims; give it the dynamostore", s)
	}
	return nil
}
