package matrix

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/onceqtest"
)

// This file owns the matrix on Firestore: all cells in bubbles, on the fake, and those of the
// emulator in real time, where there is one. Each cell has a collection for the records and one for
// the effects. A cell's processes use it from their goroutines; it does not change once it is made.

// firestoreFake has a server of its own for each cell.
func firestoreFake() *backend {
	b := virtual("firestore", true, func(t testing.TB) database {
		l := bufconn.Listen(64 << 10)
		s := firestorefake.New(nil)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		t.Cleanup(func() {
			s.Close()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
		d := &firestoreCell{name: scope, project: "p", dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }}
		return d.watched(t)
	})
	b.oneCall = true
	return b
}

// firestoreEmulator has one server for all cells.
func firestoreEmulator(t *testing.T) *backend {
	t.Helper()
	server := localstack.Firestore(t)
	project := server.Project(t)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Addr)
	}
	b := &backend{
		name: "firestore-emulator", queues: inMemory, transactions: true, oneCall: true,
		open: func(t testing.TB) database {
			return (&firestoreCell{name: "cell" + rand.Text(), project: project, dial: dial, live: true}).watched(t)
		},
		// As on DynamoDB: a Java that shares two processors with the tests answers within seconds.
		lease: 20 * time.Second, visibility: 3 * time.Second, call: 2 * time.Second, settle: 20 * time.Second, backoff: 20 * time.Millisecond,
		long: 2625 * time.Millisecond, second: 100 * time.Millisecond, stall: 2500 * time.Millisecond, late: 2300 * time.Millisecond,
		patience: 80 * time.Second,
	}
	if !proof.Asked() { // the bubbles play all modes
		b.only = []mode{completeTx}
		proof.Leave(t, "internal/tests/matrix: on Firestore's emulator, all modes but one")
	}
	return b
}

type firestoreCell struct {
	name, project string
	dial          onceqtest.DialFunc
	live          bool

	watch *firestore.Client // nobody's: it looks at what is there
	s     *firestorestore.Store
}

// watched opens what the cell itself looks with.
func (d *firestoreCell) watched(t testing.TB) *firestoreCell {
	t.Helper()
	c, s, end, err := d.clients(d.dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	d.watch, d.s = c, s
	return d
}

// clients are a process's, over connections of its own.
func (d *firestoreCell) clients(dial onceqtest.DialFunc) (*firestore.Client, *firestorestore.Store, func(), error) {
	conn, err := grpc.NewClient("passthrough:///firestore", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(owner{}),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) }))
	if err != nil {
		return nil, nil, nil, err
	}
	ctx := context.Background()
	c, err := firestore.NewClient(ctx, d.project, option.WithGRPCConn(conn))
	if err != nil {
		return nil, nil, nil, err
	}
	api, err := firestorestore.NewAPI(ctx, option.WithGRPCConn(conn))
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := firestorestore.New(c, api, d.name, nil)
	return c, s, sync.OnceFunc(func() { _ = conn.Close() }), err
}

// owner may do all in an emulator.
type owner struct{}

func (owner) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer owner"}, nil
}
func (owner) RequireTransportSecurity() bool { return false }

func (d *firestoreCell) connect(p *onceqtest.Process) (*conn, error) {
	_, s, end, err := d.clients(p.Dial(d.dial))
	if err != nil {
		return nil, err
	}
	p.OnDeath(end)
	return &conn{
		store: s, close: end,
		complete: func(ctx context.Context, p *onceqtest.Process, j *onceq.Job) error {
			// Two that are committed are two documents.
			id := fmt.Sprint(j.Fence(), rand.Text())
			j.Join() // as Commit does first, so that one which fails has been tried
			err := p.Call(ctx, commit, func(ctx context.Context) error {
				return s.Commit(ctx, j, "paid", func(_ context.Context, tx *firestore.Transaction) error {
					return tx.Create(d.effects().Doc(id), map[string]any{"order": j.Key().Key})
				})
			})
			if err != nil {
				return fmt.Errorf("%w: %w", errCommit, err)
			}
			return nil
		},
	}, nil
}

func (d *firestoreCell) effects() *firestore.CollectionRef {
	return d.watch.Collection(d.name + "-effects")
}
func (d *firestoreCell) store() dedupe.Store { return d.s }
func (d *firestoreCell) scope() string       { return scope }

func (d *firestoreCell) rows() (int, error) {
	docs, err := d.effects().Documents(context.Background()).GetAll()
	return len(docs), err
}

// age sets the end of the claim's lease where time is real; there is nothing to age where nothing
// is claimed.
func (d *firestoreCell) age(bool) error {
	if !d.live {
		return nil
	}
	ctx := context.Background()
	docs, err := d.watch.Collection(d.name).Documents(ctx).GetAll()
	for _, doc := range docs {
		if doc.Data()["status"] != "claimed" {
			continue
		}
		_, failed := doc.Ref.Update(ctx, []firestore.Update{{Path: "lease_until", Value: time.Now().Add(-time.Minute)}},
			firestore.LastUpdateTime(doc.UpdateTime))
		err = errors.Join(err, failed)
	}
	return err
}
