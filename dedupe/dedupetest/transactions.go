package dedupetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

// This file has the cases of a user's transaction that completes a job. Run calls each in a
// subtest; a store with several kinds of transactions calls Run for each kind. A store may call
// owned.Join from a goroutine of its own.

func txCases() []testCase {
	const i5 = "a business transaction commits exactly when its completion commits"
	needs := []need{transacts}
	return []testCase{
		{Name: "i5-commit", Rule: i5 + ": both are there after Commit", Needs: needs, Run: txCommit},
		{Name: "i5-rollback", Rule: i5 + ": neither is there after Rollback, and the claim is as before", Needs: needs, Run: txRollback},
		{Name: "i5-overtaken", Rule: i5 + ": a claim that was overtaken cannot complete", Needs: needs, Run: txOvertaken},
		{Name: "i5-settled", Rule: i5 + ": a claim that was settled cannot complete, so a transaction whose commit was in doubt can be tried again", Needs: needs, Run: txSettled},
		{Name: "i5-no-record", Rule: i5 + ": a claim whose record is gone cannot complete", Needs: needs, Run: txNoRecord},
		{Name: "i5-dead-lease", Rule: "a dead lease that nobody took still completes: the token decides, not the clock", Needs: needs, Run: txDeadLease},
		{Name: "i5-parked", Rule: i5 + ": a parked record accepts its own token's late completion", Needs: needs, Run: txParked},
		{Name: "i5-open-transaction", Rule: i5 + ", whatever others try meanwhile; to them the open one is in progress or busy, never lost", Needs: needs, Run: txOpen},
		{Name: "joined-settlement-races", Rule: "a joined settlement beside the transaction tells what became of it: done and committed, or released and rolled back", Needs: needs, Run: txRace},
		{Name: "completion-joins-first", Rule: "the store calls Owned.Join before it touches the transaction, also when it then fails", Needs: needs, Run: txJoins},
	}
}

// owned is a running job.
type owned struct {
	lease  dedupe.Lease
	joined atomic.Bool
}

var _ dedupe.Owned = (*owned)(nil)

func (o *owned) Lease() dedupe.Lease   { return o.lease }
func (o *owned) Retain() time.Duration { return retain }
func (o *owned) Join()                 { o.joined.Store(true) }

// txResult is the result of each transaction.
const txResult = `{"row":1}`

// job claims k.
func (e *env) job(k dedupe.Key) *owned {
	e.Helper()
	q := e.request(k)
	c := e.claim(q)
	if c.Outcome != dedupe.Won {
		e.Fatalf("a claim of %s was answered %v, want won", brief(e.at(k)), c.Outcome)
	}
	return &owned{lease: c.Lease}
}

// begin begins a transaction that has inserted row.
func (e *env) begin(row string) Tx {
	e.Helper()
	tx := e.subject.Begin(e.TB)
	if tx.Insert == nil || tx.Complete == nil || tx.Commit == nil || tx.Rollback == nil {
		e.Harnessf("Subject.Begin gave a Tx that lacks a function")
	}
	e.OK(tx.Insert(row), "Tx.Insert")
	return tx
}

func (e *env) complete(tx Tx, o *owned) error {
	e.Helper()
	err := tx.Complete(e.Context(), o, []byte(txResult))
	if !o.joined.Load() {
		e.Errorf("the completion, answered %v, has not called Join", err)
	}
	return err
}

// committed tells the model that k was completed under token.
func (e *env) committed(k dedupe.Key, token dedupe.Token) {
	e.Helper()
	a, _ := machine.ApplySettle(e.at(k), &dedupe.Settlement{Key: k, Token: token, To: dedupe.Done, Result: []byte(txResult), Retain: retain}, time.Now())
	if a.Status != dedupe.Done {
		e.Fatalf("the transaction committed although the record was %s", brief(e.at(k)))
	}
	e.stored(k)
}

func (e *env) rows(want ...string) {
	e.Helper()
	got := e.subject.Rows(e.TB)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		e.Fatalf("the user's table holds the rows %q, want %q", got, want)
	}
}

