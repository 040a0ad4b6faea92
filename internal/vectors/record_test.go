package vectors

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

// call is one call of a store: what it finds, asks for, answers and leaves. After is null where
// nothing is written.
type call struct {
	Rule   string         `json:"rule"`
	Record map[string]any `json:"record"`
	Claim  map[string]any `json:"claim,omitempty"`
	Renew  map[string]any `json:"renew,omitempty"`
	Settle map[string]any `json:"settle,omitempty"`
	Answer map[string]any `json:"answer"`
	After  map[string]any `json:"after"`
}

const (
	fence = 41
	lease = time.Minute
)

var (
	jobKey = dedupe.Key{Scope: "orders", Key: "order-7"}
	mine   = dedupe.Token{1}
	theirs = dedupe.Token{2}
)

// members writes what is not zero, by the names of the page.
type members map[string]any

func (m members) text(name, s string) {
	if s != "" {
		m[name] = s
	}
}

func (m members) bytes(name string, b []byte) {
	if b != nil {
		m[name] = base64.StdEncoding.EncodeToString(b)
	}
}

func (m members) time(name string, t time.Time) {
	if !t.IsZero() {
		m[name] = t.Format(time.RFC3339Nano)
	}
}

func recordOf(r *dedupe.Record) map[string]any {
	if r.Status == 0 {
		return nil
	}
	m := members{"status": r.Status.String(), "fence": r.Fence, "token": r.Token.Hex(), "attempt": r.Attempt}
	if r.Started {
		m["started"] = true
	}
	if r.Policy == dedupe.Park {
		m["policy"] = r.Policy.String()
	}
	m.text("owner", r.Owner)
	m.text("message_id", r.MessageID)
	m.text("error_class", r.ErrClass)
	m.text("first_error", r.FirstErr)
	m.text("last_error", r.LastErr)
	m.bytes("fingerprint", r.Fingerprint)
	m.bytes("result", r.Result)
	m.bytes("state", r.State)
	if r.StateNo > 0 {
		m["state_no"] = r.StateNo
	}
	if p := dedupe.EncodePast(r.Past); p != nil {
		m["past"] = hex.EncodeToString(p)
	}
	m.time("lease_until", r.LeaseUntil)
	m.time("sent", r.Sent)
	m.time("created", r.Created)
	m.time("claimed_at", r.ClaimedAt)
	m.time("updated", r.Updated)
	m.time("finished", r.Finished)
	m.time("expires", r.Expires)
	return m
}

// found are the records that a call may find.
func found() []dedupe.Record {
	record := func(s dedupe.Status, change ...func(*dedupe.Record)) dedupe.Record {
		r := dedupe.Record{
			Key: jobKey, Status: s, Fence: fence, Token: theirs, Attempt: 2, Owner: "worker-1", MessageID: "m-1", Fingerprint: []byte("A"),
			State: []byte(`{"v":1}`), StateNo: 1, ErrClass: "timeout", FirstErr: "first", LastErr: "last",
			Created: at.Add(-2 * time.Hour), ClaimedAt: at.Add(-time.Hour), Updated: at.Add(-time.Hour),
		}
		switch s {
		case dedupe.Claimed:
			r.LeaseUntil = at.Add(time.Second)
		case dedupe.Released:
			r.Expires = at.Add(time.Hour)
		case dedupe.Done:
			r.ErrClass, r.FirstErr, r.LastErr, r.MessageID, r.State, r.StateNo = "", "", "", "", nil, 0
			r.Result, r.Finished, r.Expires = []byte("42"), r.Updated, at.Add(time.Hour)
		case dedupe.Failed:
			r.Finished, r.Expires = r.Updated, at.Add(time.Hour)
		case dedupe.Parked:
			r.Started, r.Policy, r.Finished = true, dedupe.Park, r.Updated
		}
		for _, f := range change {
			f(&r)
		}
		return r
	}
	dead := func(r *dedupe.Record) { r.LeaseUntil = at }
	parks := func(r *dedupe.Record) { r.Started, r.Policy = true, dedupe.Park }
	over := func(r *dedupe.Record) { r.Expires = at }
	untouched := func(r *dedupe.Record) {
		r.Attempt, r.ErrClass, r.FirstErr, r.LastErr, r.State, r.StateNo = 0, "", "", "", nil, 0
	}
	return []dedupe.Record{
		{},
		record(dedupe.Claimed), record(dedupe.Claimed, dead), record(dedupe.Claimed, dead, parks), record(dedupe.Released),
		record(dedupe.Released, untouched), record(dedupe.Released, over), record(dedupe.Done), record(dedupe.Done, over),
		record(dedupe.Failed), record(dedupe.Failed, over), record(dedupe.Parked),
	}
}

