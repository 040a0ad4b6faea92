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
	fieldVersion   = "version" // rises with each write, so that each write changes the update time
	fieldLease     = "lease_until"
	fieldState     = "state"
	fieldUpdated   = "updated"
	fieldCommit    = "commit"    // which transaction has completed it
	fieldAttention = "attention" // the status, only while failed, parked or released
)

// column is a field of a document that holds a part of a record.
type column struct {
	name string
	get  func(r *dedupe.Record) any         // nil is left out
	set  func(r *dedupe.Record, v any) bool // reports whether v is of the column's kind
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
	number("state_no", func(r *dedupe.Record) *int { return &r.StateNo }),
	number("attempt", func(r *dedupe.Record) *int { return &r.Attempt }),
	moment(fieldLease, func(r *dedupe.Record) *time.Time { return &r.LeaseUntil }),
	moment("created", func(r *dedupe.Record) *time.Time { return &r.Created }),
	moment("claimed_at", func(r *dedupe.Record) *time.Time { return &r.ClaimedAt }),
	moment(fieldUpdated, func(r *dedupe.Record) *time.Time { return &r.Updated }),
	moment("finished", func(r *dedupe.Record) *time.Time { return &r.Finished }),
	moment("sent", func(r *dedupe.Record) *time.Time { return &r.Sent }),
	coded(fieldFence, func(r *dedupe.Record) any { return int64(r.Fence) }, func(r *dedupe.Record, v int64) error {
		r.Fence = uint64(v)
		return nil
	}),
	coded("started", func(r *dedupe.Record) any { return orNil(r.Started, r.Started) }, func(r *dedupe.Record, v bool) error {
		r.Started = v
		return nil
	}),
	coded(fieldStatus, func(r *dedupe.Record) any { return r.Status.String() }, func(r *dedupe.Record, v string) (err error) {
		r.Status, err = dedupe.ParseStatus(v)
		return err
	}),
	coded("policy", func(r *dedupe.Record) any { return r.Policy.String() }, func(r *dedupe.Record, v string) error {
		if v == dedupe.Park.String() {
			r.Policy = dedupe.Park
		} else if v != dedupe.Rerun.String() {
			return errKind
		}
		return nil
	}),
	coded("token", func(r *dedupe.Record) any { return r.Token.Hex() }, func(r *dedupe.Record, v string) error {
		b, err := hex.DecodeString(v)
		if err == nil && len(b) == len(r.Token) {
			r.Token = dedupe.Token(b)
			return nil
		}
		return errKind
	}),
	coded("past", func(r *dedupe.Record) any {
		b := dedupe.EncodePast(r.Past)
		return orNil(b, b != nil)
	}, func(r *dedupe.Record, v []byte) error {
		r.Past = dedupe.DecodePast(v)
		return nil
	}),
}

// errKind says that a field has a value that the store does not write.
var errKind = errors.New("another value")

func orNil(v any, there bool) any {
	if there {
		return v
	}
	return nil
}

func coded[V any](name string, get func(*dedupe.Record) any, set func(*dedupe.Record, V) error) column {
	return column{name, get, func(r *dedupe.Record, v any) bool {
		got, ok := v.(V)
		return ok && set(r, got) == nil
	}}
}

func text(name string, of func(*dedupe.Record) *string) column {
	return coded(name, func(r *dedupe.Record) any { return orNil(clean(*of(r)), *of(r) != "") }, setting(of))
}

func blob(name string, of func(*dedupe.Record) *[]byte) column {
	return coded(name, func(r *dedupe.Record) any { return orNil(*of(r), *of(r) != nil) }, setting(of))
}

func moment(name string, of func(*dedupe.Record) *time.Time) column {
	return coded(name, func(r *dedupe.Record) any { return orNil(micro(*of(r)), !of(r).IsZero()) }, setting(of))
}

func number(name string, of func(*dedupe.Record) *int) column {
	return coded(name, func(r *dedupe.Record) any { return orNil(int64(*of(r)), *of(r) != 0) }, func(r *dedupe.Record, v int64) error {
		*of(r) = int(v)
		return nil
	})
}

func setting[V any](of func(*dedupe.Record) *V) func(*dedupe.Record, V) error {
	return func(r *dedupe.Record, v V) error {
		*of(r) = v
		return nil
	}
}

// isOwn reports whether the store gives a field of that name a meaning of its own, apart from the
// expiry, whose name is the user's choice.
func isOwn(field string) bool {
	return field == fieldVersion || field == fieldCommit || field == fieldAttention ||
		slices.ContainsFunc(columns, func(c column) bool { return c.name == field })
}

// forgotten is the status of what Forget leaves: the fence, which must not fall.
const forgotten = "forgotten"

