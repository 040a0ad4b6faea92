package firestorestore

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onceq/onceq/dedupe"
)

// This file owns the form of a document: how a record is written and read, and what it weighs. All
// calls of the store use it. It keeps nothing and locks nothing.

// Fields that more than the table of columns speaks of.
const (
	fieldKey       = "key"
	fieldScope     = "scope"
	fieldStatus    = "status"
	fieldFence     = "fence"
	fieldLease     = "lease_until"
	fieldState     = "state"
	fieldUpdated   = "updated"
	fieldProbe     = "probe"     // drawn by a settlement that changes nothing else
	fieldCommit    = "commit"    // which transaction has completed it
	fieldAttention = "attention" // the status, only while failed, parked or released
)

// column is a field of a document that holds a part of a record.
type column struct {
	name string
	get  func(r *dedupe.Record, old *firestorepb.Value) *firestorepb.Value // nil is left out
	set  func(r *dedupe.Record, v *firestorepb.Value) bool                 // reports whether v is of the column's kind
	most func(r *dedupe.Record)                                            // reads one that is left out; nil = zero
}

var columns = []column{
	text(fieldKey, func(r *dedupe.Record) *string { return &r.Key.Key }),
	text(fieldScope, func(r *dedupe.Record) *string { return &r.Key.Scope }),
	text("owner", func(r *dedupe.Record) *string { return &r.Owner }),
	text("message_id", func(r *dedupe.Record) *string { return &r.MessageID }),
	text("error_class", func(r *dedupe.Record) *string { return &r.ErrClass }),
	text("first_error", func(r *dedupe.Record) *string { return &r.FirstErr }),
	text("last_error", func(r *dedupe.Record) *string { return &r.LastErr }),
	blob("fingerprint", func(r *dedupe.Record) *[]byte { return &r.Fingerprint }),
	blob("result", func(r *dedupe.Record) *[]byte { return &r.Result }),
	blob(fieldState, func(r *dedupe.Record) *[]byte { return &r.State }),
	moment(fieldLease, func(r *dedupe.Record) *time.Time { return &r.LeaseUntil }, nil),
	moment("claimed_at", func(r *dedupe.Record) *time.Time { return &r.ClaimedAt }, nil),
	moment("created", func(r *dedupe.Record) *time.Time { return &r.Created }, func(r *dedupe.Record) time.Time { return r.ClaimedAt }),
	moment(fieldUpdated, func(r *dedupe.Record) *time.Time { return &r.Updated }, func(r *dedupe.Record) time.Time { return r.ClaimedAt }),
	moment("finished", func(r *dedupe.Record) *time.Time { return &r.Finished }, whenOver),
	moment("sent", func(r *dedupe.Record) *time.Time { return &r.Sent }, nil),
	coded("attempt", func(r *dedupe.Record) (int64, bool) { return int64(r.Attempt), r.Attempt != 1 }, func(r *dedupe.Record, v int64) bool {
		r.Attempt = int(v)
		return v >= 0
	}),
	coded("state_no", func(r *dedupe.Record) (int64, bool) { return int64(r.StateNo), r.StateNo != 0 }, func(r *dedupe.Record, v int64) bool {
		r.StateNo = int(v)
		return v >= 0
	}),
	coded(fieldFence, func(r *dedupe.Record) (int64, bool) { return int64(r.Fence), true }, func(r *dedupe.Record, v int64) bool {
		r.Fence = uint64(v)
		return v > 0
	}),
	coded("started", func(r *dedupe.Record) (bool, bool) { return true, r.Started }, func(r *dedupe.Record, v bool) bool {
		r.Started = v
		return true
	}),
	coded(fieldStatus, func(r *dedupe.Record) (string, bool) { return r.Status.String(), true }, func(r *dedupe.Record, v string) bool {
		var err error
		r.Status, err = dedupe.ParseStatus(v)
		return err == nil
	}),
	coded("policy", func(r *dedupe.Record) (string, bool) { return r.Policy.String(), r.Policy != dedupe.Rerun }, func(r *dedupe.Record, v string) bool {
		r.Policy = dedupe.Park
		return v == dedupe.Park.String()
	}),
	coded("token", func(r *dedupe.Record) (string, bool) { return r.Token.Hex(), true }, func(r *dedupe.Record, v string) bool {
		b, err := hex.DecodeString(v)
		if err != nil || len(b) != len(r.Token) {
			return false
		}
		r.Token = dedupe.Token(b)
		return true
	}),
	coded("past", func(r *dedupe.Record) ([]byte, bool) { return dedupe.EncodePast(r.Past), len(r.Past) > 0 }, func(r *dedupe.Record, v []byte) bool {
		r.Past = dedupe.DecodePast(v)
		return true
	}),
}

