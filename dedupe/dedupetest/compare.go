package dedupetest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file owns how records are compared, and how they are shown. Cases call it through env, each
// in a goroutine of its own. It keeps nothing and locks nothing.

// same reports whether two values are equal, where none is not the same as empty.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func show(b []byte) string {
	switch {
	case b == nil:
		return "none"
	case len(b) > 40:
		return fmt.Sprintf("%q… (%d bytes)", b[:40], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// brief is a record in a few words.
func brief(r *dedupe.Record) string {
	if r == nil || r.Status == 0 {
		return "none"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v (fence %d, attempt %d", r.Status, r.Fence, r.Attempt)
	if r.Started {
		b.WriteString(", started")
	}
	if r.Policy != dedupe.Rerun {
		fmt.Fprintf(&b, ", %v", r.Policy)
	}
	if r.Fingerprint != nil {
		fmt.Fprintf(&b, ", fingerprint %s", show(r.Fingerprint))
	}
	now := time.Now()
	if !r.LeaseUntil.IsZero() && !now.Before(r.LeaseUntil) {
		b.WriteString(", lease dead")
	}
	if r.Expired(now) {
		b.WriteString(", expired")
	}
	b.WriteString(")")
	return b.String()
}

// equal compares two records field by field.
func (e *env) equal(what string, got, want *dedupe.Record) {
	e.Helper()
	var diffs []string
	add := func(field string, g, w any) {
		if g != w {
			diffs = append(diffs, fmt.Sprintf("%s is %v, want %v", field, g, w))
		}
	}
	add("Key", got.Key, want.Key)
	add("Status", got.Status, want.Status)
	add("Fence", got.Fence, want.Fence)
	add("Token", got.Token.Hex(), want.Token.Hex())
	add("Attempt", got.Attempt, want.Attempt)
	add("Started", got.Started, want.Started)
	add("Policy", got.Policy, want.Policy)
	add("Owner", got.Owner, want.Owner)
	add("MessageID", got.MessageID, want.MessageID)
	addBytes := func(field string, g, w []byte) {
		if !same(g, w) {
			diffs = append(diffs, fmt.Sprintf("%s is %s, want %s", field, show(g), show(w)))
		}
	}
	addBytes("Fingerprint", got.Fingerprint, want.Fingerprint)
	addBytes("Result", got.Result, want.Result)
	addBytes("State", got.State, want.State)
	add("StateNo", got.StateNo, want.StateNo)
	add("ErrClass", got.ErrClass, want.ErrClass)
	add("FirstErr", got.FirstErr, want.FirstErr)
	add("LastErr", got.LastErr, want.LastErr)
	addTime := func(field string, g, w time.Time) {
		switch {
		case g.IsZero() != w.IsZero():
			diffs = append(diffs, fmt.Sprintf("%s is %v, want %v", field, orNone(g), orNone(w)))
		case g.Sub(w).Abs() > e.tolerance():
			diffs = append(diffs, fmt.Sprintf("%s is %v off", field, g.Sub(w)))
		}
	}
	addTime("LeaseUntil", got.LeaseUntil, want.LeaseUntil)
	addTime("Created", got.Created, want.Created)
	addTime("ClaimedAt", got.ClaimedAt, want.ClaimedAt)
	addTime("Updated", got.Updated, want.Updated)
	addTime("Finished", got.Finished, want.Finished)
	addTime("Expires", got.Expires, want.Expires)
	addTime("Sent", got.Sent, want.Sent)
	if d := e.pastDiffers(got.Past, want.Past); d != "" {
		diffs = append(diffs, d)
	}
	if len(diffs) > 0 {
		e.Errorf("%s of %s differs: %s", what, want.Key, strings.Join(diffs, "; "))
	}
}

// pastDiffers says how two histories differ, but for times within the tolerance.
func (e *env) pastDiffers(got, want []dedupe.Attempt) string {
	if crowded(got) || crowded(want) {
		// A time that is a microsecond later may take a byte more. So what was left out may differ.
		n := min(len(got), len(want))
		if max(len(got), len(want)) > n+2 {
			return fmt.Sprintf("Past has %d attempts, want about %d", len(got), len(want))
		}
		got, want = ends(got, n), ends(want, n)
	}
	if len(got) != len(want) {
		return fmt.Sprintf("Past has %d attempts, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		if g.Claimed.Sub(w.Claimed).Abs() <= e.tolerance() && g.Ended.Sub(w.Ended).Abs() <= e.tolerance() {
			g.Claimed, g.Ended = w.Claimed, w.Ended
		}
		if g != w {
			return fmt.Sprintf("Past[%d] is %+v, want %+v", i, g, w)
		}
	}
	return ""
}

// crowded reports whether past has little room left.
func crowded(past []dedupe.Attempt) bool {
	return len(dedupe.EncodePast(past)) > dedupe.MaxPastBytes-250
}

// ends are the first of n attempts and the newest ones, without the texts, which go first.
func ends(past []dedupe.Attempt, n int) []dedupe.Attempt {
	if n == 0 {
		return nil
	}
	few := append([]dedupe.Attempt{past[0]}, past[len(past)-n+1:]...)
	for i := range few {
		few[i].Err = ""
	}
	return few
}

func orNone(t time.Time) string {
	if t.IsZero() {
		return "not set"
	}
	return t.Format(time.RFC3339Nano)
}

func (e *env) near(what string, got, want time.Duration) {
	e.Helper()
	if (got - want).Abs() > e.tolerance() {
		e.Errorf("%s is %v, want %v", what, got, want)
	}
}
