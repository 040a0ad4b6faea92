package firestorestore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"cloud.google.com/go/firestore"
	apiv1 "cloud.google.com/go/firestore/apiv1"
	"cloud.google.com/go/firestore/apiv1/admin/adminpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
)

// This file owns the store: its making and its limits. Workers call it from many goroutines, and
// nothing here is locked.

// DefaultTTLField is the field by which Firestore deletes what has expired.
const DefaultTTLField = "expires_at"

const (
	// maxBatch is how many writes Firestore takes in one BatchWrite.
	maxBatch = 500
	// maxDocument is Firestore's limit on a document, names and values together.
	maxDocument = 1 << 20
	// maxResult leaves the rest of the document to the key, the labels, the history and the times.
	maxResult = maxDocument - 16<<10
	// A try takes half of what is left of the call's time, so that a lost packet leaves room for a
	// repeat.
	minTry, maxTry = 500 * time.Millisecond, 10 * time.Second
	// maxLabels bounds what a claim brings besides its key, so that a record with the largest state
	// can be claimed again and settled.
	maxLabels = 8000
)

// Options tune a [Store]. The zero value and nil are usable.
type Options struct {
	// TTLField is the timestamp by which Firestore deletes what has expired: the TTL policy of the
	// collection group must name it. It has 1 to 100 of A-Z a-z 0-9 _, begins with a letter, and is
	// none of the store's other fields. All stores on a collection must name the same. Default
	// "expires_at".
	TTLField string
	// Sweep lets [Store.Sweep] delete expired documents, for a database without a TTL policy. It
	// needs an index of TTLField, which a TTL policy does without. Default: the policy does it.
	Sweep bool
	// Admin is what [Store.Check] asks. The store closes it never. Default: Check cannot ask.
	Admin Admin
}

// Admin is what [Store.Check] asks: how a database is set up. The FirestoreAdminClient of
// cloud.google.com/go/firestore/apiv1/admin has it.
type Admin interface {
	GetDatabase(context.Context, *adminpb.GetDatabaseRequest, ...gax.CallOption) (*adminpb.Database, error)
	GetField(context.Context, *adminpb.GetFieldRequest, ...gax.CallOption) (*adminpb.Field, error)
}

// Store keeps records in a Firestore collection. Make one with [New].
type Store struct {
	client *firestore.Client
	api    *apiv1.Client
	form
	// database is projects/P/databases/D, and parent what the collection stands in.
	database, parent string
	headers          []string // of each request
	sweeps           bool
	admin            Admin

	clock  clock
	closed atomic.Bool
	claims claims
}

var (
	_ dedupe.Store   = (*Store)(nil)
	_ dedupe.Sweeper = (*Store)(nil)
	_ dedupe.Clock   = (*Store)(nil)
	_ dedupe.Indexed = (*Store)(nil)
)

var (
	fieldName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	// once turns a client's retries off: the store makes its own.
	once = gax.WithRetry(nil)
)

// NewAPI makes the client of single answers that [New] takes. Where FIRESTORE_EMULATOR_HOST is set,
// it names the server, as it does for a [firestore.Client]. It does no calls. Close it at the end.
func NewAPI(ctx context.Context, opts ...option.ClientOption) (*apiv1.Client, error) {
	if addr := os.Getenv("FIRESTORE_EMULATOR_HOST"); addr != "" {
		opts = append([]option.ClientOption{
			option.WithEndpoint("passthrough:///" + strings.TrimPrefix(addr, "http://")), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
			option.WithGRPCDialOption(grpc.WithPerRPCCredentials(emulatorOwner{})),
		}, opts...)
	}
	c, err := apiv1.NewClient(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("firestorestore: NewAPI: %w", err)
	}
	return c, nil
}

// emulatorOwner is who may do all in an emulator, which lets nobody else call BatchWrite.
type emulatorOwner struct{}

func (emulatorOwner) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer owner"}, nil
}
func (emulatorOwner) RequireTransportSecurity() bool { return false }

// New returns a store in collection, a path such as "onceq" in client's database. It does no I/O,
// and the collection needs no making. api makes the store's own writes, each with its own answer;
// client runs the transactions of [Store.Commit]. Both must be of the same service, which
// [Store.Probe] proves. The store repeats calls by itself, whatever the clients' retries say.
func New(client *firestore.Client, api *apiv1.Client, collection string, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	bad := func(format string, args ...any) (*Store, error) {
		return nil, fmt.Errorf("firestorestore: New: %w: "+format, append([]any{dedupe.ErrBadRequest}, args...)...)
	}
	if client == nil {
		return bad("client is nil")
	}
	if api == nil {
		return bad("api is nil; NewAPI makes one")
	}
	ref := client.Collection(collection)
	if ref == nil || len(collection) > 1500 || strings.HasPrefix(ref.ID, "__") || ref.ID == "." || ref.ID == ".." {
		return bad("collection is %q, want an odd number of names between slashes, none of them empty, 1,500 bytes or fewer", collection)
	}
	ttl := cmp.Or(o.TTLField, DefaultTTLField)
	switch {
	case len(ttl) > 100 || !fieldName.MatchString(ttl):
		return bad("Options.TTLField is %q, want 1 to 100 of A-Z a-z 0-9 _, a letter first", ttl)
	case isOwn(ttl):
		return bad("Options.TTLField is %q, a field that the store uses for something else", ttl)
	}
	database, _, _ := strings.Cut(ref.Path, "/documents/")
	parts := strings.Split(database, "/") // projects/P/databases/D
	return &Store{
		client: client, api: api, form: form{docs: ref.Path, ttl: ttl}, database: database, parent: ref.Path[:strings.LastIndexByte(ref.Path, '/')],
		headers: []string{
			"google-cloud-resource-prefix", database,
			"x-goog-request-params", "project_id=" + url.QueryEscape(parts[1]) + "&database_id=" + url.QueryEscape(parts[3]),
		},
		sweeps: o.Sweep, admin: o.Admin,
	}, nil
}

// Close ends the store: later calls answer [dedupe.ErrClosed]. Calls under way go on, and the
// clients stay open. It may be called more than once.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// Limits says what the store can hold.
func (s *Store) Limits() dedupe.Limits {
	return dedupe.Limits{MaxResult: maxResult, MaxBatch: maxBatch, Durable: true}
}

// ready tells why a call of n entries cannot begin.
func (s *Store) ready(ctx context.Context, n int) error {
	return records.Ready(ctx, "firestorestore", s.closed.Load(), n, maxBatch)
}

// try bounds one request, and names the database in its header.
func (s *Store) try(ctx context.Context) (context.Context, context.CancelFunc) {
	d := maxTry
	if end, ok := ctx.Deadline(); ok {
		d = min(d, max(minTry, time.Until(end)/2))
	}
	return context.WithTimeout(metadata.AppendToOutgoingContext(ctx, s.headers...), d)
}

// kept is how long a lease of ttl is kept in the document.
func (s *Store) kept(ttl time.Duration) time.Duration {
	m := max(margin, s.clock.spread())
	return min(ttl, math.MaxInt64-m) + m
}
