package firestorefake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// This file owns the calls that both servers are asked, the fake and Google's emulator, and how an
// answer is written down. One goroutine plays a script; compare_test.go says what is compared.

// talk is one script's conversation with a server.
type talk struct {
	ctx   context.Context
	c     pb.FirestoreClient
	db    string
	said  []string
	times map[string]*timestamppb.Timestamp // of documents, by name
}

func (k *talk) doc(name string) string { return k.db + "/documents/c/" + name }

// note writes an answer down.
func (k *talk) note(format string, args ...any) {
	k.said = append(k.said, fmt.Sprintf(format, args...))
}

// plain takes out of a text what differs from run to run.
func (k *talk) plain(s string) string {
	s = strings.ReplaceAll(s, k.db, "DB")
	s = there.ReplaceAllString(s, "Document already exists: DB/documents$1")
	s = missing.ReplaceAllString(s, "No document to update: DB/documents/$1/$2")
	return digits.ReplaceAllString(s, "N")
}

var (
	digits = regexp.MustCompile(`\d{6,}`)
	// The emulator's words for what the service says of documents.
	there   = regexp.MustCompile(`entity already exists: EntityRef\{partitionRef=[^,]*, path=([^}]*)\}`)
	missing = regexp.MustCompile(`(?s)no entity to update: app: .*type: "(\w+)"\s*name: "(\w+)"\s*\}\s*>\s*`)
)

func (k *talk) failed(what string, err error) bool {
	if err == nil {
		return false
	}
	s := status.Convert(err)
	k.note("%s: %v: %s", what, s.Code(), k.plain(s.Message()))
	return true
}

func text(s string) *pb.Value { return &pb.Value{ValueType: &pb.Value_StringValue{StringValue: s}} }
func num(n int64) *pb.Value   { return &pb.Value{ValueType: &pb.Value_IntegerValue{IntegerValue: n}} }

func at(t time.Time) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_TimestampValue{TimestampValue: timestamppb.New(t)}}
}

func update(name string, fields map[string]*pb.Value, mask ...string) *pb.Write {
	w := &pb.Write{Operation: &pb.Write_Update{Update: &pb.Document{Name: name, Fields: fields}}}
	if mask != nil {
		w.UpdateMask = &pb.DocumentMask{FieldPaths: mask}
	}
	return w
}

func remove(name string) *pb.Write { return &pb.Write{Operation: &pb.Write_Delete{Delete: name}} }

func exists(w *pb.Write, is bool) *pb.Write {
	w.CurrentDocument = &pb.Precondition{ConditionType: &pb.Precondition_Exists{Exists: is}}
	return w
}

func unchanged(w *pb.Write, since *timestamppb.Timestamp) *pb.Write {
	w.CurrentDocument = &pb.Precondition{ConditionType: &pb.Precondition_UpdateTime{UpdateTime: since}}
	return w
}

func target(w *pb.Write) string {
	if w.GetUpdate() != nil {
		return w.GetUpdate().GetName()
	}
	return w.GetDelete()
}

func (k *talk) batch(what string, ws ...*pb.Write) {
	out, err := k.c.BatchWrite(k.ctx, &pb.BatchWriteRequest{Database: k.db, Writes: ws})
	if k.failed(what, err) {
		return
	}
	for i, st := range out.GetStatus() {
		t := out.GetWriteResults()[i].GetUpdateTime()
		name := target(ws[i])
		k.note("%s[%d]: %v: %s %s", what, i, codes.Code(st.GetCode()), k.plain(st.GetMessage()), k.newer(name, t))
	}
}

// newer tells how an update time stands to the last one of the document.
func (k *talk) newer(name string, t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	was := k.times[name]
	k.times[name] = t
	switch {
	case was == nil:
		return "first"
	case was.AsTime().Equal(t.AsTime()):
		return "same"
	case t.AsTime().After(was.AsTime()):
		return "newer"
	}
	return "older"
}

func (k *talk) commit(what string, tx []byte, ws ...*pb.Write) {
	out, err := k.c.Commit(k.ctx, &pb.CommitRequest{Database: k.db, Transaction: tx, Writes: ws})
	if k.failed(what, err) {
		return
	}
	k.note("%s: committed, time %t", what, out.GetCommitTime() != nil)
	for i, r := range out.GetWriteResults() {
		k.note("%s[%d]: %s", what, i, k.newer(target(ws[i]), r.GetUpdateTime()))
	}
}

