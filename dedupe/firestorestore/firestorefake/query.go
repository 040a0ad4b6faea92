package firestorefake

import (
	"cmp"
	"slices"
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// This file owns queries: of one collection, with one filter of a field at most. s.mu is held while
// one is answered.

const byName = "__name__"

// a row is a document that a query has found.
type row struct {
	name string
	d    *document
}

func (r row) value(field string) *pb.Value {
	if field == byName {
		return &pb.Value{ValueType: &pb.Value_ReferenceValue{ReferenceValue: r.name}}
	}
	return r.d.fields[field]
}

func unimplemented(what string) error {
	return status.Error(codes.Unimplemented, "firestorefake: a query with "+what)
}

func (s *Server) runQuery(in *pb.RunQueryRequest) (out []*pb.RunQueryResponse, err error) {
	q := in.GetStructuredQuery()
	filter := q.GetWhere().GetFieldFilter()
	switch {
	case in.GetConsistencySelector() != nil:
		return nil, unimplemented("a transaction or a time")
	case len(q.GetFrom()) != 1 || q.GetFrom()[0].GetAllDescendants():
		return nil, unimplemented("another collection than one")
	case q.GetWhere() != nil && filter == nil:
		return nil, unimplemented("more than one filter of a field")
	case q.GetEndAt() != nil || q.GetOffset() != 0 || q.GetFindNearest() != nil:
		return nil, unimplemented("an end, an offset or neighbours")
	}
	// An order that is not named is that of the filter's field, where it is no equality, and then
	// of names.
	var order []string
	for _, o := range q.GetOrderBy() {
		if o.GetDirection() == pb.StructuredQuery_DESCENDING {
			return nil, unimplemented("a descending order")
		}
		order = append(order, o.GetField().GetFieldPath())
	}
	if f := filter.GetField().GetFieldPath(); filter != nil && filter.GetOp() != pb.StructuredQuery_FieldFilter_EQUAL && len(order) == 0 {
		order = append(order, f)
	}
	if !slices.Contains(order, byName) {
		order = append(order, byName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var rows []row
	prefix := in.GetParent() + "/" + q.GetFrom()[0].GetCollectionId() + "/"
	for name, d := range s.docs {
		id, ok := strings.CutPrefix(name, prefix)
		r := row{name, d}
		if !ok || strings.Contains(id, "/") || slices.ContainsFunc(order, func(f string) bool { return r.value(f) == nil }) {
			continue
		}
		if filter != nil {
			if ok, err = fits(r.value(filter.GetField().GetFieldPath()), filter); err != nil {
				return nil, err
			}
		}
		if c := q.GetStartAt(); ok && (c == nil || after(r, order, c)) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		n := 0
		for _, f := range order {
			n = cmp.Or(n, compare(a.value(f), b.value(f)))
		}
		return n
	})
	if n := int(q.GetLimit().GetValue()); q.GetLimit() != nil && len(rows) > n {
		rows = rows[:n]
	}
	var paths []string
	if q.GetSelect() != nil {
		paths = []string{}
		for _, f := range q.GetSelect().GetFields() {
			paths = append(paths, f.GetFieldPath())
		}
	}
	at := timestamppb.New(s.tick())
	for _, r := range rows {
		out = append(out, &pb.RunQueryResponse{Document: r.d.proto(r.name, paths), ReadTime: at})
	}
	s.read += max(1, len(rows)) // a query without a result costs one as well
	if len(out) == 0 {
		out = append(out, &pb.RunQueryResponse{ReadTime: at})
	}
	return out, nil
}

// fits reports whether a filter takes a value. Values of other types never fit.
func fits(v *pb.Value, f *pb.StructuredQuery_FieldFilter) (bool, error) {
	if v == nil || rank(v) != rank(f.GetValue()) {
		return false, nil
	}
	n := compare(v, f.GetValue())
	switch f.GetOp() {
	case pb.StructuredQuery_FieldFilter_EQUAL:
		return n == 0, nil
	case pb.StructuredQuery_FieldFilter_LESS_THAN:
		return n < 0, nil
	case pb.StructuredQuery_FieldFilter_LESS_THAN_OR_EQUAL:
		return n <= 0, nil
	case pb.StructuredQuery_FieldFilter_GREATER_THAN:
		return n > 0, nil
	case pb.StructuredQuery_FieldFilter_GREATER_THAN_OR_EQUAL:
		return n >= 0, nil
	}
	return false, unimplemented(f.GetOp().String())
}

// after reports whether a row comes behind a cursor, or at it where it takes that.
func after(r row, order []string, c *pb.Cursor) bool {
	for i, v := range c.GetValues() {
		if n := compare(r.value(order[i]), v); n != 0 {
			return n > 0
		}
	}
	return c.GetBefore()
}

// rank is the place of a value's type in Firestore's order, of the types that are compared here.
func rank(v *pb.Value) int {
	switch v.GetValueType().(type) {
	case *pb.Value_IntegerValue:
		return 3
	case *pb.Value_TimestampValue:
		return 4
	case *pb.Value_StringValue:
		return 5
	case *pb.Value_ReferenceValue:
		return 7
	}
	return 8
}

func compare(a, b *pb.Value) int {
	if n := cmp.Compare(rank(a), rank(b)); n != 0 {
		return n
	}
	return cmp.Or(cmp.Compare(a.GetIntegerValue(), b.GetIntegerValue()), a.GetTimestampValue().AsTime().Compare(b.GetTimestampValue().AsTime()),
		strings.Compare(a.GetStringValue(), b.GetStringValue()), strings.Compare(a.GetReferenceValue(), b.GetReferenceValue()))
}
