package firestorestore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
)

// dial stands for Application Default Credentials: a server of this process.
func dial() (opt option.ClientOption, stop func()) {
	srv := firestorefake.New(nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = srv.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	return option.WithGRPCConn(conn), srv.Close
}

func ExampleNew() {
	ctx := context.Background()
	opt, stop := dial() // a program on Google Cloud needs no option
	defer stop()
	client, err := firestore.NewClientWithDatabase(ctx, "my-project", "(default)", opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	api, err := firestorestore.NewAPI(ctx, opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := firestorestore.New(client, api, "onceq", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	l := store.Limits()
	fmt.Println("largest result:", l.MaxResult, "bytes; batch:", l.MaxBatch)
	fmt.Println("probe:", store.Probe(ctx)) // at the start

	_, err = firestorestore.New(client, api, "apps/shop", nil) // a document's path
	fmt.Println(errors.Is(err, dedupe.ErrBadRequest))
	// Output:
	// largest result: 1032192 bytes; batch: 500
	// probe: <nil>
	// true
}

// charge is what a handler does: the line in the ledger and the end of the job are one transaction.
func charge(ctx context.Context, client *firestore.Client, store *firestorestore.Store, job dedupe.Owned, order string) error {
	err := store.Commit(ctx, job, map[string]string{"charged": order}, func(_ context.Context, tx *firestore.Transaction) error {
		return tx.Create(client.Collection("ledger").Doc(order), map[string]any{"order": order, "cents": 4200})
	})
	var no *firestorestore.CommitError
	if errors.As(err, &no) && status.Code(no.Unwrap()) == codes.AlreadyExists {
		return onceq.Permanent(fmt.Errorf("order %s was charged by somebody else", order))
	}
	return err
}

// A handler whose effects are documents commits them with the end of its job. Its *onceq.Job is the
// job.
func ExampleStore_Commit() {
	ctx := context.Background()
	opt, stop := dial()
	defer stop()
	client, err := firestore.NewClient(ctx, "my-project", opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	api, err := firestorestore.NewAPI(ctx, opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := firestorestore.New(client, api, "onceq", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for n, order := range []string{"o-1", "o-1"} { // two jobs charge one order
		job := claim(ctx, store, fmt.Sprint("job-", n))
		fmt.Println(charge(ctx, client, store, job, order))
	}
	// Output:
	// the worker leaves it to the transaction
	// <nil>
	// the worker leaves it to the transaction
	// order o-1 was charged by somebody else
}

// claim is the worker's part.
func claim(ctx context.Context, s *firestorestore.Store, key string) *running {
	cs, err := s.Claim(ctx, []dedupe.ClaimRequest{{Key: dedupe.Key{Scope: "orders", Key: key}, Token: dedupe.Token{1, key[len(key)-1]}, TTL: time.Minute}})
	if err != nil {
		panic(err)
	}
	return &running{cs[0].Lease}
}

// running stands for a *onceq.Job.
type running struct{ lease dedupe.Lease }

func (r *running) Lease() dedupe.Lease   { return r.lease }
func (r *running) Retain() time.Duration { return 0 }
func (r *running) Join()                 { fmt.Println("the worker leaves it to the transaction") }
