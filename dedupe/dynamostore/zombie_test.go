package dynamostore

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/storetest"
)

// TestTakeover: 200 claimers of a dead lease, of four workers. One wins, with a higher fence; the
// others are told who works.
func TestTakeover(t *testing.T) {
	t.Parallel()
	first := openStore(t)
	workers := []*Store{first, second(t, first), second(t, first), second(t, first)}
	old := claimOne(t, first, request("dead"))
	age(t, first, old.Key, time.Hour)
	const claimers = 200
	cs := make([]dedupe.Claim, claimers)
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range claimers {
		q := request("dead")
		wg.Go(func() {
			<-gate
			got, err := workers[i%len(workers)].Claim(t.Context(), []dedupe.ClaimRequest{q})
			if err != nil {
				t.Error(err)
				return
			}
			cs[i] = got[0]
		})
	}
	close(gate)
	wg.Wait()
	won := 0
	for i, c := range cs {
		switch {
		case c.Err == nil && c.Outcome == dedupe.Won:
			won++
			if c.Lease.Fence <= old.Fence || c.Lease.Attempt != 2 {
				t.Errorf("the winner has fence %d and attempt %d, the dead claim had %d", c.Lease.Fence, c.Lease.Attempt, old.Fence)
			}
		case c.Err != nil || c.Outcome != dedupe.InProgress:
			t.Errorf("claimer %d was answered %v, %v", i, c.Outcome, c.Err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d have won", won, claimers)
	}
}

// TestZombieFails: A outlives its lease, B claims, A fails late. B's claim stays, and C is kept
// away.
func TestZombieFails(t *testing.T) {
	t.Parallel()
	a := openStore(t)
	b, c := second(t, a), second(t, a)
	for _, to := range []dedupe.Status{dedupe.Released, dedupe.Failed, dedupe.Parked} {
		old := claimOne(t, a, request(to.String()))
		age(t, a, old.Key, time.Hour)
		l := claimOne(t, b, request(to.String()))
		if _, err := settle(t, a, dedupe.Settlement{Key: old.Key, Token: old.Token, To: to, ErrClass: "timeout"}); !errors.Is(err, dedupe.ErrLeaseLost) {
			t.Errorf("A's %v was answered %v, want ErrLeaseLost", to, err)
		}
		if got := claimAll(t, c, request(to.String()))[0]; got.Outcome != dedupe.InProgress {
			t.Errorf("after A's %v C was answered %v, want in-progress", to, got.Outcome)
		}
		settleOne(t, b, l, dedupe.Done)
	}
}

// TestZombieSucceeds: A outlives its lease, B finishes, A succeeds late. B's result stays.
func TestZombieSucceeds(t *testing.T) {
	t.Parallel()
	a := openStore(t)
	b := second(t, a)
	old := claimOne(t, a, request("k"))
	age(t, a, old.Key, time.Hour)
	l := claimOne(t, b, request("k"))
	if st, err := settle(t, b, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Done, Result: []byte("B's")}); st != dedupe.Done {
		t.Fatal(st, err)
	}
	for _, joined := range []bool{false, true} {
		s := dedupe.Settlement{Key: old.Key, Token: old.Token, To: dedupe.Done, Result: []byte("A's"), Joined: joined}
		if _, err := settle(t, a, s); !errors.Is(err, dedupe.ErrLeaseLost) {
			t.Errorf("A's success, joined %v, was answered %v, want ErrLeaseLost", joined, err)
		}
	}
	if err := a.Commit(t.Context(), &job{Of: old}, "A's"); !errors.Is(err, dedupe.ErrLeaseLost) {
		t.Errorf("A's Commit was answered %v, want ErrLeaseLost", err)
	}
	if r := get(t, a, l.Key); string(r.Result) != "B's" || r.Fence != l.Fence {
		t.Errorf("the record is %+v", r)
	}
}

// losing lets a request through and loses its answer.
type losing struct {
	dynamodb.HTTPClient
	mu sync.Mutex
	op string // the next one of these
	n  int    // how many of them were lost
}

func (l *losing) Do(r *http.Request) (*http.Response, error) {
	res, err := l.HTTPClient.Do(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.op != "" && strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+l.op) {
		l.op = ""
		l.n++
		res.Body.Close()
		return nil, errReset
	}
	return res, err
}

// TestLostReplies: each call is applied, its reply lost, and sent again by the store itself. The
// answer is the one that was lost.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	c := openClient(t)
	lossy := &losing{HTTPClient: c.Options().HTTPClient}
	s := newStore(t, dynamodb.New(c.Options(), func(o *dynamodb.Options) { o.HTTPClient = lossy }), newTable(t))
	ledger := newLedger(t, c)
	lose := func(op string) {
		lossy.mu.Lock()
		defer lossy.mu.Unlock()
		lossy.op = op
	}
	lost := 0
	check := func(what string, ok bool, detail ...any) {
		t.Helper()
		lost++
		if !ok || lossy.n != lost {
			t.Errorf("%s: %v; %d answers were lost, want %d", what, detail, lossy.n, lost)
		}
	}

	q := request("k")
	lose("UpdateItem") // the first insertion of a store
	got := claimAll(t, s, q)[0]
	check("the first claim", got.Outcome == dedupe.Won && got.Fresh && got.Lease.Attempt == 1, got)
	lose("UpdateItem")
	err := renewOne(t, s, dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: time.Hour, Started: true, State: []byte("step"), StateNo: 1})
	r := get(t, s, q.Key)
	check("a renewal", err == nil && r.Started && string(r.State) == "step", err, r)
	for _, to := range []dedupe.Status{dedupe.Released, dedupe.Parked, dedupe.Failed} {
		lose("UpdateItem")
		st, err := settle(t, s, dedupe.Settlement{Key: q.Key, Token: q.Token, To: to, ErrClass: "c", ErrText: "t", Uncounted: true})
		check("a settlement to "+to.String(), st == to && err == nil, st, err)
		if r := get(t, s, q.Key); to == dedupe.Released && r.Attempt != 0 {
			t.Errorf("after an uncounted release, sent twice, the attempt is %d", r.Attempt)
		}
		fence := get(t, s, q.Key).Fence
		q.Token = newToken()
		if to != dedupe.Released {
			q.Reopen = fence
		}
		// The insertion is refused; it is the swap whose answer is to be lost.
		rival := before(t, s, 2, func() { lose("PutItem") })
		rival.client = dynamodb.New(rival.client.Options(), func(o *dynamodb.Options) { o.HTTPClient = lossy })
		got := claimAll(t, rival, q)[0]
		check("a claim of what was "+to.String(), got.Outcome == dedupe.Won && got.Lease.Fence > fence && got.Lease.Attempt == 1, got)
	}
	lose("TransactWriteItems")
	err = s.Commit(t.Context(), &job{Of: claimAll(t, s, q)[0].Lease}, "once", line(ledger, "row"))
	check("a Commit", err == nil, err)
	if rows := ledgerRows(t, c, ledger); len(rows) != 1 {
		t.Errorf("the ledger has the rows %q", rows)
	}
	if r := get(t, s, q.Key); r.Status != dedupe.Done || string(r.Result) != `"once"` {
		t.Errorf("the record is %+v", r)
	}
}