// fields are a document's, as string, int64, bool, []byte or time.Time. What this store does not
// write is there as it came, a *firestorepb.Value.
type fields map[string]any

// stored is a document: what was read, or what is to be written.
type stored struct {
	rec     dedupe.Record // the zero Record where it was forgotten
	fence   uint64        // also of what was forgotten
	version int64
	commit  string
	fields  fields
	at      *timestamppb.Timestamp // its update time; nil before it is written
	elided  int                    // how long the state is that is left out; see claims
}

// size is what Firestore counts for the document, without its name.
func (st *stored) size() int { return st.fields.weight() + st.elided }

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

// encode is r as a document.
func (s form) encode(r *dedupe.Record, version int64, commit string) *stored {
	f := make(fields, len(columns)+4)
	f[fieldVersion] = version
	for i := range columns {
		if v := columns[i].get(r); v != nil {
			f[columns[i].name] = v
		}
	}
	if commit != "" {
		f[fieldCommit] = commit
	}
	if needsAttention(r.Status) {
		f[fieldAttention] = r.Status.String()
	}
	if !r.Expires.IsZero() {
		f[s.ttl] = micro(r.Expires)
	}
	return &stored{rec: *r, fence: r.Fence, version: version, commit: commit, fields: f}
}

// tombstone keeps the fence of what was forgotten, until expires.
func (s form) tombstone(k dedupe.Key, was *stored, now, expires time.Time) *stored {
	return &stored{fence: was.fence, version: was.version + 1, fields: fields{
		fieldKey: k.Key, fieldScope: k.Scope, fieldStatus: forgotten, fieldFence: int64(was.fence), fieldVersion: was.version + 1,
		fieldUpdated: micro(now), s.ttl: micro(expires),
	}}
}

// write is the document under name in the place of was, where that still stands. Only the fields
// that differ travel, so that a settlement does not send the saved steps again.
func (s form) write(name string, was, next *stored) *firestorepb.Write {
	doc := &firestorepb.Document{Name: name, Fields: make(map[string]*firestorepb.Value, len(next.fields))}
	w := &firestorepb.Write{Operation: &firestorepb.Write_Update{Update: doc}}
	if was == nil {
		w.CurrentDocument = &firestorepb.Precondition{ConditionType: &firestorepb.Precondition_Exists{Exists: false}}
		for f, v := range next.fields {
			doc.Fields[f] = toValue(v)
		}
		return w
	}
	w.CurrentDocument = &firestorepb.Precondition{ConditionType: &firestorepb.Precondition_UpdateTime{UpdateTime: was.at}}
	set, drop := s.differ(was, next)
	for _, f := range set {
		doc.Fields[f] = toValue(next.fields[f])
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

func same(a, b any) bool {
	switch a := a.(type) {
	case []byte:
		c, ok := b.([]byte)
		return ok && bytes.Equal(a, c)
	case time.Time:
		c, ok := b.(time.Time)
		return ok && a.Equal(c)
	}
	return a == b
}

// equals reports whether both are the same document, apart from the fields of others.
func (s form) equals(a, b *stored) bool {
	set, drop := s.differ(a, b)
	return len(set)+len(drop) == 0
}

// weight is what Firestore counts for fields, and a document around them:
// https://cloud.google.com/firestore/docs/storage-size
func (f fields) weight() int {
	n := 32
	for name, v := range f {
		n += len(name) + 1
		switch v := v.(type) {
		case string:
			n += len(v) + 1
		case []byte:
			n += len(v)
		default:
			n += 8
		}
	}
	return n
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
	case *firestorepb.Value:
		return v
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
	case st.fence == 0 || st.version == 0:
		err = errors.New("it has no fence, or no version")
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
	st := &stored{fields: make(fields, len(doc.GetFields())), at: doc.GetUpdateTime()}
	for f, v := range doc.GetFields() {
		st.fields[f] = fromValue(v)
	}
	var bad error
	for i := range columns {
		c := &columns[i]
		v := st.fields[c.name]
		if v == nil || c.name == fieldStatus && v == forgotten {
			continue
		}
		if !c.set(&st.rec, v) && bad == nil {
			bad = fmt.Errorf("field %q is %v", c.name, v)
		}
	}
	var ok bool
	if st.rec.Expires, ok = st.fields[s.ttl].(time.Time); !ok && st.fields[s.ttl] != nil && bad == nil {
		bad = fmt.Errorf("field %q is %v", s.ttl, st.fields[s.ttl])
	}
	st.fence = st.rec.Fence
	st.version, _ = st.fields[fieldVersion].(int64)
	st.commit, _ = st.fields[fieldCommit].(string)
	return st, bad
}