// start is a call on r.
func start(rule string, r *dedupe.Record) call {
	return call{Rule: rule, Record: recordOf(r)}
}

// end says what the call left.
func (c *call) end(r *dedupe.Record, changed bool, err error) call {
	if changed {
		c.After = recordOf(r)
	}
	if errors.Is(err, dedupe.ErrLeaseLost) {
		c.Answer = members{"lost": true}
	}
	return *c
}

func TestRecord(t *testing.T) {
	var all []call
	rows := make(map[string]int)
	for i := range found() {
		all = append(all, claims(i)...)
		all = append(all, renewals(i)...)
		all = append(all, settlements(i)...)
	}
	for i := range all {
		rows[all[i].Rule]++
	}
	var rules []string
	for _, r := range machine.ClaimTable() {
		rules = append(rules, "claim: "+r.Name)
	}
	for _, r := range machine.RenewTable() {
		rules = append(rules, "renew: "+r.Name)
	}
	for _, r := range machine.SettleTable() {
		rules = append(rules, "settle: "+r.Name)
	}
	// No token is zero, so that none is that of a record that is not there.
	const never = "settle: no record"
	for _, r := range rules {
		if rows[r] == 0 && r != never {
			t.Errorf("no vector shows the rule %q", r)
		}
	}
	hold(t, "record.json", all)
}

func claims(i int) (all []call) {
	for _, change := range []func(*dedupe.ClaimRequest){
		func(*dedupe.ClaimRequest) {},
		func(q *dedupe.ClaimRequest) { q.Token = theirs },
		func(q *dedupe.ClaimRequest) { q.Fingerprint = []byte("B") },
		func(q *dedupe.ClaimRequest) { q.Reopen, q.Fingerprint = fence, []byte("B") },
		func(q *dedupe.ClaimRequest) { q.Reopen = fence - 1 },
		func(q *dedupe.ClaimRequest) { q.Policy = dedupe.Park },
	} {
		r := found()[i]
		q := dedupe.ClaimRequest{Key: jobKey, Token: mine, TTL: lease, Fingerprint: []byte("A"), Owner: "worker-2", MessageID: "m-2", Sent: at.Add(-3 * time.Hour)}
		change(&q)
		rows, met := machine.ClaimTable(), machine.Meet(&r, &q, at)
		decides := slices.IndexFunc(rows, func(row machine.ClaimRow) bool { return row.Matches(met) })
		c := start("claim: "+rows[decides].Name, &r)
		m := members{
			"token": q.Token.Hex(), "ttl_ms": q.TTL.Milliseconds(), "policy": q.Policy.String(),
			"owner": q.Owner, "message_id": q.MessageID,
		}
		m.bytes("fingerprint", q.Fingerprint)
		m.time("sent", q.Sent)
		if q.Reopen != 0 {
			m["reopen"] = q.Reopen
		}
		c.Claim = m
		a, changed := machine.ApplyClaim(&r, &q, at, func() uint64 { return fence + 1 })
		answer := members{"outcome": a.Outcome.String()}
		switch a.Outcome {
		case dedupe.Won:
			answer["fence"], answer["attempt"] = a.Lease.Fence, a.Lease.Attempt
			answer.bytes("state", a.State)
		case dedupe.InProgress:
			answer["left_ms"], answer["age_ms"] = a.Left.Milliseconds(), a.Age.Milliseconds()
		case dedupe.AlreadyDone:
			answer.bytes("result", a.Record.Result)
		}
		c.Answer = answer
		all = append(all, c.end(&r, changed, a.Err))
	}
	return all
}

func renewals(i int) (all []call) {
	for _, n := range []dedupe.Renewal{
		{Token: theirs},
		{Token: mine},
		{Token: theirs, Started: true},
		{Token: theirs, State: []byte(`{"v":1,"s":{}}`), StateNo: 2},
		{Token: theirs, State: []byte(`{"v":1,"s":{}}`), StateNo: 1},
	} {
		n.Key, n.TTL = jobKey, lease
		r := found()[i]
		m := members{"token": n.Token.Hex(), "ttl_ms": n.TTL.Milliseconds(), "started": n.Started}
		m.bytes("state", n.State)
		if n.StateNo > 0 {
			m["state_no"] = n.StateNo
		}
		c := start("renew: not ours any more", &r)
		err := machine.ApplyRenew(&r, &n, at)
		c.Renew, c.Answer = m, members{"lost": false}
		if err == nil {
			c.Rule = "renew: own claim"
		}
		all = append(all, c.end(&r, err == nil, err))
	}
	return all
}