// TestChangedMeanwhile: between the reading of a record and the writing of what the table makes of
// it, somebody else changes it. The answer is what is so then.
func TestChangedMeanwhile(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	other := second(t, s)
	rivals := storetest.Rivals(t, other, func(k dedupe.Key) { age(t, other, k, 2*time.Hour) })
	rivals["it is deleted"] = storetest.Rival{Act: func(l dedupe.Lease) { deleteRaw(t, other, l.Key) }, Want: dedupe.Won}
	for name, c := range rivals {
		q := request(name)
		q.Policy = dedupe.Park
		l := claimOne(t, s, q)
		age(t, s, q.Key, time.Hour)
		q.Token = newToken()
		got := claimAll(t, before(t, s, 2, func() { c.Act(l) }), q)[0]
		r := get(t, s, q.Key)
		if got.Outcome != c.Want || (r.Token == q.Token) != (c.Want == dedupe.Won) {
			t.Errorf("%s: answered %v, want %v; the record is %+v", name, got.Outcome, c.Want, r)
		}
		// Of a record that is gone the clock keeps the fence, which may be off by what a Date
		// leaves open.
		low := r.Fence <= l.Fence && name != "it is deleted"
		if c.Want == dedupe.Won && (got.Lease.Fence != r.Fence || low || !got.Created.Equal(r.Created)) {
			t.Errorf("%s: the lease is %+v, the record %+v, the fence was %d", name, got.Lease, r, l.Fence)
		}
	}
}

