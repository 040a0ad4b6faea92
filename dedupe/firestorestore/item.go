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

// The fields of a document.
const (
	fieldKey         = "key"
	fieldScope       = "scope"
	fieldStatus      = "status"
	fieldFence       = "fence"
	fieldVersion     = "version" // rises with each write, so that each write changes the update time
	fieldToken       = "token"
	fieldAttempt     = "attempt"
	fieldStarted     = "started"
	fieldPolicy      = "policy"
	fieldOwner       = "owner"
	fieldMessage     = "message_id"
	fieldLease       = "lease_until"
	fieldFingerprint = "fingerprint"
	fieldResult      = "result"
	fieldState       = "state"
	fieldStateNo     = "state_no"
	fieldClass       = "error_class"
	fieldFirstErr    = "first_error"
	fieldLastErr     = "last_error"
	fieldCreated     = "created"
	fieldClaimed     = "claimed_at"
	fieldUpdated     = "updated"
	fieldFinished    = "finished"
	fieldCommit      = "commit" // which transaction has completed it
	fieldPast        = "past"
	fieldSent        = "sent"
	fieldAttention   = "attention" // the status, only while failed, parked or released
)

// ownFields are all but the expiry, whose name is the user's choice.
var ownFields = []string{
	fieldKey, fieldScope, fieldStatus, fieldFence, fieldVersion, fieldToken, fieldAttempt, fieldStarted, fieldPolicy, fieldOwner,
	fieldMessage, fieldLease, fieldFingerprint, fieldResult, fieldState, fieldStateNo, fieldClass, fieldFirstErr, fieldLastErr, fieldCreated,
	fieldClaimed, fieldUpdated, fieldFinished, fieldCommit, fieldPast, fieldSent, fieldAttention,
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

func (s form) owns(field string) bool { return field == s.ttl || slices.Contains(ownFields, field) }

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
	f := make(fields, 20)
	f[fieldKey], f[fieldScope] = r.Key.Key, r.Key.Scope
	f[fieldStatus], f[fieldPolicy], f[fieldToken] = r.Status.String(), r.Policy.String(), r.Token.Hex()
	f[fieldFence], f[fieldVersion], f[fieldAttempt] = int64(r.Fence), version, int64(r.Attempt)
	if r.Started {
		f[fieldStarted] = true
	}
	if needsAttention(r.Status) {
		f[fieldAttention] = r.Status.String()
	}
	for _, t := range [...]struct{ field, text string }{
		{fieldOwner, r.Owner},
		{fieldMessage, r.MessageID},
		{fieldClass, r.ErrClass},
		{fieldFirstErr, r.FirstErr},
		{fieldLastErr, r.LastErr},
		{fieldCommit, commit},
	} {
		if t.text != "" {
			f[t.field] = clean(t.text)
		}
	}
	for _, b := range [...]struct {
		field string
		b     []byte
	}{{fieldFingerprint, r.Fingerprint}, {fieldResult, r.Result}, {fieldState, r.State}, {fieldPast, dedupe.EncodePast(r.Past)}} {
		if b.b != nil {
			f[b.field] = b.b
		}
	}
	if r.StateNo > 0 {
		f[fieldStateNo] = int64(r.StateNo)
	}
	for _, t := range [...]struct {
		field string
		t     time.Time
	}{
		{fieldLease, r.LeaseUntil},
		{fieldCreated, r.Created},
		{fieldClaimed, r.ClaimedAt},
		{fieldUpdated, r.Updated},
		{fieldFinished, r.Finished},
		{fieldSent, r.Sent},
		{s.ttl, r.Expires},
	} {
		if !t.t.IsZero() {
			f[t.field] = micro(t.t)
		}
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
	st := &stored{fields: make(fields, len(doc.GetFields())), at: doc.GetUpdateTime()}
	for f, v := range doc.GetFields() {
		st.fields[f] = fromValue(v)
	}
	d := decoder{f: st.fields}
	r := &st.rec
	r.Key = dedupe.Key{Scope: d.text(fieldScope), Key: d.text(fieldKey)}
	if r.Key != k {
		d.fail("it is of scope %q, key %q", r.Key.Scope, r.Key.Key)
	}
	status := d.text(fieldStatus)
	st.fence, st.version = uint64(d.count(fieldFence)), d.count(fieldVersion)
	if st.fence == 0 || st.version == 0 {
		d.fail("it has no fence, or no version")
	}
	if status == forgotten && d.err == nil {
		st.rec = dedupe.Record{}
		return st, nil
	}
	var err error
	if r.Status, err = dedupe.ParseStatus(status); err != nil {
		d.fail("its status is %q", status)
	}
	r.Fence, r.Token = st.fence, d.token()
	r.Attempt, r.StateNo = int(d.count(fieldAttempt)), int(d.count(fieldStateNo))
	r.Started = get[bool](&d, fieldStarted)
	switch p := d.text(fieldPolicy); p {
	case dedupe.Park.String():
		r.Policy = dedupe.Park
	case dedupe.Rerun.String():
	default:
		d.fail("its policy is %q", p)
	}
	r.Owner, r.MessageID = d.text(fieldOwner), d.text(fieldMessage)
	r.ErrClass, r.FirstErr, r.LastErr = d.text(fieldClass), d.text(fieldFirstErr), d.text(fieldLastErr)
	r.Fingerprint, r.Result, r.State = get[[]byte](&d, fieldFingerprint), get[[]byte](&d, fieldResult), get[[]byte](&d, fieldState)
	r.LeaseUntil, r.Created, r.ClaimedAt = get[time.Time](&d, fieldLease), get[time.Time](&d, fieldCreated), get[time.Time](&d, fieldClaimed)
	r.Updated, r.Finished, r.Sent = get[time.Time](&d, fieldUpdated), get[time.Time](&d, fieldFinished), get[time.Time](&d, fieldSent)
	r.Past = dedupe.DecodePast(get[[]byte](&d, fieldPast))
	r.Expires = get[time.Time](&d, s.ttl)
	st.commit = d.text(fieldCommit)
	if r.Expires.IsZero() != (r.Status == dedupe.Claimed || r.Status == dedupe.Parked) {
		d.fail("it is %v, and field %q does not fit that: do all stores on the collection name the same TTLField?", r.Status, s.ttl)
	}
	if d.err != nil {
		return nil, fmt.Errorf("document %s was not written by this store: %w", doc.GetName(), d.err)
	}
	return st, nil
}

// decoder reads fields and remembers the first error. What is absent is zero.
type decoder struct {
	f   fields
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func get[V any](d *decoder, field string) (v V) {
	switch got := d.f[field].(type) {
	case nil:
	case V:
		return got
	default:
		d.fail("field %q is %T, want %T", field, got, v)
	}
	return v
}

func (d *decoder) text(field string) string { return get[string](d, field) }

func (d *decoder) count(field string) int64 {
	n := get[int64](d, field)
	if n < 0 {
		d.fail("field %q is %d, want 0 or more", field, n)
	}
	return max(0, n)
}

func (d *decoder) token() (t dedupe.Token) {
	b, err := hex.DecodeString(d.text(fieldToken))
	if err == nil && len(b) != len(t) {
		err = errors.New("wrong length")
	}
	if err != nil {
		d.fail("field %q is no token: %w", fieldToken, err)
		return t
	}
	return dedupe.Token(b)
}
