package firestorefake

import (
	"maps"
	"slices"
	"strings"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// This file owns documents: what a write makes of one, and when it is refused. s.mu is held
// throughout, but while a write waits for a lock.

const (
	maxWrites   = 500
	maxDocument = 1 << 20
)

// A document's fields are never changed, but replaced.
type document struct {
	fields           map[string]*pb.Value
	created, updated time.Time
}

// proto is the document as it travels, with the fields of paths alone; nil means all.
func (d *document) proto(name string, paths []string) *pb.Document {
	fields := d.fields
	if paths != nil {
		fields = map[string]*pb.Value{}
		for _, p := range paths {
			if v, ok := d.fields[p]; ok {
				fields[p] = v
			}
		}
	}
	return &pb.Document{Name: name, Fields: fields, CreateTime: timestamppb.New(d.created), UpdateTime: timestamppb.New(d.updated)}
}

// tick is the time of a new commit: later than every other one.
func (s *Server) tick() time.Time {
	now := time.Now().UTC().Truncate(time.Microsecond)
	if !now.After(s.last) {
		now = s.last.Add(time.Microsecond)
	}
	s.last = now
	return now
}

// target is the name of the document that a write is about.
func target(w *pb.Write) string {
	if u := w.GetUpdate(); u != nil {
		return u.GetName()
	}
	return w.GetDelete()
}

// checkWrite refuses what no database takes.
func checkWrite(database string, w *pb.Write) error {
	switch w.GetOperation().(type) {
	case *pb.Write_Update, *pb.Write_Delete:
	default:
		return status.Error(codes.Unimplemented, "firestorefake: the write is neither an update nor a deletion")
	}
	name := target(w)
	path, ok := strings.CutPrefix(name, database+"/documents/")
	parts := strings.Split(path, "/")
	if !ok || len(parts)%2 != 0 {
		return status.Errorf(codes.InvalidArgument, "Document name %q is not of a document in %s.", name, database)
	}
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || len(p) > 1500 || strings.HasPrefix(p, "__") && strings.HasSuffix(p, "__") {
			return status.Errorf(codes.InvalidArgument, "Resource id %q is invalid because it is reserved.", p)
		}
	}
	return nil
}

// size is what the service counts for a document.
func size(name string, fields map[string]*pb.Value) int {
	n := 32 + 16
	for part := range strings.SplitSeq(name[strings.Index(name, "/documents/")+len("/documents/"):], "/") {
		n += len(part) + 1
	}
	for f, v := range fields {
		n += len(f) + 1
		switch v := v.GetValueType().(type) {
		case *pb.Value_StringValue:
			n += len(v.StringValue) + 1
		case *pb.Value_BytesValue:
			n += len(v.BytesValue)
		case *pb.Value_MapValue, *pb.Value_ArrayValue:
			n += proto.Size(&pb.Value{ValueType: v})
		default:
			n += 8
		}
	}
	return n
}

// result is the document that a write leaves, nil where it deletes it. It changes nothing yet. was
// is the document before it.
func result(w *pb.Write, was *document, now time.Time) (*document, error) {
	name := target(w)
	switch c := w.GetCurrentDocument().GetConditionType().(type) {
	case *pb.Precondition_Exists:
		if c.Exists && was == nil {
			return nil, status.Errorf(codes.NotFound, "No document to update: %s", name)
		}
		if !c.Exists && was != nil {
			return nil, status.Errorf(codes.AlreadyExists, "Document already exists: %s", name)
		}
	case *pb.Precondition_UpdateTime:
		stored := int64(0)
		if was != nil {
			stored = was.updated.UnixMicro()
		}
		if want := c.UpdateTime.AsTime().UnixMicro(); stored != want {
			return nil, status.Errorf(codes.FailedPrecondition, "the stored version (%d) does not match the required base version (%d)", stored, want)
		}
	}
	u := w.GetUpdate()
	if u == nil {
		return nil, nil
	}
	next := &document{fields: u.GetFields(), created: now, updated: now}
	if was != nil {
		next.created = was.created
	}
	if w.GetUpdateMask() != nil {
		next.fields = map[string]*pb.Value{}
		if was != nil {
			maps.Copy(next.fields, was.fields)
		}
		for _, p := range w.GetUpdateMask().GetFieldPaths() {
			p = strings.Trim(p, "`")
			delete(next.fields, p)
			if v, ok := u.GetFields()[p]; ok {
				next.fields[p] = v
			}
		}
	}
	for f, v := range next.fields {
		if t := v.GetTimestampValue(); t != nil && t.GetNanos()%1000 != 0 { // times are kept to the microsecond
			next.fields[f] = moment(t.AsTime())
		}
	}
	if err := next.transform(w.GetUpdateTransforms(), now); err != nil {
		return nil, err
	}
	if n := size(name, next.fields); n > maxDocument {
		return nil, status.Errorf(codes.InvalidArgument,
			"Document '%s' cannot be written because its size (%d bytes) exceeds the maximum allowed size of %d bytes.", name, n, maxDocument)
	}
	if was != nil && proto.Equal(&pb.Document{Fields: was.fields}, &pb.Document{Fields: next.fields}) {
		return was, nil
	}
	return next, nil
}