// TestListChangedMeanwhile: records go away between the scan and their turn. The limit is filled
// from what is left, in order.
func TestListChangedMeanwhile(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	const all, gone, limit = 30, 8, 5
	var leases []dedupe.Lease
	for i := range all {
		leases = append(leases, claimOne(t, s, request(fmt.Sprintf("k%02d", i))))
	}
	var mu sync.Mutex // holds up the other reads until the records are gone
	scanned := false
	lister := hooked(t, s, func(op string) {
		mu.Lock()
		defer mu.Unlock()
		if op == "Scan" {
			scanned = true
			return
		}
		if !scanned {
			return
		}
		scanned = false
		for _, l := range leases[:gone] {
			errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence, Force: true}})
			if err != nil || errs[0] != nil {
				t.Error(errs, err)
			}
		}
	})
	lister.keySeen.Store(true)
	lister.clock.assume()
	var got []string
	for r, err := range lister.List(t.Context(), dedupe.Query{Limit: limit}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Key.Key)
	}
	if fmt.Sprint(got) != "[k08 k09 k10 k11 k12]" {
		t.Errorf("List gave %q", got)
	}
}

// TestBusy: a record that is changed by others in every round is busy, and not lost.
func TestBusy(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	other := second(t, s)
	l := claimOne(t, s, request("k"))
	settleOne(t, s, l, dedupe.Released)
	bump := func() {
		it := rawItem(t, other, l.Key)
		d := decoder{it: it}
		it[attrVersion] = number(d.count(attrVersion) + 1)
		putRaw(t, other, it)
	}
	c, err := beforeEach(t, s, bump).Claim(t.Context(), []dedupe.ClaimRequest{request("k")})
	if err != nil || !errors.Is(c[0].Err, dedupe.ErrBusy) {
		t.Errorf("Claim: %+v, %v; want ErrBusy", c, err)
	}
	errs, err := beforeEach(t, s, bump).Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence}})
	if err != nil || !errors.Is(errs[0], dedupe.ErrBusy) {
		t.Errorf("Forget: %v, %v; want ErrBusy", errs, err)
	}
	if r := get(t, s, l.Key); r.Fence != l.Fence || r.Status != dedupe.Released {
		t.Errorf("the record is %+v", r)
	}
}

// TestFences: the fence rises over everything that removes a record, and a dead letter of before
// matches nothing after.
func TestFences(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	claimOne(t, s, request("whose answer tells the time")) // a guess may be ahead of what follows
	k := request("k").Key
	last := uint64(0)
	for round, remove := range []func(l dedupe.Lease){
		func(l dedupe.Lease) { // an operator
			if errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: k, Fence: l.Fence, Force: true}}); err != nil || errs[0] != nil {
				t.Error(errs, err)
			}
		},
		func(l dedupe.Lease) { // DynamoDB, after the expiry
			settleOne(t, s, l, dedupe.Failed)
			deleteRaw(t, s, k)
		},
		func(l dedupe.Lease) { // an expiry that DynamoDB has not noticed yet
			settleOne(t, s, l, dedupe.Failed)
			age(t, s, k, 2*dedupe.DefaultRetention)
		},
		func(l dedupe.Lease) { // DynamoDB, the tombstone
			if errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: k, Fence: l.Fence, Force: true}}); err != nil || errs[0] != nil {
				t.Error(errs, err)
			}
			deleteRaw(t, s, k)
		},
		func(dedupe.Lease) {},
	} {
		q := request("k")
		q.Reopen = last
		c := claimAll(t, s, q)[0]
		if c.Outcome != dedupe.Won || !c.Fresh || c.Lease.Fence <= last || c.Lease.Attempt != 1 {
			t.Errorf("round %d: %+v; the fence was %d", round, c, last)
		}
		last = c.Lease.Fence
		remove(c.Lease)
		if r, err := s.Get(t.Context(), []dedupe.Key{k}); round < 4 && (err != nil || r[0] != nil) {
			t.Errorf("round %d: after its removal the record is %+v, %v", round, r[0], err)
		}
		if it := rawItem(t, s, k); round == 0 && (len(it) != 7 || fmt.Sprint(it[s.ttl]) == "") {
			t.Errorf("the tombstone is %v", it)
		}
	}
}