// refused checks that o cannot complete: Complete says so, or else Commit.
func (e *env) refused(tx Tx, o *owned) {
	e.Helper()
	if err := e.complete(tx, o); err != nil {
		if !errors.Is(err, dedupe.ErrLeaseLost) {
			e.Errorf("the completion was answered %v, want ErrLeaseLost", err)
		}
		e.OK(tx.Rollback(), "Rollback")
		return
	}
	// A database that checks at the end may take a repeated commit for the first one, and apply
	// nothing.
	if err := tx.Commit(); err != nil && !errors.Is(err, dedupe.ErrLeaseLost) {
		e.Errorf("the commit was answered %v, want ErrLeaseLost", err)
	}
}

func txCommit(e *env) {
	k := key("k")
	o := e.job(k)
	tx := e.begin("row")
	e.OK(e.complete(tx, o), "Complete")
	e.OK(tx.Commit(), "Commit")
	e.committed(k, o.lease.Token)
	e.rows("row")
	// What the worker does after its handler, whatever the handler returned.
	for _, to := range []dedupe.Status{dedupe.Released, dedupe.Done, dedupe.Failed} {
		if a := e.settle(dedupe.Settlement{Key: k, Token: o.lease.Token, To: to, Joined: true}); a.Status != dedupe.Done || a.Err != nil {
			e.Errorf("a joined settlement to %v was answered %v, %v; want done", to, a.Status, a.Err)
		}
	}
	e.claim(e.request(k))
}

func txRollback(e *env) {
	k := key("k")
	o := e.job(k)
	tx := e.begin("row")
	e.OK(e.complete(tx, o), "Complete")
	e.OK(tx.Rollback(), "Rollback")
	e.stored(k)
	e.rows()
	if a := e.settle(dedupe.Settlement{Key: k, Token: o.lease.Token, To: dedupe.Done, Joined: true}); a.Status != dedupe.Claimed {
		e.Errorf("a joined settlement to done was answered %v, %v; want claimed", a.Status, a.Err)
	}
	e.settle(dedupe.Settlement{Key: k, Token: o.lease.Token, To: dedupe.Released, Joined: true, ErrClass: "tx-not-committed"})
	o = e.job(k)
	tx = e.begin("row 2")
	e.OK(e.complete(tx, o), "Complete")
	e.OK(tx.Commit(), "Commit")
	e.committed(k, o.lease.Token)
	e.rows("row 2")
}

func txOvertaken(e *env) {
	k := key("k")
	old := e.job(k)
	e.age(k, 2*ttl)
	o := e.job(k)
	e.refused(e.begin("stale"), old)
	e.stored(k)
	e.rows()
	tx := e.begin("live")
	e.OK(e.complete(tx, o), "Complete")
	e.OK(tx.Commit(), "Commit")
	e.committed(k, o.lease.Token)
	e.refused(e.begin("stale again"), old)
	e.stored(k)
	e.rows("live")
}

func txSettled(e *env) {
	k := key("twice")
	o := e.job(k)
	tx := e.begin("row")
	e.OK(e.complete(tx, o), "Complete")
	e.OK(tx.Commit(), "Commit")
	e.committed(k, o.lease.Token)
	e.refused(e.begin("row again"), o)
	e.stored(k)
	e.rows("row")
	for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released} {
		e.Doing = "it was settled to " + to.String()
		k := key(to.String())
		o := e.job(k)
		e.settle(dedupe.Settlement{Key: k, Token: o.lease.Token, To: to})
		e.refused(e.begin("row of "+to.String()), o)
		e.stored(k)
		e.rows("row")
	}
}

func txNoRecord(e *env) {
	k := key("k")
	o := e.job(k)
	e.forget(dedupe.Forgotten{Key: k, Fence: o.lease.Fence, Force: true})
	e.refused(e.begin("row"), o)
	e.stored(k)
	e.rows()
}

func txDeadLease(e *env) {
	k := key("k")
	o := e.job(k)
	e.age(k, 2*ttl)
	tx := e.begin("row")
	e.OK(e.complete(tx, o), "Complete")
	e.OK(tx.Commit(), "Commit")
	e.committed(k, o.lease.Token)
	e.rows("row")
}

func txParked(e *env) {
	k := key("k")
	o := e.job(k)
	e.renew(dedupe.Renewal{Key: k, Token: o.lease.Token, TTL: ttl, Started: true})
	e.age(k, 2*ttl)
	q := e.request(k)
	q.Policy = dedupe.Park
	if c := e.claim(q); c.Outcome != dedupe.IsParked {
		e.Fatalf("the takeover was answered %v, want parked", c.Outcome)
	}
	tx := e.begin("row")
	e.OK(e.complete(tx, o), "Complete")
	e.OK(tx.Commit(), "Commit")
	e.committed(k, o.lease.Token)
	e.rows("row")
}

