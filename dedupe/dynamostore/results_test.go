package dynamostore

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/storetest"
)

// TestResults: what says nothing is a result like any other, and so is one that fills the item.
func TestResults(t *testing.T) {
	t.Parallel()
	c := openClient(t)
	s := newStore(t, c, newTable(t))
	ledger := newLedger(t, c)
	large := bytes.Repeat([]byte("x"), 390<<10)
	results := storetest.Results()
	results["390 KB"] = storetest.Result{Given: large, Kept: large}
	for name, r := range results {
		l := claimOne(t, s, request(name))
		if err := s.Commit(t.Context(), &job{Of: l, Keep: time.Hour}, r.Given, line(ledger, name)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := claimAll(t, s, request(name))[0]
		if got.Outcome != dedupe.AlreadyDone || (got.Record.Result == nil) != (r.Kept == nil) || !bytes.Equal(got.Record.Result, r.Kept) {
			t.Errorf("%s: a duplicate was answered %v with %.20q, want %.20q", name, got.Outcome, got.Record.Result, r.Kept)
		}
		if kept := got.Record.Expires.Sub(got.Record.Finished); kept < time.Hour || kept > time.Hour+time.Second {
			t.Errorf("%s: kept for %v, want an hour, rounded up to a second", name, kept)
		}
		if r.Kept == nil {
			continue
		}
		l = claimOne(t, s, request(name+", settled"))
		if st, err := settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Done, Result: r.Kept}); st != dedupe.Done {
			t.Errorf("%s: %v, %v", name, st, err)
		}
		if got := get(t, s, l.Key); !bytes.Equal(got.Result, r.Kept) {
			t.Errorf("%s: stored %.20q", name, got.Result)
		}
	}
}

// TestTooLarge: a result that cannot be kept is refused before anything is written, the effect
// among it.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	c := openClient(t)
	s := newStore(t, c, newTable(t))
	ledger := newLedger(t, c)
	for _, size := range []int{maxResult + 1, 410 << 10, 2 << 20} {
		large := make([]byte, size)
		l := claimOne(t, s, request(fmt.Sprint(size)))
		j := &job{Of: l}
		if _, err := s.CompleteItems(j, large); !errors.Is(err, dedupe.ErrResultSize) || !j.Joined() {
			t.Errorf("CompleteItems of %d bytes: %v, want ErrResultSize", size, err)
		}
		if err := s.Commit(t.Context(), j, large, line(ledger, "effect")); !errors.Is(err, dedupe.ErrResultSize) {
			t.Errorf("Commit of %d bytes: %v, want ErrResultSize", size, err)
		}
		if _, err := settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Done, Result: large}); !errors.Is(err, dedupe.ErrResultSize) {
			t.Errorf("Settle with %d bytes: %v, want ErrResultSize", size, err)
		}
		if err := renewOne(t, s, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Hour, State: large, StateNo: 1}); !errors.Is(err, dedupe.ErrResultSize) {
			t.Errorf("Renew with %d bytes: %v, want ErrResultSize", size, err)
		}
		if r := get(t, s, l.Key); r.Status != dedupe.Claimed || r.State != nil || r.Result != nil {
			t.Errorf("the record is %v with %d and %d bytes", r.Status, len(r.State), len(r.Result))
		}
	}
	if rows := ledgerRows(t, c, ledger); len(rows) != 0 {
		t.Errorf("the ledger has the rows %q", rows)
	}
}