func (k *talk) begin(what string) []byte {
	out, err := k.c.BeginTransaction(k.ctx, &pb.BeginTransactionRequest{Database: k.db})
	if k.failed(what, err) {
		return nil
	}
	return out.GetTransaction()
}

func (k *talk) fields(d *pb.Document) string {
	var parts []string
	for _, f := range []string{"a", "b", "n", "t"} {
		if v := d.GetFields()[f]; v != nil {
			parts = append(parts, f+"="+strings.Join(strings.Fields(v.String()), ""))
		}
	}
	return fmt.Sprintf("%s {%s} %s", k.plain(d.GetName()), strings.Join(parts, " "), k.newer(d.GetName(), d.GetUpdateTime()))
}

func (k *talk) get(what string, tx []byte, names ...string) {
	req := &pb.BatchGetDocumentsRequest{Database: k.db, Documents: names}
	if tx != nil {
		req.ConsistencySelector = &pb.BatchGetDocumentsRequest_Transaction{Transaction: tx}
	}
	in, err := k.c.BatchGetDocuments(k.ctx, req)
	if k.failed(what, err) {
		return
	}
	for i := 0; ; i++ {
		out, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if k.failed(what, err) {
			return
		}
		switch {
		case out.GetFound() != nil:
			k.note("%s[%d]: %s, read %t", what, i, k.fields(out.GetFound()), out.GetReadTime() != nil)
		default:
			k.note("%s[%d]: missing %s, read %t", what, i, k.plain(out.GetMissing()), out.GetReadTime() != nil)
		}
	}
}

func (k *talk) query(what string, q *pb.StructuredQuery) {
	q.From = []*pb.StructuredQuery_CollectionSelector{{CollectionId: "c"}}
	in, err := k.c.RunQuery(k.ctx, &pb.RunQueryRequest{
		Parent: k.db + "/documents", QueryType: &pb.RunQueryRequest_StructuredQuery{StructuredQuery: q},
	})
	if k.failed(what, err) {
		return
	}
	for i := 0; ; i++ {
		out, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if k.failed(what, err) {
			return
		}
		if out.GetDocument() == nil {
			k.note("%s: no document, read %t", what, out.GetReadTime() != nil)
			continue
		}
		k.note("%s[%d]: %s", what, i, k.fields(out.GetDocument()))
	}
}

func where(field string, op pb.StructuredQuery_FieldFilter_Operator, v *pb.Value) *pb.StructuredQuery_Filter {
	return &pb.StructuredQuery_Filter{FilterType: &pb.StructuredQuery_Filter_FieldFilter{FieldFilter: &pb.StructuredQuery_FieldFilter{
		Field: &pb.StructuredQuery_FieldReference{FieldPath: field}, Op: op, Value: v,
	}}}
}

func by(fields ...string) (os []*pb.StructuredQuery_Order) {
	for _, f := range fields {
		os = append(os, &pb.StructuredQuery_Order{
			Field: &pb.StructuredQuery_FieldReference{FieldPath: f}, Direction: pb.StructuredQuery_ASCENDING,
		})
	}
	return os
}

