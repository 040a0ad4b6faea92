package firestorestore

import (
	"crypto/rand"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	apiv1 "cloud.google.com/go/firestore/apiv1"
	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/storetest"
	"github.com/onceq/onceq/internal/testserver/testgcp"
)

// What the tests of all stores say.
type job = storetest.Job

var (
	newToken  = storetest.Token
	request   = storetest.Request
	claimAll  = storetest.ClaimAll
	claimOne  = storetest.Claim
	getOne    = storetest.Get
	settle    = storetest.Settle
	settleOne = storetest.End
	renewOne  = storetest.Renew
)

// world is a server, and a client of each kind.
type world struct {
	client *firestore.Client
	api    *apiv1.Client
}

// emulator is the official emulator, with a project of the test's own.
func emulator(tb testing.TB, opts ...grpc.DialOption) *world {
	tb.Helper()
	f := testgcp.NewFirestore(tb)
	conn, err := grpc.NewClient("passthrough:///"+f.Addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(emulatorOwner{}))...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return dial(tb, f.Project(tb), option.WithGRPCConn(conn))
}

// fake is the server of tests, in memory.
func fake(tb testing.TB, fs ...firestorefake.Fault) (*firestorefake.Server, *world) {
	tb.Helper()
	srv, conn := firestorefake.Conn(tb, &firestorefake.Options{Faults: fs})
	return srv, dial(tb, "p", option.WithGRPCConn(conn))
}

func dial(tb testing.TB, project string, opts ...option.ClientOption) *world {
	tb.Helper()
	c := must.Get(firestore.NewClient(tb.Context(), project, opts...))
	a, err := NewAPI(tb.Context(), opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = c.Close() // both may have one connection
		_ = a.Close()
	})
	return &world{c, a}
}

// store is a store with a collection of its own.
func (w *world) store(tb testing.TB, o *Options) *Store {
	tb.Helper()
	return w.storeIn(tb, "t"+rand.Text(), o)
}

func (w *world) storeIn(tb testing.TB, collection string, o *Options) *Store {
	return must.Get(New(w.client, w.api, collection, o))
}

// second is another worker's store on the same collection.
func second(tb testing.TB, s *Store) *Store {
	return must.Get(New(s.client, s.api, s.client.DocFromFullPath(s.docs+"/x").Parent.ID, &Options{TTLField: s.ttl, Sweep: s.sweeps}))
}

// raw is the document under k; nil where there is none.
func raw(tb testing.TB, s *Store, k dedupe.Key) *firestorepb.Document {
	tb.Helper()
	docs, err := s.fetch(tb.Context(), "raw", []string{s.name(k)})
	if err != nil {
		tb.Fatal(err)
	}
	return docs[s.name(k)]
}

func putRaw(tb testing.TB, s *Store, k dedupe.Key, f fields) {
	tb.Helper()
	doc := &firestorepb.Document{Name: s.name(k), Fields: f}
	out, err := s.api.BatchWrite(tb.Context(), &firestorepb.BatchWriteRequest{
		Database: s.database, Writes: []*firestorepb.Write{{Operation: &firestorepb.Write_Update{Update: doc}}},
	})
	if err != nil || out.Status[0].GetCode() != 0 {
		tb.Fatal(err, out.GetStatus())
	}
}

// age lets d go by for the record under k.
func age(tb testing.TB, s *Store, k dedupe.Key, d time.Duration) {
	tb.Helper()
	doc := raw(tb, s, k)
	if doc == nil {
		return
	}
	for name, v := range doc.Fields {
		if t, ok := fromValue(v).(time.Time); ok && name != "sent" {
			doc.Fields[name] = toValue(t.Add(-d))
		}
	}
	putRaw(tb, s, k, doc.Fields)
}