// TestNoRoom: the item is full of what was saved before. A result takes the place of the steps,
// which a job that is done does not need; an error is cut.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	state := bytes.Repeat([]byte("s"), maxResult)
	full := func(key string) dedupe.Lease {
		t.Helper()
		q := request(key)
		q.Owner, q.MessageID = strings.Repeat("o", 3500), strings.Repeat("m", 3500)
		l := claimOne(t, s, q)
		if err := renewOne(t, s, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Minute, State: state, StateNo: 1}); err != nil {
			t.Fatal(err)
		}
		return l
	}
	result := bytes.Repeat([]byte("r"), 300<<10)
	l := full("settled")
	st, err := settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Done, Result: result})
	if r := get(t, s, l.Key); st != dedupe.Done || err != nil || !bytes.Equal(r.Result, result) || r.State != nil {
		t.Errorf("Settle: %v, %v; the record has %d and %d bytes", st, err, len(r.Result), len(r.State))
	}
	l = full("committed")
	err = s.Commit(t.Context(), &job{Of: l}, result)
	if r := get(t, s, l.Key); err != nil || !bytes.Equal(r.Result, result) || r.State != nil {
		t.Errorf("Commit: %v; the record has %d and %d bytes", err, len(r.Result), len(r.State))
	}
	for _, to := range []dedupe.Status{dedupe.Failed, dedupe.Released} {
		l = full(to.String())
		long := strings.Repeat("é", 4000)
		st, err = settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: to, ErrClass: long, ErrText: long})
		if r := get(t, s, l.Key); st != to || err != nil || !bytes.Equal(r.State, state) || !strings.HasPrefix(long, r.LastErr) || len(r.LastErr) < 90 {
			t.Errorf("Settle: %v, %v; the record has %d bytes, and the error %q", st, err, len(r.State), r.LastErr)
		}
	}
	// And what was released can be claimed again, however full it is.
	q := request(dedupe.Released.String())
	q.Owner, q.MessageID = strings.Repeat("o", 3500), strings.Repeat("m", 3500)
	if c := claimAll(t, s, q)[0]; c.Outcome != dedupe.Won || !bytes.Equal(c.State, state) {
		t.Errorf("a full record was answered %v with %d bytes", c.Outcome, len(c.State))
	}

	q = request("labels")
	q.Owner = strings.Repeat("o", maxLabels)
	cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q})
	if err != nil || !errors.Is(cs[0].Err, dedupe.ErrBadRequest) || !strings.Contains(cs[0].Err.Error(), "8000") {
		t.Errorf("a claim with long labels: %+v, %v", cs, err)
	}
}

// TestBrimful: the longest key, labels and state leave room to settle the claim, and to claim it
// anew; and so does an item that was full to the last byte with what failed before.
func TestBrimful(t *testing.T) {
	t.Parallel()
	c := openClient(t)
	s, err := New(c, newTable(t), &Options{TTLAttribute: strings.Repeat("x", maxTTLAttribute)})
	if err := errors.Join(err, s.CreateTable(t.Context())); err != nil {
		t.Fatal(err)
	}
	again := func(what string, q dedupe.ClaimRequest) dedupe.Lease {
		t.Helper()
		cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q})
		if err != nil || cs[0].Err != nil || cs[0].Outcome != dedupe.Won {
			t.Fatalf("%s: %v, %v, %v", what, cs[0].Outcome, cs[0].Err, err)
		}
		return cs[0].Lease
	}
	state := bytes.Repeat([]byte("s"), maxResult)
	long := strings.Repeat("a\xff", 1000)
	q := request(strings.Repeat("k", dedupe.MaxKey))
	q.Key.Scope, q.Policy = strings.Repeat("s", dedupe.MaxScope), dedupe.Park
	q.Owner, q.MessageID, q.Fingerprint = strings.Repeat("o", maxLabels/2), strings.Repeat("m", maxLabels/2-32), make([]byte, 32)
	for n, to := range []dedupe.Status{dedupe.Released, dedupe.Released, dedupe.Parked, dedupe.Failed, dedupe.Done} {
		q.Token = newToken()
		again(fmt.Sprintf("claim %d", n), q)
		q.Reopen = 0
		if err := renewOne(t, s, dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: time.Minute, Started: true, State: state, StateNo: 1}); err != nil {
			t.Fatalf("renewal %d: %v", n, err)
		}
		st, err := settle(t, s, dedupe.Settlement{Key: q.Key, Token: q.Token, To: to, ErrClass: long, ErrText: long, Result: state})
		if st != to || err != nil {
			t.Fatalf("settlement %d to %v: %v, %v", n, to, st, err)
		}
		if to == dedupe.Parked || to == dedupe.Failed {
			q.Reopen = get(t, s, q.Key).Fence
		}
	}

	// Another store, for without its expiry a record of this one has some hundred bytes less.
	s = newStore(t, c, newTable(t))
	q = request("full")
	l := again("the first", q)
	if err := renewOne(t, s, dedupe.Renewal{Key: l.Key, Token: l.Token, TTL: time.Minute, State: state, StateNo: 1}); err != nil {
		t.Fatal(err)
	}
	settleOne(t, s, l, dedupe.Released)
	brim := func() {
		t.Helper()
		it := rawItem(t, s, q.Key)
		most, step := 0, 8<<10
		for step > 0 { // DynamoDB counts the bytes its own way
			it[attrFirstErr] = text(strings.Repeat("e", most+step))
			if _, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &s.table, Item: it}); err == nil {
				most += step
			} else {
				step /= 2
			}
		}
		if most < 1000 {
			t.Errorf("the error has %d bytes", most)
		}
	}
	brim()
	q.Token, q.Owner = newToken(), q.Owner+" of another name"
	l = again("a full record", q)
	if r := get(t, s, l.Key); !bytes.Equal(r.State, state) || !strings.HasPrefix(r.FirstErr, "eee") || l.Attempt != 2 {
		t.Errorf("the state has %d bytes, and the error %d", len(r.State), len(r.FirstErr))
	}
	brim()
	st, err := settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Failed, ErrClass: long, ErrText: long})
	if r := get(t, s, l.Key); st != dedupe.Failed || err != nil || !bytes.Equal(r.State, state) || !strings.HasPrefix(r.LastErr, "a") {
		t.Errorf("a full record was settled to %v, %v", st, err)
	}
}

