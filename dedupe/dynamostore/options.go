package dynamostore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/dynamokit"
)

// DefaultTTLAttribute is the attribute by which DynamoDB deletes what has expired.
const DefaultTTLAttribute = "expires_at"

// maxTTLAttribute is DynamoDB's own limit on an attribute's name, in bytes.
const maxTTLAttribute = 255

// Options tune a [Store]. The zero value and nil are usable.
type Options struct {
	// TTLAttribute is the number, in seconds since 1970, by which DynamoDB deletes what has
	// expired: the table's TimeToLiveSpecification must name it. It has 1 to 255 bytes and is none
	// of the store's other attributes. All stores on a table must name the same. Default
	// "expires_at".
	TTLAttribute string
	// AttentionIndex is the name of a global secondary index of the table, with the partition key
	// "attention", a string, no sort key, and the projection KEYS_ONLY: see the package comment.
	// With it a [Store.List] of failed, parked or released records reads these alone, by Query;
	// without it, the whole table, by Scan. Only a record in one of these states has the attribute,
	// so a job that is claimed and done costs the index nothing. [Store.CreateTable] makes it with
	// a new table. It has 3 to 255 of A-Z a-z 0-9 _ - . Default: none.
	AttentionIndex string
}

// New returns a store in table, a DynamoDB table's name or ARN. It does no I/O. The table must be
// there, or be made with [Store.CreateTable], before the first use. The store works on a copy of
// client with connections and retries of its own. It repeats a call until its context ends,
// whatever client's Retryer says.
func New(client *dynamodb.Client, table string, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	ttl := cmp.Or(o.TTLAttribute, DefaultTTLAttribute)
	switch {
	case client == nil:
		return nil, fmt.Errorf("dynamostore: New: %w: client is nil", dedupe.ErrBadRequest)
	case !dynamokit.IsTableName(table):
		return nil, fmt.Errorf("dynamostore: New: %w: table is %q, want 3 to 255 of A-Z a-z 0-9 _ - . or an ARN", dedupe.ErrBadRequest, table)
	case len(ttl) > maxTTLAttribute:
		return nil, fmt.Errorf("dynamostore: New: %w: Options.TTLAttribute has %d bytes, the limit is %d", dedupe.ErrBadRequest, len(ttl), maxTTLAttribute)
	case o.AttentionIndex != "" && (strings.Contains(o.AttentionIndex, "/") || !dynamokit.IsTableName(o.AttentionIndex)):
		return nil, fmt.Errorf("dynamostore: New: %w: Options.AttentionIndex is %q, want 3 to 255 of A-Z a-z 0-9 _ . -", dedupe.ErrBadRequest, o.AttentionIndex)
	case slices.Contains(attributes, ttl):
		return nil, fmt.Errorf("dynamostore: New: %w: Options.TTLAttribute is %q, an attribute that the store uses for something else",
			dedupe.ErrBadRequest, ttl)
	}
	s := &Store{table: table, ttl: ttl, attentionIndex: o.AttentionIndex}
	s.client = s.copyOf(client)
	return s, nil
}