// whenOver is when a record that is over became so, if nothing else is said.
func whenOver(r *dedupe.Record) time.Time {
	switch r.Status {
	case dedupe.Done, dedupe.Failed, dedupe.Parked:
		return r.Updated
	case dedupe.Claimed, dedupe.Released: // they go on
	}
	return time.Time{}
}

// coded is a column of values that get makes and set reads. get reports false for what is left out.
func coded[V string | int64 | bool | []byte | time.Time](name string, get func(*dedupe.Record) (V, bool), set func(*dedupe.Record, V) bool) column {
	return column{name: name, get: func(r *dedupe.Record, old *firestorepb.Value) *firestorepb.Value {
		v, ok := get(r)
		switch {
		case !ok:
			return nil
		case old != nil && says(old, v):
			return old
		}
		return toValue(v)
	}, set: func(r *dedupe.Record, v *firestorepb.Value) bool {
		got, ok := fromValue(v).(V)
		return ok && set(r, got)
	}}
}

// says reports whether old is v as it is stored.
func says[V string | int64 | bool | []byte | time.Time](old *firestorepb.Value, v V) bool {
	switch v := any(v).(type) {
	case string:
		return v != "" && old.GetStringValue() == v
	case int64:
		return v != 0 && old.GetIntegerValue() == v
	case []byte:
		return len(v) > 0 && bytes.Equal(old.GetBytesValue(), v)
	case time.Time:
		t := old.GetTimestampValue()
		return t != nil && t.GetSeconds() == v.Unix() && int(t.GetNanos()) == v.Nanosecond()
	}
	return false
}

func text(name string, of func(*dedupe.Record) *string) column {
	return coded(name, func(r *dedupe.Record) (string, bool) { return clean(*of(r)), *of(r) != "" }, setting(of))
}

func blob(name string, of func(*dedupe.Record) *[]byte) column {
	return coded(name, func(r *dedupe.Record) ([]byte, bool) { return *of(r), *of(r) != nil }, setting(of))
}

// moment is a time; one that equals what most say is left out.
func moment(name string, of func(*dedupe.Record) *time.Time, most func(*dedupe.Record) time.Time) column {
	c := coded(name, func(r *dedupe.Record) (time.Time, bool) {
		t := *of(r)
		return micro(t), !t.IsZero() && (most == nil || !t.Equal(most(r)))
	}, setting(of))
	c.most = func(r *dedupe.Record) {
		if most != nil {
			*of(r) = most(r)
		}
	}
	return c
}

func setting[V any](of func(*dedupe.Record) *V) func(*dedupe.Record, V) bool {
	return func(r *dedupe.Record, v V) bool {
		*of(r) = v
		return true
	}
}

// isOwn reports whether the store gives a field of that name a meaning of its own, apart from the
// expiry, whose name is the user's choice.
func isOwn(field string) bool {
	return field == fieldProbe || field == fieldCommit || field == fieldAttention ||
		slices.ContainsFunc(columns, func(c column) bool { return c.name == field })
}

// forgotten is the status of what Forget leaves: the fence, which must not fall.
const forgotten = "forgotten"

// fields are a document's.
type fields = map[string]*firestorepb.Value

// stored is a document: what was read, or what is to be written.
type stored struct {
	rec    dedupe.Record // the zero Record where it was forgotten
	fence  uint64        // also of what was forgotten
	commit string
	fields fields
	at     *timestamppb.Timestamp // its update time; nil before it is written
	elided int                    // how long the state is that is left out; see claims
}