// TestLongestLease: what is longer than there is time is as long as there is.
func TestLongestLease(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	q := request("k")
	q.TTL = math.MaxInt64
	claimOne(t, s, q)
	if c := claimAll(t, s, request("k"))[0]; c.Outcome != dedupe.InProgress {
		t.Errorf("the longest lease was answered %v", c.Outcome)
	}
	q = request("renewed")
	claimOne(t, s, q)
	if err := renewOne(t, s, dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: math.MaxInt64}); err != nil {
		t.Error(err)
	}
	age(t, s, q.Key, time.Hour)
	if c := claimAll(t, s, request("renewed"))[0]; c.Outcome != dedupe.InProgress {
		t.Errorf("the longest renewal was answered %v", c.Outcome)
	}
}

// TestOneUnit: a usual job's record is written with one unit each time, which is a kilobyte of
// names and values.
func TestOneUnit(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	q := request("3f6bfb6a-4f0e-44d9-9a63-1a8a5b8b2f1a")
	q.Key.Scope, q.Owner, q.MessageID = "billing:invoice-created", "ip-10-0-12-34.eu-west-1.compute.internal/4711/8f1c", "0cbb3e6c-1a25-4a8a-b2a3-1f0f4a0f2d3e"
	l := claimOne(t, s, q)
	claimed := sizeOf(t, rawItem(t, s, l.Key))
	if st, err := settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Failed, ErrClass: "timeout", ErrText: strings.Repeat("e", 100)}); st != dedupe.Failed {
		t.Fatal(st, err)
	}
	failed := sizeOf(t, rawItem(t, s, l.Key))
	if claimed > 512 || failed > 768 {
		t.Errorf("a claimed record has %d bytes, a failed one %d", claimed, failed)
	}
	t.Logf("a claimed record has %d bytes, a failed one %d", claimed, failed)
}

// sizeOf is an item's size by DynamoDB's rules, near enough.
func sizeOf(t *testing.T, it item) (n int) {
	for k, v := range it {
		n += len(k)
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			n += len(v.Value)
		case *types.AttributeValueMemberB:
			n += len(v.Value)
		case *types.AttributeValueMemberN:
			n += len(v.Value)/2 + 2
		case *types.AttributeValueMemberBOOL:
			n++
		default:
			t.Errorf("attribute %s is a %T", k, v)
		}
	}
	return n
}

// TestTexts: what is no UTF-8 is made so, and does not fail the call.
func TestTexts(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	q := request("k")
	q.Owner, q.MessageID = "a\x00b\xff", "\xc3\x28"
	l := claimOne(t, s, q)
	st, err := settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Failed, ErrClass: "\xff", ErrText: "cut in the middle of é: \xc3"})
	r := get(t, s, l.Key)
	if st != dedupe.Failed || err != nil || r.Owner != "a\x00b\ufffd" || r.MessageID != "\ufffd(" || r.ErrClass != "\ufffd" || r.FirstErr != "cut in the middle of é: \ufffd" || r.LastErr != r.FirstErr {
		t.Errorf("Settle: %v, %v; the record is %+v", st, err, r)
	}
}
