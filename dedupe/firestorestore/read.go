package firestorestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns what reads: Get, List, the time, and the sweep, which reads before it deletes.
// Operators and their tools call them, and a worker calls Get after a Commit. Nothing here is
// locked.

// repeat makes a request that only reads until it is answered.
func (s *Store) repeat(ctx context.Context, call string, read func(ctx context.Context) error) error {
	for n := 1; ; n++ {
		try, cancel := s.try(ctx)
		err := read(try)
		cancel()
		if err == nil {
			return nil
		}
		code := status.Code(err)
		if ctx.Err() != nil || n == maxTries || !passes(code) && code != codes.Aborted || !retry.Rest(ctx, retry.Pause(n)) {
			return s.explain(ctx, call, err)
		}
	}
}

// fetch reads documents by name, strongly consistent, in one request. What is not there is not in
// the answer.
func (s *Store) fetch(ctx context.Context, call string, names []string) (docs map[string]*firestorepb.Document, err error) {
	unique := slices.Compact(slices.Sorted(slices.Values(names)))
	err = s.repeat(ctx, call, func(ctx context.Context) error {
		docs = make(map[string]*firestorepb.Document, len(unique))
		asked := s.clock.ask()
		in, err := s.api.BatchGetDocuments(ctx, &firestorepb.BatchGetDocumentsRequest{Database: s.database, Documents: unique}, once)
		if err != nil {
			return err
		}
		for n := 0; ; n++ {
			out, err := in.Recv()
			switch {
			case errors.Is(err, io.EOF) && n >= len(unique):
				return nil
			case errors.Is(err, io.EOF):
				return status.Errorf(codes.Internal, "%d answers about %d documents", n, len(unique))
			case err != nil:
				return err
			}
			if n == 0 && out.GetReadTime() != nil {
				s.clock.observe(out.GetReadTime().AsTime(), asked)
			}
			if d := out.GetFound(); d != nil {
				docs[d.GetName()] = d
			}
		}
	})
	return docs, err
}

// time is the service's. A process does not know it before its first answer, nor after its host was
// suspended or its clock was set. Then it asks for a document that is never there.
func (s *Store) time(ctx context.Context, call string) (reading, error) {
	for range 3 {
		sent := time.Now()
		if now, known := s.clock.now(); known {
			return reading{now, sent}, nil
		}
		if _, err := s.fetch(ctx, call, []string{s.docs + "/clock"}); err != nil {
			return reading{}, err
		}
	}
	return reading{}, silent{fmt.Errorf("firestorestore: %s: the time is not known: the host's clock was set, or the host slept, during each of three reads", call)}
}

// Get reads records, strongly consistent, all in one request. It is for people, and for what never
// changes: no other answer of the store rests on a read alone.
func (s *Store) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	if err := s.ready(ctx, len(ks)); err != nil {
		return nil, err
	}
	found := make([]*dedupe.Record, len(ks))
	if len(ks) == 0 {
		return found, nil
	}
	names := make([]string, len(ks))
	for i, k := range ks {
		names[i] = s.name(k)
	}
	docs, err := s.fetch(ctx, "Get", names)
	if err != nil {
		return nil, err
	}
	at, err := s.time(ctx, "Get")
	if err != nil {
		return nil, err
	}
	for i, k := range ks {
		st, err := s.decode(k, docs[names[i]])
		if err != nil {
			return nil, fmt.Errorf("firestorestore: Get: %w", err)
		}
		if st != nil && st.rec.Status != 0 && !st.rec.Expired(at.now) {
			found[i] = &st.rec
		}
	}
	return found, nil
}

// List goes through records in the order of scope, then key, byte by byte. Firestore has no such
// order without an index of both, which would slow down every claim. So List first reads the whole
// collection, whatever it looks for, and keeps the keys of what matches. Then it reads each record
// when its turn comes. A record that has ceased to match meanwhile is left out, and a new one is
// not seen. Each document of the first part costs a read, and each record that the caller takes
// another.
//
// A list of failed, parked or released records asks the index of the field "attention" instead, and
// reads as many documents as there are of these.
func (s *Store) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return func(yield func(*dedupe.Record, error) bool) {
		keys, err := s.matching(ctx, &q)
		if err != nil {
			yield(nil, err)
			return
		}
		records.ReadMatching(&q, keys, 100, func(part []dedupe.Key) ([]*dedupe.Record, error) { return s.Get(ctx, part) }, yield)
	}
}

// matching are the keys of the records that q selects, in order.
func (s *Store) matching(ctx context.Context, q *dedupe.Query) ([]dedupe.Key, error) {
	if err := s.ready(ctx, 1); err != nil {
		return nil, err
	}
	if err := records.CheckAfter(q); err != nil {
		return nil, fmt.Errorf("firestorestore: %w", err)
	}
	at, err := s.time(ctx, "List")
	if err != nil {
		return nil, err
	}
	var where *firestorepb.StructuredQuery_Filter
	if s.Indexed(*q) {
		where = filter(fieldAttention, firestorepb.StructuredQuery_FieldFilter_EQUAL, q.Status.String())
	}
	var keys []dedupe.Key
	for doc, err := range s.query(ctx, "List", where, fieldKey, fieldScope, fieldStatus, fieldUpdated, "claimed_at", fieldLease, s.ttl) {
		if err != nil {
			return nil, err
		}
		st, bad := s.read(doc)
		// Get tells what is wrong with a record that cannot be read.
		if r := &st.rec; bad != nil || r.Status != 0 && !r.Expired(at.now) && records.Matches(r, q) {
			keys = append(keys, r.Key)
		}
	}
	return records.Behind(q, keys), nil
}