func txOpen(e *env) {
	for _, dead := range []bool{false, true} {
		e.Doing = fmt.Sprintf("the lease is dead: %v", dead)
		k := key(fmt.Sprintf("dead-%v", dead))
		o := e.job(k)
		if dead {
			e.age(k, 2*ttl)
		}
		other := e.request(k)
		tx := e.begin(k.Key)
		e.OK(e.complete(tx, o), "Complete")
		cs := e.claimAll([]dedupe.ClaimRequest{other})
		taken := cs[0].Outcome == dedupe.Won
		switch {
		case taken && dead: // a database that gathers a transaction; Commit must fail
		case cs[0].Outcome == dedupe.InProgress, errors.Is(cs[0].Err, dedupe.ErrBusy):
		default:
			e.Fatalf("another's claim was answered %v, %v; want in-progress or ErrBusy", cs[0].Outcome, cs[0].Err)
		}
		if rs := e.renewAll([]dedupe.Renewal{{Key: k, Token: o.lease.Token, TTL: ttl}}); !taken && rs[0].Err != nil && !errors.Is(rs[0].Err, dedupe.ErrBusy) {
			e.Errorf("the owner's renewal was answered %v; want success or ErrBusy", rs[0].Err)
		}
		if r := e.get(k); r == nil || r.Status != dedupe.Claimed {
			e.Errorf("Get shows %s, want the claim as it was before the transaction", brief(r))
		}
		err := tx.Commit()
		if taken {
			if !errors.Is(err, dedupe.ErrLeaseLost) {
				e.Errorf("another has won the key, and Commit was answered %v, want ErrLeaseLost", err)
			}
			continue
		}
		e.OK(err, "Commit")
		r := e.get(k)
		if r == nil || r.Status != dedupe.Done || string(r.Result) != txResult {
			e.Errorf("after Commit the record is %s", brief(r))
		}
		if !slices.Contains(e.subject.Rows(e.TB), k.Key) {
			e.Errorf("after Commit the row is not there")
		}
	}
}

func txRace(e *env) {
	for i, commit := range []bool{true, false, true, false} {
		e.Doing = fmt.Sprintf("round %d, commit: %v", i, commit)
		k := key(fmt.Sprintf("k%d", i))
		o := e.job(k)
		tx := e.begin(k.Key)
		e.OK(e.complete(tx, o), "Complete")
		var a dedupe.Settled
		var wg sync.WaitGroup
		wg.Go(func() {
			s := dedupe.Settlement{Key: k, Token: o.lease.Token, To: dedupe.Released, Joined: true, ErrClass: "tx-not-committed"}
			err := e.untilKnown(1, func() (n int, at func(int) error, err error) {
				as, err := e.s.Settle(e.Context(), []dedupe.Settlement{s})
				if len(as) == 1 {
					a = as[0]
				}
				return len(as), func(i int) error { return as[i].Err }, err
			})
			if err != nil {
				a.Err = err
			}
		})
		var err error
		if commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		wg.Wait()
		if a.Err != nil {
			e.Fatalf("the settlement was answered %v", a.Err)
		}
		row := slices.Contains(e.subject.Rows(e.TB), k.Key)
		want := dedupe.Released
		if row {
			want = dedupe.Done
		}
		if a.Status != want {
			e.Errorf("the settlement was answered %v; the row is there: %v (the transaction's end was answered %v)", a.Status, row, err)
		}
		if r := e.get(k); r == nil || r.Status != want {
			e.Errorf("the record is %s; the row is there: %v", brief(r), row)
		}
	}
}

func txJoins(e *env) {
	k := key("k")
	o := e.job(k)
	tx := e.begin("row")
	ctx := e.Ended()
	if err := tx.Complete(ctx, o, []byte(txResult)); err == nil {
		e.Logf("Complete does no I/O: a context that had ended did not stop it")
	}
	if !o.joined.Load() {
		e.Errorf("the completion has not called Join")
	}
	_ = tx.Rollback() // the driver may have done so
	e.stored(k)
	e.rows()
	stale := &owned{lease: o.lease}
	stale.lease.Token = e.token()
	e.refused(e.begin("stale"), stale) // checks Join, too
	e.stored(k)
	e.rows()
}
