package firestorefake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/firestore"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
	"github.com/onceq/onceq/internal/must"
)

const db = "projects/p/databases/(default)"

// fake is a conversation with a fake.
func fake(t *testing.T, o firestorefake.Options) (*firestorefake.Server, *talk) {
	t.Helper()
	s, conn := firestorefake.Conn(t, &o)
	return s, &talk{ctx: t.Context(), c: pb.NewFirestoreClient(conn), db: db, times: map[string]*timestamppb.Timestamp{}}
}

// TestFaults: an answer is lost with its change or without, a call is refused, and one write of a
// batch.
func TestFaults(t *testing.T) {
	s, k := fake(t, firestorefake.Options{Faults: []firestorefake.Fault{
		{Method: "BatchWrite", Count: 1, Code: codes.Unavailable, Applied: true},
		{Method: "BatchWrite", Skip: 1, Count: 1, Code: codes.Unavailable},
	}})
	create := func(name string) { k.batch(name, exists(update(k.doc(name), nil), false)) }
	create("a") // applied, and not answered
	create("a")
	create("b") // neither applied nor answered
	create("b")
	s.SetFaults(firestorefake.Fault{Method: "BatchWrite", Entries: []int{1}, Code: codes.Aborted, Message: "hot"})
	k.batch("c", update(k.doc("c"), nil), update(k.doc("d"), nil), update(k.doc("e"), nil))
	s.SetFaults()
	create("d")
	same(t, k.said, []string{
		"a: Unavailable: Unavailable", "a[0]: AlreadyExists: Document already exists: DB/documents/c/a -",
		"b: Unavailable: Unavailable", "b[0]: OK:  first",
		"c[0]: OK:  first", "c[1]: Aborted: hot -", "c[2]: OK:  first", "d[0]: OK:  first",
	})
	if u := s.Usage(); u.Writes != 5 || u.Reads != 0 || u.Calls["BatchWrite"] != 6 {
		t.Errorf("%+v, want 5 writes in 6 calls", u)
	}
	s.ResetUsage()
	k.get("get", nil, k.doc("a"), k.doc("none"))
	if u := s.Usage(); u.Writes != 0 || u.Reads != 2 || u.Calls["BatchGetDocuments"] != 1 {
		t.Errorf("%+v, want 2 reads in a call", u)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	s.SetFaults(firestorefake.Fault{Silence: true})
	if _, err := k.c.BatchWrite(ctx, &pb.BatchWriteRequest{Database: db}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("silence: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a fault that is never met was taken")
		}
	}()
	s.SetFaults(firestorefake.Fault{Method: "Batchwrite"})
}

// TestRefusals: each comes as the service's, and says where it is from.
func TestRefusals(t *testing.T) {
	for _, r := range firestorefake.Refusals() {
		s, k := fake(t, firestorefake.Options{})
		s.SetFaults(r.Fault("Commit"))
		_, err := k.c.Commit(t.Context(), &pb.CommitRequest{Database: db})
		if got := status.Convert(err); got.Code() != r.Code || got.Message() != r.Message || r.Source == "" {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
}

// TestExpire: what has expired goes when the policy comes round, and nothing else.
func TestExpire(t *testing.T) {
	s, k := fake(t, firestorefake.Options{})
	now := time.Now()
	k.commit("make", nil,
		update(k.doc("old"), map[string]*pb.Value{"t": at(now.Add(-time.Second))}), update(k.doc("young"), map[string]*pb.Value{"t": at(now.Add(time.Hour))}),
		update(k.doc("text"), map[string]*pb.Value{"t": text("x")}), update(k.doc("none"), nil),
		update(db+"/documents/other/old", map[string]*pb.Value{"t": at(now.Add(-time.Second))}))
	if n := s.Expire("c", "t"); n != 1 {
		t.Errorf("%d documents are gone, want one", n)
	}
	k.said = nil
	k.get("get", nil, k.doc("old"), k.doc("young"), db+"/documents/other/old")
	if len(k.said) != 3 || k.said[0] != "get[0]: missing DB/documents/c/old, read true" {
		t.Errorf("%q", k.said)
	}
}

// TestVirtualTime: a transaction that nobody calls holds its documents for a minute, which passes
// in a moment.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, k := fake(t, firestorefake.Options{LockWait: 2 * time.Second})
		a := k.doc("a")
		k.commit("make", nil, update(a, nil))
		tx := k.begin("begin")
		k.get("read", tx, a)
		k.batch("held", update(a, map[string]*pb.Value{"n": num(1)}))
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("it waited %v, want 2 s", waited)
		}
		<-time.After(time.Minute)
		k.batch("free", update(a, map[string]*pb.Value{"n": num(1)}))
		k.commit("late", tx, update(a, nil))
		same(t, k.said[3:], []string{
			"held[0]: Aborted: Too much contention on these documents. Please try again. -", "free[0]: OK:  newer",
			"late: InvalidArgument: Transaction is invalid or closed.",
		})
	})
}

// TestGooglesClient: a user's transaction runs through Google's own client, over the network.
func TestGooglesClient(t *testing.T) {
	_, addr := firestorefake.Start(t, nil)
	t.Setenv("FIRESTORE_EMULATOR_HOST", addr)
	c := must.Get(firestore.NewClient(t.Context(), "p", option.WithoutAuthentication()))
	defer c.Close()
	total := c.Doc("totals/all")
	for range 3 {
		if err := c.RunTransaction(t.Context(), func(_ context.Context, tx *firestore.Transaction) error {
			docs, err := tx.GetAll([]*firestore.DocumentRef{total})
			if err != nil {
				return err
			}
			n := int64(0)
			if docs[0].Exists() {
				n = docs[0].Data()["n"].(int64)
			}
			return tx.Set(total, map[string]any{"n": n + 1, "at": firestore.ServerTimestamp})
		}); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := total.Get(t.Context())
	if err != nil || doc.Data()["n"] != int64(3) {
		t.Errorf("%v, %v", doc.Data(), err)
	}
	all, err := c.Collection("totals").Where("n", ">", 1).Documents(t.Context()).GetAll()
	if err != nil || len(all) != 1 {
		t.Errorf("%d documents, %v", len(all), err)
	}
}