// scripts are the conversations, by name.
var scripts = []struct {
	name string
	play func(k *talk)
}{
	{"creates", func(k *talk) {
		a, b := k.doc("a"), k.doc("b")
		k.batch("create", exists(update(a, map[string]*pb.Value{"a": text("x")}), false))
		k.batch("again", exists(update(a, map[string]*pb.Value{"a": text("y")}), false), exists(update(b, map[string]*pb.Value{"a": text("z")}), false))
		k.get("get", nil, a, b, k.doc("none"))
		k.batch("one twice", update(b, map[string]*pb.Value{"a": text("1")}), update(b, map[string]*pb.Value{"a": text("2")}))
		k.get("get", nil, b)
	}},
	{"swaps", func(k *talk) {
		a := k.doc("a")
		k.batch("create", update(a, map[string]*pb.Value{"a": text("x"), "b": num(1)}))
		was := k.times[a]
		k.batch("swap", unchanged(update(a, map[string]*pb.Value{"n": num(2)}, "n", "b"), was))
		k.get("get", nil, a)
		k.batch("stale", unchanged(update(a, map[string]*pb.Value{"n": num(3)}, "n"), was))
		k.batch("nothing changes", update(a, map[string]*pb.Value{"n": num(2)}, "n"))
		k.batch("nothing changes, conditionally", unchanged(update(a, map[string]*pb.Value{"n": num(2)}, "n"), k.times[a]))
		k.batch("of none", unchanged(update(k.doc("none"), nil), was))
		k.batch("must exist", exists(update(k.doc("none"), nil), true))
		k.batch("stale deletion", unchanged(remove(a), was))
		k.batch("deletion", unchanged(remove(a), k.times[a]), remove(k.doc("none")), exists(remove(k.doc("other")), true))
		k.get("get", nil, a)
	}},
	{"times", func(k *talk) {
		a := k.doc("a")
		k.commit("make", nil, update(a, map[string]*pb.Value{"t": at(time.Unix(100, 7999))}))
		k.get("get", nil, a)
	}},
	{"commits", func(k *talk) {
		a, b := k.doc("a"), k.doc("b")
		k.commit("two", nil, update(a, map[string]*pb.Value{"n": num(1)}), update(b, map[string]*pb.Value{"n": num(2)}))
		k.commit("one fails", nil, update(a, map[string]*pb.Value{"n": num(5)}), exists(update(b, nil), false))
		k.get("get", nil, a, b)
		k.commit("stale", nil, unchanged(update(a, nil), timestamppb.New(time.Unix(1, 0))))
		k.commit("of none", nil, exists(update(k.doc("none"), nil), true))
		w := update(a, map[string]*pb.Value{"n": num(7)}, "n")
		w.UpdateTransforms = []*pb.DocumentTransform_FieldTransform{{FieldPath: "b", TransformType: &pb.DocumentTransform_FieldTransform_Increment{Increment: num(4)}}}
		k.commit("transform", nil, w)
		k.commit("one twice", nil, update(b, map[string]*pb.Value{"n": num(8)}), update(b, map[string]*pb.Value{"a": text("9")}, "a"))
		k.get("get", nil, a, b)
		k.commit("nothing", nil)
	}},
	{"transactions", func(k *talk) {
		a := k.doc("a")
		k.commit("make", nil, update(a, map[string]*pb.Value{"n": num(1)}))
		tx := k.begin("begin")
		k.get("read", tx, a)
		k.commit("commit", tx, update(a, map[string]*pb.Value{"n": num(2)}))
		k.commit("commit again", tx, update(a, map[string]*pb.Value{"n": num(3)}))
		k.get("get", nil, a)
		tx = k.begin("begin")
		k.get("read", tx, a)
		_, err := k.c.Rollback(k.ctx, &pb.RollbackRequest{Database: k.db, Transaction: tx})
		k.note("rollback %v", err)
		k.commit("commit after rollback", tx, update(a, map[string]*pb.Value{"n": num(4)}))
		_, err = k.c.Rollback(k.ctx, &pb.RollbackRequest{Database: k.db, Transaction: tx})
		k.failed("rollback again", err)
		k.commit("unknown", []byte("unknown"), update(a, map[string]*pb.Value{"n": num(4)}))
		k.get("read unknown", []byte("unknown"), a)
	}},
	{"locks", func(k *talk) {
		a := k.doc("a")
		k.commit("make", nil, update(a, map[string]*pb.Value{"n": num(1)}))
		tx := k.begin("begin")
		k.get("read", tx, a)
		ctx, cancel := context.WithTimeout(k.ctx, 200*time.Millisecond)
		_, err := k.c.BatchWrite(ctx, &pb.BatchWriteRequest{Database: k.db, Writes: []*pb.Write{update(a, map[string]*pb.Value{"n": num(2)})}})
		cancel()
		k.note("a write beside it: %v", status.Code(err))
		k.batch("another document", update(k.doc("b"), map[string]*pb.Value{"n": num(2)}))
		k.get("a read beside it", nil, a)
		k.commit("commit", tx, update(a, map[string]*pb.Value{"n": num(3)}))
		// The write whose caller gave up is made all the same, once it has its lock.
		for tick := time.Tick(5 * time.Millisecond); ; <-tick {
			if k.ctx.Err() != nil {
				k.note("get: never")
				break
			}
			before := len(k.said)
			k.get("get", nil, a)
			if strings.Contains(k.said[before], "n=integer_value:2") {
				break
			}
			k.said = k.said[:before]
		}
	}},
	{"two transactions of one document", func(k *talk) {
		a := k.doc("a")
		k.commit("make", nil, update(a, map[string]*pb.Value{"n": num(1)}))
		tx, other := k.begin("begin"), k.begin("begin")
		k.get("read", tx, a)
		k.get("other reads", other, a)
		failed := make(chan error)
		for _, id := range [][]byte{tx, other} {
			go func() {
				_, err := k.c.Commit(k.ctx, &pb.CommitRequest{Database: k.db, Transaction: id, Writes: []*pb.Write{update(a, map[string]*pb.Value{"n": num(8)})}})
				failed <- err
			}()
		}
		n, code := 0, codes.OK
		for range 2 {
			if err := <-failed; err != nil {
				n, code = n+1, status.Code(err)
			}
		}
		k.note("both commit: one fails, or both: %t, %v", n > 0, code) // the emulator fails both at times
	}},
	{"queries", func(k *talk) {
		day := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
		var ws []*pb.Write
		for i := range 5 {
			f := map[string]*pb.Value{"a": text([]string{"x", "y"}[i%2]), "n": num(int64(10 - i))}
			if i != 3 {
				f["t"] = at(day.Add(time.Duration(i%3) * time.Hour))
			}
			ws = append(ws, update(k.doc(fmt.Sprint("d", i)), f))
		}
		k.commit("make", nil, append(ws, update(k.doc("d0")+"/c/below", map[string]*pb.Value{"a": text("x")}))...)
		k.query("all", &pb.StructuredQuery{})
		k.query("equal", &pb.StructuredQuery{Where: where("a", pb.StructuredQuery_FieldFilter_EQUAL, text("x")), OrderBy: by("__name__")})
		k.query("up to", &pb.StructuredQuery{
			Where: where("t", pb.StructuredQuery_FieldFilter_LESS_THAN_OR_EQUAL, at(day.Add(time.Hour))), OrderBy: by("t", "__name__"), Limit: wrapperspb.Int32(3),
		})
		k.query("after", &pb.StructuredQuery{
			Where: where("t", pb.StructuredQuery_FieldFilter_LESS_THAN_OR_EQUAL, at(day.Add(time.Hour))), OrderBy: by("t", "__name__"),
			StartAt: &pb.Cursor{Values: []*pb.Value{at(day), {ValueType: &pb.Value_ReferenceValue{ReferenceValue: k.doc("d0")}}}},
		})
		k.query("named fields", &pb.StructuredQuery{
			Select:  &pb.StructuredQuery_Projection{Fields: []*pb.StructuredQuery_FieldReference{{FieldPath: "n"}}},
			OrderBy: by("__name__"), Limit: wrapperspb.Int32(1),
		})
		k.query("none", &pb.StructuredQuery{Where: where("a", pb.StructuredQuery_FieldFilter_EQUAL, text("q"))})
		k.query("above", &pb.StructuredQuery{Where: where("n", pb.StructuredQuery_FieldFilter_GREATER_THAN, num(8))})
	}},
	{"limits", func(k *talk) {
		ws := make([]*pb.Write, 501)
		for i := range ws {
			ws[i] = update(k.doc(fmt.Sprint(i)), nil)
		}
		_, err := k.c.BatchWrite(k.ctx, &pb.BatchWriteRequest{Database: k.db, Writes: ws})
		k.note("501: %v", status.Code(err))
		k.batch("large", update(k.doc("a"), map[string]*pb.Value{"a": text(strings.Repeat("x", 1<<20))}))
		k.batch("no name", update("x", nil))
		k.batch("nowhere", update(k.db+"/documents/c", nil))
		k.batch("reserved", update(k.doc("__x__"), nil))
		k.batch("nothing")
	}},
}

func play(t *testing.T, conn *grpc.ClientConn, project string, script func(*talk)) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	k := &talk{ctx: ctx, c: pb.NewFirestoreClient(conn), db: "projects/" + project + "/databases/(default)", times: map[string]*timestamppb.Timestamp{}}
	script(k)
	return k.said
}
