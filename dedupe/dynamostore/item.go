package dynamostore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
)

// This file owns the form of an item: how a record is written and read. All calls of the store use
// it. It keeps nothing and locks nothing.

// The attributes of an item. Key and scope are the table's key, two values that are never joined.
// The key is the partition key, which spreads a busy scope over all partitions. The scope is the
// sort key.
const (
	attrKey         = "key"
	attrScope       = "scope"
	attrStatus      = "status"
	attrFence       = "fence"
	attrVersion     = "version" // rises with each write
	attrToken       = "token"
	attrAttempt     = "attempt"
	attrStarted     = "started"
	attrPolicy      = "policy"
	attrOwner       = "owner"
	attrMessage     = "message_id"
	attrLease       = "lease_until" // the times are microseconds since 1970, but for the expiry
	attrFingerprint = "fingerprint"
	attrResult      = "result"
	attrState       = "state"
	attrStateNo     = "state_no"
	attrClass       = "error_class"
	attrFirstErr    = "first_error"
	attrLastErr     = "last_error"
	attrCreated     = "created"
	attrClaimed     = "claimed_at"
	attrUpdated     = "updated"
	attrFinished    = "finished"
	attrCommit      = "commit" // which transaction has completed it
	attrPast        = "past"
	attrSent        = "sent"
	attrAttention   = "attention" // only while failed, parked or released; see shard.go
)

// attributes are all but the expiry, whose name is the user's choice.
var attributes = []string{
	attrKey, attrScope, attrStatus, attrFence, attrVersion, attrToken, attrAttempt, attrStarted, attrPolicy, attrOwner, attrMessage,
	attrLease, attrFingerprint, attrResult, attrState, attrStateNo, attrClass, attrFirstErr, attrLastErr, attrCreated, attrClaimed, attrUpdated,
	attrFinished, attrCommit, attrPast, attrSent, attrAttention,
}

// forgotten is the status of what Forget leaves: the fence, which must not fall.
const forgotten = "forgotten"

// value is one attribute's.
type value = types.AttributeValue

// item is a DynamoDB item.
type item = map[string]value

func text(s string) value      { return &types.AttributeValueMemberS{Value: s} }
func blob(b []byte) value      { return &types.AttributeValueMemberB{Value: b} }
func truth(b bool) value       { return &types.AttributeValueMemberBOOL{Value: b} }
func moment(t time.Time) value { return number(t.UnixMicro()) }