// weight is what Firestore counts for the document, without its name:
// https://cloud.google.com/firestore/docs/storage-size
func (st *stored) weight() int {
	n := 32 + st.elided
	for name, v := range st.fields {
		n += len(name) + 1 + max(8, len(v.GetStringValue())+1, len(v.GetBytesValue()))
	}
	return n
}

// rough is weight and somewhat more, at once. Texts that are no UTF-8 are stored with up to twice
// their length.
func (st *stored) rough() int {
	r := &st.rec
	return 12<<10 + len(r.Result) + len(r.State) + st.elided + 2*(len(r.ErrClass)+len(r.FirstErr)+len(r.LastErr))
}

// form is how a store writes records: where, and what the expiry is called.
type form struct{ docs, ttl string }

// name is the full name of k's document.
func (s form) name(k dedupe.Key) string { return s.docs + "/" + documentID(k) }

// group is the collection's last name.
func (s form) group() string { return s.docs[strings.LastIndexByte(s.docs, '/')+1:] }

func (s form) owns(field string) bool { return field == s.ttl || isOwn(field) }

// documentID spreads neighbouring keys over the whole range, because Firestore slows down what
// writes to one narrow range of names.
func documentID(k dedupe.Key) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(k.Scope)))
	sum := sha256.Sum256(append(append(b, k.Scope...), k.Key...))
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20]))
}