func moment(t time.Time) *pb.Value {
	return &pb.Value{ValueType: &pb.Value_TimestampValue{TimestampValue: timestamppb.New(t.Truncate(time.Microsecond))}}
}

// transform plays the server's time and sums of integers.
func (d *document) transform(ts []*pb.DocumentTransform_FieldTransform, now time.Time) error {
	if len(ts) > 0 {
		d.fields = maps.Clone(d.fields)
	}
	if d.fields == nil {
		d.fields = map[string]*pb.Value{}
	}
	for _, t := range ts {
		switch v := t.GetTransformType().(type) {
		case *pb.DocumentTransform_FieldTransform_SetToServerValue:
			d.fields[t.GetFieldPath()] = moment(now)
		case *pb.DocumentTransform_FieldTransform_Increment:
			n := d.fields[t.GetFieldPath()].GetIntegerValue() + v.Increment.GetIntegerValue()
			d.fields[t.GetFieldPath()] = &pb.Value{ValueType: &pb.Value_IntegerValue{IntegerValue: n}}
		default:
			return status.Errorf(codes.Unimplemented, "firestorefake: no transform %T", v)
		}
	}
	return nil
}

// store puts what a write leaves in its place, and answers for it.
func (s *Server) store(name string, next *document) *pb.WriteResult {
	s.written++
	if next == nil {
		delete(s.docs, name)
		return &pb.WriteResult{}
	}
	s.docs[name] = next
	return &pb.WriteResult{UpdateTime: timestamppb.New(next.updated)}
}

func (s *Server) batchWrite(in *pb.BatchWriteRequest, f *Fault) (*pb.BatchWriteResponse, error) {
	if len(in.GetWrites()) > maxWrites {
		return nil, status.Errorf(codes.InvalidArgument, "maximum %d writes allowed per request", maxWrites)
	}
	named := map[string]bool{}
	for _, w := range in.GetWrites() {
		if err := checkWrite(in.GetDatabase(), w); err != nil {
			return nil, err
		}
		if named[target(w)] {
			return nil, status.Error(codes.InvalidArgument, "the same document cannot be written more than once in a single request")
		}
		named[target(w)] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &pb.BatchWriteResponse{}
	for i, w := range in.GetWrites() {
		res, err := &pb.WriteResult{}, f.entry(i)
		if err == nil || f.Applied {
			var applied error
			res, applied = s.writeOne(w)
			if err == nil {
				err = applied
			} else {
				res = &pb.WriteResult{}
			}
		}
		st := status.Convert(err)
		out.WriteResults = append(out.WriteResults, res)
		out.Status = append(out.Status, &rpcstatus.Status{Code: int32(st.Code()), Message: st.Message()})
	}
	return out, nil
}

// writeOne makes one write by itself. s.mu is held, and given back while it waits.
func (s *Server) writeOne(w *pb.Write) (*pb.WriteResult, error) {
	name := target(w)
	if err := s.lock(nil, []string{name}); err != nil {
		return &pb.WriteResult{}, err
	}
	next, err := result(w, s.docs[name], s.tick())
	if err != nil {
		return &pb.WriteResult{}, err
	}
	return s.store(name, next), nil
}

// entry is how the write at place i of a batch fails, nil where it does not.
func (f *Fault) entry(i int) error {
	if slices.Contains(f.Entries, i) {
		return status.Error(f.Code, f.Message)
	}
	return nil
}

// Expire deletes the documents of a collection group whose field holds a time that has come, as a
// TTL policy does within a day. It returns how many these are.
func (s *Server) Expire(group, field string) (gone int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, d := range s.docs {
		parts := strings.Split(name, "/")
		at := d.fields[field].GetTimestampValue()
		if parts[len(parts)-2] == group && at != nil && !at.AsTime().After(time.Now()) {
			delete(s.docs, name)
			gone++
		}
	}
	return gone
}