func number[N int | int64 | uint64](n N) value {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

// expiry is in whole seconds, as DynamoDB wants it, and never early.
func expiry(t time.Time) value {
	n := t.Unix()
	if t.Nanosecond() > 0 {
		n++
	}
	return number(n)
}

func keyOf(k dedupe.Key) item { return item{attrKey: text(k.Key), attrScope: text(k.Scope)} }

// clean makes a text UTF-8, because DynamoDB takes nothing else.
func clean(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// stored is what an item says.
type stored struct {
	rec     dedupe.Record // the zero Record where it was forgotten
	fence   uint64        // also of what was forgotten
	last    uint64        // the highest fence that a claim was won with
	version uint64
	commit  string
}

// encode is r as an item.
func (s *Store) encode(r *dedupe.Record, version uint64) item {
	it := make(item, 22)
	it[attrKey], it[attrScope] = text(r.Key.Key), text(r.Key.Scope)
	it[attrStatus], it[attrPolicy] = text(r.Status.String()), text(r.Policy.String())
	it[attrFence], it[attrVersion], it[attrAttempt] = number(r.Fence), number(version), number(r.Attempt)
	it[attrToken] = text(r.Token.Hex())
	if r.Started {
		it[attrStarted] = truth(true)
	}
	for _, f := range [...]struct{ attr, text string }{
		{attrAttention, attention(r.Key, r.Status)}, {attrOwner, r.Owner}, {attrMessage, r.MessageID}, {attrClass, r.ErrClass}, {attrFirstErr, r.FirstErr}, {attrLastErr, r.LastErr},
	} {
		if f.text != "" {
			it[f.attr] = text(clean(f.text))
		}
	}
	for _, f := range [...]struct {
		attr string
		b    []byte
	}{{attrFingerprint, r.Fingerprint}, {attrResult, r.Result}, {attrState, r.State}, {attrPast, dedupe.EncodePast(r.Past)}} {
		if f.b != nil {
			it[f.attr] = blob(f.b)
		}
	}
	if r.StateNo > 0 {
		it[attrStateNo] = number(r.StateNo)
	}
	for _, f := range [...]struct {
		attr string
		t    time.Time
	}{{attrLease, r.LeaseUntil}, {attrCreated, r.Created}, {attrClaimed, r.ClaimedAt}, {attrUpdated, r.Updated}, {attrFinished, r.Finished}, {attrSent, r.Sent}} {
		if !f.t.IsZero() {
			it[f.attr] = moment(f.t)
		}
	}
	if !r.Expires.IsZero() {
		it[s.ttl] = expiry(r.Expires)
	}
	return it
}

// tombstone keeps the fence of what was forgotten, until expires.
func (s *Store) tombstone(k dedupe.Key, fence, version uint64, now, expires time.Time) item {
	return item{
		attrKey: text(k.Key), attrScope: text(k.Scope), attrStatus: text(forgotten), attrFence: number(fence), attrVersion: number(version),
		attrUpdated: moment(now), s.ttl: expiry(expires),
	}
}

// decode reads an item; nil is nothing.
func (s *Store) decode(it item) (*stored, error) {
	if len(it) == 0 {
		return nil, nil
	}
	d := decoder{it: it}
	var st stored
	r := &st.rec
	r.Key = dedupe.Key{Scope: d.text(attrScope), Key: d.text(attrKey)}
	status := d.text(attrStatus)
	st.fence, st.version = d.count(attrFence), d.count(attrVersion)
	st.last = st.fence
	if d.err == nil && (st.fence == 0 || st.version == 0) {
		d.err = errors.New("it has no fence, or no version")
	}
	if d.err == nil && status == forgotten {
		st.rec = dedupe.Record{}
		return &st, nil
	}
	var err error
	if r.Status, err = dedupe.ParseStatus(status); err != nil && d.err == nil {
		d.err = fmt.Errorf("its status is %q", status)
	}
	r.Fence = st.fence
	r.Token = d.token()
	r.Attempt = int(d.count(attrAttempt))
	r.Started = d.truth(attrStarted)
	switch p := d.text(attrPolicy); p {
	case dedupe.Park.String():
		r.Policy = dedupe.Park
	case dedupe.Rerun.String():
	default:
		d.fail("its policy is %q", p)
	}
	r.Owner, r.MessageID = d.text(attrOwner), d.text(attrMessage)
	r.ErrClass, r.FirstErr, r.LastErr = d.text(attrClass), d.text(attrFirstErr), d.text(attrLastErr)
	r.Fingerprint, r.Result, r.State = d.blob(attrFingerprint), d.blob(attrResult), d.blob(attrState)
	r.StateNo = int(d.count(attrStateNo))
	r.LeaseUntil, r.Created, r.ClaimedAt = d.moment(attrLease), d.moment(attrCreated), d.moment(attrClaimed)
	r.Updated, r.Finished, r.Sent = d.moment(attrUpdated), d.moment(attrFinished), d.moment(attrSent)
	r.Past = dedupe.DecodePast(d.blob(attrPast))
	if n := d.count(s.ttl); n > 0 {
		r.Expires = time.Unix(int64(n), 0).UTC()
	}
	st.commit = d.text(attrCommit)
	if d.err == nil && !r.Expires.IsZero() == (r.Status == dedupe.Claimed || r.Status == dedupe.Parked) {
		d.err = fmt.Errorf("it is %v, and attribute %q does not fit that: do all stores on the table name the same TTLAttribute?", r.Status, s.ttl)
	}
	if d.err != nil {
		return nil, fmt.Errorf("the item under scope %q, key %q in table %s was not written by this store: %w", r.Key.Scope, r.Key.Key, s.table, d.err)
	}
	return &st, nil
}

// decoder reads attributes and remembers the first error. What is absent is zero.
type decoder struct {
	it  item
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func (d *decoder) text(attr string) string {
	switch v := d.it[attr].(type) {
	case nil:
	case *types.AttributeValueMemberS:
		return v.Value
	default:
		d.fail("attribute %q is no string", attr)
	}
	return ""
}

func (d *decoder) blob(attr string) []byte {
	switch v := d.it[attr].(type) {
	case nil:
	case *types.AttributeValueMemberB:
		if v.Value == nil {
			return []byte{}
		}
		return v.Value
	default:
		d.fail("attribute %q is not binary", attr)
	}
	return nil
}

func (d *decoder) truth(attr string) bool {
	switch v := d.it[attr].(type) {
	case nil:
	case *types.AttributeValueMemberBOOL:
		return v.Value
	default:
		d.fail("attribute %q is neither true nor false", attr)
	}
	return false
}

func (d *decoder) integer(attr string) int64 {
	switch v := d.it[attr].(type) {
	case nil:
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		if err != nil {
			d.fail("attribute %q is %s, want a whole number", attr, v.Value)
		}
		return n
	default:
		d.fail("attribute %q is no number", attr)
	}
	return 0
}

func (d *decoder) count(attr string) uint64 {
	n := d.integer(attr)
	if n < 0 {
		d.fail("attribute %q is %d, want 0 or more", attr, n)
	}
	return uint64(max(0, n))
}

func (d *decoder) moment(attr string) time.Time {
	if d.it[attr] == nil {
		return time.Time{}
	}
	return time.UnixMicro(d.integer(attr)).UTC()
}

func (d *decoder) token() (t dedupe.Token) {
	s := d.text(attrToken)
	if len(s) != 2*len(t) {
		d.fail("attribute %q is %q, want 32 hexadecimal digits", attrToken, s)
		return t
	}
	for i := range t {
		n, err := strconv.ParseUint(s[2*i:2*i+2], 16, 8)
		if err != nil {
			d.fail("attribute %q is %q, want 32 hexadecimal digits", attrToken, s)
			return t
		}
		t[i] = byte(n)
	}
	return t
}