// clean makes a text UTF-8, because Firestore takes nothing else.
func clean(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func micro(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// needsAttention reports whether people look for records of that status.
func needsAttention(st dedupe.Status) bool {
	return st == dedupe.Failed || st == dedupe.Parked || st == dedupe.Released
}

// encode is r as the document that takes the place of was, nil where there is none. It shares the
// values that stay as they are.
func (s form) encode(r *dedupe.Record, was *stored, commit string) *stored {
	var old fields
	if was != nil {
		old = was.fields
	}
	f := make(fields, 16)
	for i := range columns {
		c := &columns[i]
		if v := c.get(r, old[c.name]); v != nil {
			f[c.name] = v
		}
	}
	if commit != "" {
		f[fieldCommit] = toValue(commit)
	}
	if needsAttention(r.Status) {
		f[fieldAttention] = f[fieldStatus]
	}
	if !r.Expires.IsZero() {
		f[s.ttl] = toValue(micro(r.Expires))
	}
	return &stored{rec: *r, fence: r.Fence, commit: commit, fields: f}
}

// tombstone keeps the fence of what was forgotten, until expires.
func (s form) tombstone(k dedupe.Key, fence uint64, now, expires time.Time) *stored {
	return &stored{fence: fence, fields: fields{
		fieldKey: toValue(k.Key), fieldScope: toValue(k.Scope), fieldStatus: toValue(forgotten), fieldFence: toValue(int64(fence)),
		fieldUpdated: toValue(micro(now)), s.ttl: toValue(micro(expires)),
	}}
}

// write is the document under name in the place of was, where that still stands. Only the fields
// that differ travel, so that a settlement does not send the saved steps again.
func (s form) write(name string, was, next *stored) *firestorepb.Write {
	doc := &firestorepb.Document{Name: name, Fields: next.fields}
	w := &firestorepb.Write{Operation: &firestorepb.Write_Update{Update: doc}}
	if was == nil {
		w.CurrentDocument = &firestorepb.Precondition{ConditionType: &firestorepb.Precondition_Exists{Exists: false}}
		return w
	}
	w.CurrentDocument = &firestorepb.Precondition{ConditionType: &firestorepb.Precondition_UpdateTime{UpdateTime: was.at}}
	set, drop := s.differ(was, next)
	doc.Fields = make(fields, len(set))
	for _, f := range set {
		doc.Fields[f] = next.fields[f]
	}
	w.UpdateMask = &firestorepb.DocumentMask{FieldPaths: append(set, drop...)}
	return w
}

// differ tells which fields next sets, and which of the store's own it drops. The fields of others
// stay.
func (s form) differ(was, next *stored) (set, drop []string) {
	for f, v := range next.fields {
		if !same(was.fields[f], v) {
			set = append(set, f)
		}
	}
	for f := range was.fields {
		if _, kept := next.fields[f]; !kept && s.owns(f) {
			drop = append(drop, f)
		}
	}
	return set, drop
}

func same(a, b *firestorepb.Value) bool { return a == b || proto.Equal(a, b) }

// equals reports whether both are the same document, apart from the fields of others.
func (s form) equals(a, b *stored) bool {
	set, drop := s.differ(a, b)
	return len(set)+len(drop) == 0
}

func toValue(v any) *firestorepb.Value {
	switch v := v.(type) {
	case string:
		return &firestorepb.Value{ValueType: &firestorepb.Value_StringValue{StringValue: v}}
	case int64:
		return &firestorepb.Value{ValueType: &firestorepb.Value_IntegerValue{IntegerValue: v}}
	case bool:
		return &firestorepb.Value{ValueType: &firestorepb.Value_BooleanValue{BooleanValue: v}}
	case []byte:
		return &firestorepb.Value{ValueType: &firestorepb.Value_BytesValue{BytesValue: v}}
	case time.Time:
		return &firestorepb.Value{ValueType: &firestorepb.Value_TimestampValue{TimestampValue: timestamppb.New(v)}}
	}
	return &firestorepb.Value{ValueType: &firestorepb.Value_NullValue{}}
}

func fromValue(v *firestorepb.Value) any {
	switch t := v.GetValueType().(type) {
	case *firestorepb.Value_StringValue:
		return t.StringValue
	case *firestorepb.Value_IntegerValue:
		return t.IntegerValue
	case *firestorepb.Value_BooleanValue:
		return t.BooleanValue
	case *firestorepb.Value_BytesValue:
		if t.BytesValue == nil {
			return []byte{}
		}
		return t.BytesValue
	case *firestorepb.Value_TimestampValue:
		return t.TimestampValue.AsTime()
	}
	return v
}

// decode reads the document that stands for k; nil is nothing.
func (s form) decode(k dedupe.Key, doc *firestorepb.Document) (*stored, error) {
	if doc == nil {
		return nil, nil
	}
	st, err := s.read(doc)
	switch {
	case err != nil:
	case st.rec.Key != k:
		err = fmt.Errorf("it is of scope %q, key %q", st.rec.Key.Scope, st.rec.Key.Key)
	case st.fence == 0:
		err = errors.New("it has no fence")
	case st.rec.Status == 0:
		st.rec = dedupe.Record{}
	case st.rec.Expires.IsZero() != (st.rec.Status == dedupe.Claimed || st.rec.Status == dedupe.Parked):
		err = fmt.Errorf("it is %v, and field %q does not fit that: do all stores on the collection name the same TTLField?", st.rec.Status, s.ttl)
	}
	if err != nil {
		return nil, fmt.Errorf("document %s was not written by this store: %w", doc.GetName(), err)
	}
	return st, nil
}

// read reads what doc has, which may be some of its fields. What was forgotten has no status.
func (s form) read(doc *firestorepb.Document) (*stored, error) {
	st := &stored{fields: doc.GetFields(), at: doc.GetUpdateTime(), commit: doc.GetFields()[fieldCommit].GetStringValue()}
	st.rec.Attempt = 1
	for i := range columns {
		c := &columns[i]
		v := st.fields[c.name]
		if c.name == fieldStatus && v.GetStringValue() == forgotten {
			continue
		}
		if v != nil && !c.set(&st.rec, v) {
			return st, fmt.Errorf("field %q is %v", c.name, fromValue(v))
		}
	}
	for i := range columns {
		if c := &columns[i]; c.most != nil && st.fields[c.name] == nil {
			c.most(&st.rec)
		}
	}
	st.fence = st.rec.Fence
	if v := st.fields[s.ttl]; v != nil {
		var ok bool
		if st.rec.Expires, ok = fromValue(v).(time.Time); !ok {
			return st, fmt.Errorf("field %q is %v", s.ttl, fromValue(v))
		}
	}
	return st, nil
}