func settlements(i int) (all []call) {
	for _, s := range []dedupe.Settlement{
		{Token: mine, To: dedupe.Done},
		{Token: theirs, To: dedupe.Done, Result: []byte("42")},
		{Token: theirs, To: dedupe.Done, Joined: true},
		{Token: theirs, To: dedupe.Failed, ErrClass: "permanent", ErrText: "card expired"},
		{Token: theirs, To: dedupe.Released, ErrClass: "error", ErrText: "bank away"},
		{Token: theirs, To: dedupe.Released, Uncounted: true},
		{Token: theirs, To: dedupe.Released, Unparks: true},
		{Token: theirs, To: dedupe.Parked, ErrClass: "interrupted", ErrText: "killed"},
	} {
		s.Key, s.Retain = jobKey, 24*time.Hour
		r := found()[i]
		m := members{
			"token": s.Token.Hex(), "to": s.To.String(), "uncounted": s.Uncounted, "joined": s.Joined, "unparks": s.Unparks,
			"retain_ms": s.Retain.Milliseconds(),
		}
		m.bytes("result", s.Result)
		m.text("error_class", s.ErrClass)
		m.text("error_text", s.ErrText)
		met := machine.Situation{At: where(&r), Own: r.Token == s.Token, Unparks: s.Unparks}
		rows := machine.SettleTable()
		decides := slices.IndexFunc(rows, func(row machine.SettleRow) bool { return row.Matches(met, s.To, s.Joined) })
		c := start("settle: "+rows[decides].Name, &r)
		c.Settle = m
		a, changed := machine.ApplySettle(&r, &s, at)
		c.Answer = members{"status": a.Status.String()}
		all = append(all, c.end(&r, changed, a.Err))
	}
	return all
}

// where is the state that a settlement meets, whatever the record's expiry.
func where(r *dedupe.Record) machine.At {
	switch r.Status {
	case dedupe.Claimed:
		if at.Before(r.LeaseUntil) {
			return machine.AtLive
		}
		return machine.AtDead
	case dedupe.Released:
		return machine.AtReleased
	case dedupe.Done:
		return machine.AtDone
	case dedupe.Failed:
		return machine.AtFailed
	case dedupe.Parked:
		return machine.AtParked
	}
	return machine.AtNone
}

// history is the history of a record, and the bytes in which all stores keep it.
type history struct {
	Name     string           `json:"name"`
	Attempts []map[string]any `json:"attempts"`
	Hex      string           `json:"hex"`
}

func TestPast(t *testing.T) {
	attempts := func(n int) (all []dedupe.Attempt) {
		for i := range n {
			began := at.Add(time.Duration(i) * time.Minute)
			all = append(all, dedupe.Attempt{
				Number: i + 1, Fence: uint64(100 + 3*i), Owner: fmt.Sprintf("worker-%d", i/2), Claimed: began, Ended: began.Add(1500 * time.Microsecond),
				End: dedupe.Released, Class: "error", Err: "bank away",
			})
		}
		return all
	}
	died := attempts(2)
	died[1].End, died[1].Class, died[1].Err = dedupe.Claimed, "", ""
	again := attempts(1)
	again[0].End, again[0].Reopened = dedupe.Failed, true
	all := []history{{Name: "none"}, {Name: "one"}, {Name: "a lease that died"}, {Name: "failed, and replayed"}, {Name: "the first and the fifteen newest of twenty"}}
	for i, past := range [][]dedupe.Attempt{nil, attempts(1), died, again, attempts(20)} {
		b := dedupe.EncodePast(past)
		all[i].Hex = hex.EncodeToString(b)
		all[i].Attempts = []map[string]any{}
		for _, a := range dedupe.DecodePast(b) {
			m := members{"number": a.Number, "fence": a.Fence, "end": a.End.String(), "reopened": a.Reopened}
			m.text("owner", a.Owner)
			m.text("class", a.Class)
			m.text("error", a.Err)
			m.time("claimed", a.Claimed)
			m.time("ended", a.Ended)
			all[i].Attempts = append(all[i].Attempts, m)
		}
		if len(all[i].Attempts) != min(len(past), dedupe.MaxPast) {
			t.Errorf("%s: %d attempts are read", all[i].Name, len(all[i].Attempts))
		}
	}
	hold(t, "past.json", all)
}
