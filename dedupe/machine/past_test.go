package machine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

// key plays calls on one record, at times that the test chooses.
type key struct {
	r     dedupe.Record
	now   time.Time
	token byte
	fence uint64
}

func (k *key) claim(owner string, change ...func(*dedupe.ClaimRequest)) dedupe.Claim {
	k.token++
	q := dedupe.ClaimRequest{Key: jobKey, Token: dedupe.Token{k.token}, TTL: lease, Owner: owner}
	for _, f := range change {
		f(&q)
	}
	c, _ := machine.ApplyClaim(&k.r, &q, k.now, func() uint64 { k.fence++; return k.fence })
	return c
}

func (k *key) settle(to dedupe.Status, class, text string) {
	machine.ApplySettle(&k.r, &dedupe.Settlement{Key: jobKey, Token: k.r.Token, To: to, ErrClass: class, ErrText: text, Result: []byte("r")}, k.now)
}

func (k *key) pass(d time.Duration) { k.now = k.now.Add(d) }

// TestPast: what each claim leaves of the one before it, and what it answers about that. The answer
// to its repeat is the same.
func TestPast(t *testing.T) {
	at := now.Truncate(time.Microsecond)
	k := &key{now: at}
	second := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
	tell := func(what string, c dedupe.Claim, class, from string, deadFor time.Duration, past ...dedupe.Attempt) {
		t.Helper()
		q := dedupe.ClaimRequest{Key: jobKey, Token: k.r.Token, TTL: lease}
		again, _ := machine.ApplyClaim(&k.r, &q, k.now.Add(time.Millisecond), nil)
		for n, c := range []dedupe.Claim{c, again} {
			if c.Outcome != dedupe.Won || c.ErrClass != class || c.From != from || c.DeadFor != deadFor {
				t.Errorf("%s, answer %d: %v class %q from %q dead for %v, want class %q from %q dead for %v",
					what, n+1, c.Outcome, c.ErrClass, c.From, c.DeadFor, class, from, deadFor)
			}
		}
		if got, want := fmt.Sprintf("%+v", k.r.Past), fmt.Sprintf("%+v", past); got != want {
			t.Errorf("%s: Past is\n%s, want\n%s", what, got, want)
		}
	}
	sent := at.Add(-time.Hour)
	c := k.claim("a", func(q *dedupe.ClaimRequest) { q.Sent = sent })
	tell("the first claim", c, "", "", 0)
	k.pass(time.Second)
	k.settle(dedupe.Released, "timeout", "slow")
	k.pass(time.Second)
	one := dedupe.Attempt{Number: 1, Fence: 1, Owner: "a", Claimed: second(0), Ended: second(1), End: dedupe.Released, Class: "timeout", Err: "slow"}
	tell("after a release", k.claim("b", func(q *dedupe.ClaimRequest) { q.Sent = at }), "timeout", "", 0, one)
	died := k.r.LeaseUntil
	k.now = died.Add(5 * time.Second)
	three := k.now
	two := dedupe.Attempt{Number: 2, Fence: 2, Owner: "b", Claimed: second(2), Ended: died, End: dedupe.Claimed}
	tell("after a dead lease", k.claim("c"), "timeout", "b", 5*time.Second, one, two)
	if !k.r.Sent.Equal(sent) {
		t.Errorf("Sent is %v, want the first claim's %v", k.r.Sent, sent)
	}
	k.settle(dedupe.Failed, "bank", "no money")
	third := dedupe.Attempt{Number: 3, Fence: 3, Owner: "c", Claimed: three, Ended: three, End: dedupe.Failed, Class: "bank", Err: "no money", Reopened: true}
	k.pass(time.Second)
	four := k.now
	c = k.claim("d", func(q *dedupe.ClaimRequest) { q.Reopen, q.Policy = 3, dedupe.Park })
	tell("after a replay", c, "bank", "", 0, one, two, third)
	machine.ApplyRenew(&k.r, &dedupe.Renewal{Key: jobKey, Token: k.r.Token, TTL: lease, Started: true}, k.now)
	k.now = k.r.LeaseUntil
	if c := k.claim("e"); c.Outcome != dedupe.IsParked || len(c.Record.Past) != 3 {
		t.Errorf("a takeover under Park is answered %v with %+v", c.Outcome, c.Record)
	}
	parked := k.now
	k.pass(time.Second)
	fourth := dedupe.Attempt{Number: 1, Fence: 4, Owner: "d", Claimed: four, Ended: parked, End: dedupe.Parked, Class: dedupe.ClassInterrupted, Reopened: true}
	c = k.claim("f", func(q *dedupe.ClaimRequest) { q.Reopen = 4 })
	tell("after a park", c, dedupe.ClassInterrupted, "", 0, one, two, third, fourth)
	k.settle(dedupe.Done, "", "")
	if len(k.r.Past) != 4 {
		t.Errorf("a done record has the Past %+v", k.r.Past)
	}
	k.now = k.r.Expires
	c = k.claim("g")
	tell("a new record", c, "", "", 0)
	if !c.Fresh || !k.r.Sent.IsZero() {
		t.Errorf("fresh is %v, Sent %v", c.Fresh, k.r.Sent)
	}
	k.settle(dedupe.Released, "", "")
	k.claim("h", func(q *dedupe.ClaimRequest) { q.Sent = sent })
	if !k.r.Sent.Equal(sent) {
		t.Errorf("Sent is %v: a claim must fill in what nobody knew", k.r.Sent)
	}
}

// TestPastIsBounded: forty attempts fit, and the first and the fifteen newest are kept. Copies of a
// record do not share what is appended.
func TestPastIsBounded(t *testing.T) {
	k := &key{now: now}
	var before []dedupe.Attempt
	for n := range 41 {
		k.claim(fmt.Sprintf("host-%d.%s", n%3, strings.Repeat("x", 20)))
		if len(before) > 0 && k.r.Past[0] != before[0] {
			t.Fatalf("after %d attempts the first is %+v", n, k.r.Past[0])
		}
		before = k.r.Past
		k.pass(time.Second)
		k.settle(dedupe.Released, "timeout", strings.Repeat("y", 200))
		k.pass(time.Second)
	}
	ns := make([]int, 0, dedupe.MaxPast)
	for _, a := range k.r.Past {
		ns = append(ns, a.Number)
	}
	if got := fmt.Sprint(ns); got != "[1 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40]" {
		t.Errorf("kept %s of 40", got)
	}
	if n := len(dedupe.EncodePast(k.r.Past)); n > dedupe.MaxPastBytes || n < 900 {
		t.Errorf("%d bytes", n)
	}
	if last := k.r.Past[len(k.r.Past)-1]; last.Err != strings.Repeat("y", 60) {
		t.Errorf("the newest text is %q", last.Err)
	}
}