// Indexed reports whether an index answers q: that of "attention" does where q asks for failed,
// parked or released records. It does no I/O.
func (s *Store) Indexed(q dedupe.Query) bool { return needsAttention(q.Status) }

func filter(field string, op firestorepb.StructuredQuery_FieldFilter_Operator, v any) *firestorepb.StructuredQuery_Filter {
	return &firestorepb.StructuredQuery_Filter{FilterType: &firestorepb.StructuredQuery_Filter_FieldFilter{
		FieldFilter: &firestorepb.StructuredQuery_FieldFilter{Field: reference(field), Op: op, Value: toValue(v)},
	}}
}

func reference(field string) *firestorepb.StructuredQuery_FieldReference {
	return &firestorepb.StructuredQuery_FieldReference{FieldPath: field}
}

// page is how many documents one query reads, so that none takes longer than Firestore allows.
const page = 2000

// selection asks for some fields of the collection's documents, in the order of one of them.
func (s *Store) selection(where *firestorepb.StructuredQuery_Filter, order string, fields ...string) *firestorepb.StructuredQuery {
	q := &firestorepb.StructuredQuery{
		From:    []*firestorepb.StructuredQuery_CollectionSelector{{CollectionId: s.group()}},
		Where:   where,
		Select:  &firestorepb.StructuredQuery_Projection{},
		OrderBy: []*firestorepb.StructuredQuery_Order{{Field: reference(order), Direction: firestorepb.StructuredQuery_ASCENDING}},
	}
	for _, f := range fields {
		q.Select.Fields = append(q.Select.Fields, reference(f))
	}
	return q
}

// query goes through documents in the order of their names. The sequence ends after the first
// error.
func (s *Store) query(ctx context.Context, call string, where *firestorepb.StructuredQuery_Filter, fields ...string) iter.Seq2[*firestorepb.Document, error] {
	q := s.selection(where, "__name__", fields...)
	return func(yield func(*firestorepb.Document, error) bool) {
		for {
			docs, err := s.queryPage(ctx, call, q, page)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, d := range docs {
				if !yield(d, nil) {
					return
				}
			}
			if len(docs) < page {
				return
			}
			last := &firestorepb.Value{ValueType: &firestorepb.Value_ReferenceValue{ReferenceValue: docs[page-1].GetName()}}
			q.StartAt = &firestorepb.Cursor{Values: []*firestorepb.Value{last}}
		}
	}
}

func (s *Store) queryPage(ctx context.Context, call string, q *firestorepb.StructuredQuery, limit int) (docs []*firestorepb.Document, err error) {
	q.Limit = wrapperspb.Int32(int32(limit))
	err = s.repeat(ctx, call, func(ctx context.Context) error {
		docs = docs[:0]
		in, err := s.api.RunQuery(ctx, &firestorepb.RunQueryRequest{
			Parent: s.parent, QueryType: &firestorepb.RunQueryRequest_StructuredQuery{StructuredQuery: q},
		}, once)
		if err != nil {
			return err
		}
		for {
			out, err := in.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if d := out.GetDocument(); d != nil {
				docs = append(docs, d)
			}
		}
	})
	return docs, err
}

// Now is the service's time, by which the store judges leases: the host's, corrected by the times
// in every answer. A store that has had no answer yet reads a document for it.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.ready(ctx, 0); err != nil {
		return time.Time{}, err
	}
	at, err := s.time(ctx, "Now")
	return at.now, err
}

// Sweep deletes at most limit documents that have expired, the oldest first; 0 or less = all. Each
// costs a read and a deletion. Without Options.Sweep it does nothing, because the TTL policy does
// it.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	if err := s.ready(ctx, 0); err != nil || !s.sweeps {
		return 0, err
	}
	at, err := s.time(ctx, "Sweep")
	if err != nil {
		return 0, err
	}
	q := s.selection(filter(s.ttl, firestorepb.StructuredQuery_FieldFilter_LESS_THAN_OR_EQUAL, at.now), s.ttl, s.ttl)
	gone := 0
	for limit <= 0 || gone < limit {
		n := maxBatch
		if limit > 0 {
			n = min(n, limit-gone)
		}
		docs, err := s.queryPage(ctx, "Sweep", q, n)
		if err != nil || len(docs) == 0 {
			return gone, err
		}
		deleted, err := s.delete(ctx, "Sweep", docs...)
		if gone += deleted; err != nil || deleted == 0 { // who holds the rest sees to it, or a later sweep
			return gone, err
		}
	}
	return gone, nil
}

// delete tells how many of the documents are gone. What has changed since it was read, or is held,
// stays.
func (s *Store) delete(ctx context.Context, call string, docs ...*firestorepb.Document) (gone int, err error) {
	in := &firestorepb.BatchWriteRequest{Database: s.database}
	for _, d := range docs {
		in.Writes = append(in.Writes, &firestorepb.Write{
			Operation:       &firestorepb.Write_Delete{Delete: d.GetName()},
			CurrentDocument: &firestorepb.Precondition{ConditionType: &firestorepb.Precondition_UpdateTime{UpdateTime: d.GetUpdateTime()}},
		})
	}
	err = s.repeat(ctx, call, func(ctx context.Context) error {
		out, err := s.api.BatchWrite(ctx, in, once)
		for _, st := range out.GetStatus() {
			switch codes.Code(st.GetCode()) {
			case codes.OK:
				gone++
			case codes.NotFound, codes.FailedPrecondition, codes.Aborted:
			default:
				err = cmp.Or(err, status.ErrorProto(st))
			}
		}
		return err
	})
	return gone, err
}
