package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/storetest"
)

// This file has the tests of a rollout: a table of version 1, workers of both versions, and
// starters that are interrupted.

// TestMigrateVersion1: records of every state stay as they were and go on under the new version. No
// row is written anew, and a worker of version 1 may start afterwards.
func TestMigrateVersion1(t *testing.T) {
	pool := openPool(t)
	v1 := newVersion1(t, pool, "records")
	qs := make(map[dedupe.Status]dedupe.ClaimRequest)
	for st := dedupe.Claimed; st <= dedupe.Parked; st++ {
		qs[st] = v1.make(t, st.String(), st)
	}
	dead := v1.make(t, "dead", dedupe.Claimed)
	exec(t, pool, "UPDATE records SET lease_until = clock_timestamp() - interval '1 minute' WHERE key = 'dead'")
	s := must.Get(New(pool, &Options{Table: "records"}))
	_, claim := s.Claim(t.Context(), []dedupe.ClaimRequest{request("k")})
	_, get1 := s.Get(t.Context(), []dedupe.Key{dead.Key})
	for _, err := range []error{claim, get1} {
		if err == nil || !strings.Contains(err.Error(), "older version") || !strings.Contains(err.Error(), "Migrate") {
			t.Errorf("before the migration: %v, want an error that says what to do", err)
		}
	}
	files := pgtest.Scan[int64](t, pool, "SELECT pg_relation_filenode('records')::bigint")
	for range 2 {
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := pgtest.Scan[int64](t, pool, "SELECT pg_relation_filenode('records')::bigint"); n != files {
		t.Error("the migration has written the table anew")
	}
	if !v1.migrates(t) {
		t.Error("version 1 refuses the table when it starts again")
	}
	for st, q := range qs {
		r := get(t, s, q.Key)
		if r.Status != st || r.Token != q.Token || r.Owner != "old" || r.MessageID != q.MessageID || string(r.State) != "step1" || r.Past != nil || !r.Sent.IsZero() {
			t.Errorf("%v: %+v", st, r)
		}
	}
	for st, want := range map[dedupe.Status]dedupe.Outcome{
		dedupe.Claimed: dedupe.InProgress, dedupe.Released: dedupe.Won, dedupe.Done: dedupe.AlreadyDone, dedupe.Failed: dedupe.Won, dedupe.Parked: dedupe.Won,
	} {
		q := request(st.String())
		q.Owner, q.Reopen, q.Sent = "new", get(t, s, q.Key).Fence, time.Now()
		c := claimAll(t, s, q)[0]
		if c.Outcome != want || want == dedupe.Won && c.ErrClass != "timeout" {
			t.Errorf("a claim of what version 1 left %v is answered %+v, want %v", st, c, want)
		}
		if r := get(t, s, q.Key); want == dedupe.Won && (len(r.Past) != 1 || r.Past[0].Owner != "old" || r.Past[0].End != st || r.Sent.IsZero()) {
			t.Errorf("the Past of what version 1 left %v is %+v, sent %v", st, r.Past, r.Sent)
		}
	}
	q := request("dead")
	if c := claimAll(t, s, q)[0]; c.Outcome != dedupe.Won || c.From != "old" || c.DeadFor < time.Minute || c.DeadFor > 2*time.Minute {
		t.Errorf("a takeover from version 1 is answered %+v", c)
	}
	settleOne(t, s, dedupe.Lease{Key: q.Key, Token: q.Token}, dedupe.Done)
	if a, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: qs[dedupe.Claimed].Key, Token: qs[dedupe.Claimed].Token, To: dedupe.Done}}); err != nil || a[0].Status != dedupe.Done {
		t.Errorf("version 1's own claim, settled by the new version: %+v, %v", a, err)
	}
}

// TestVersion1TakesOver: a worker of version 1 leaves the new columns as they are. What it makes
// anew has nothing of the record before.
func TestVersion1TakesOver(t *testing.T) {
	pool := openPool(t)
	v1 := newVersion1(t, pool, "records")
	s := newStore(t, pool, "records")
	l := claimOne(t, s, request("k"))
	settleOne(t, s, l, dedupe.Released)
	l = claimOne(t, s, request("k"))
	settleOne(t, s, l, dedupe.Released)
	if won, err := v1.claim(t, request("k")); !won || err != nil {
		t.Fatal(won, err)
	}
	if r := get(t, s, l.Key); len(r.Past) != 1 || r.Attempt != 3 {
		t.Errorf("after a claim of version 1: attempt %d, Past %+v", r.Attempt, r.Past)
	}
	exec(t, pool, "UPDATE records SET status = 'done', lease_until = NULL, expires = clock_timestamp()")
	q := request("k")
	if won, err := v1.claim(t, q); !won || err != nil {
		t.Fatal(won, err)
	}
	if r := get(t, s, l.Key); r.Past != nil || r.Attempt != 1 {
		t.Errorf("a record that version 1 made anew: attempt %d, Past %+v", r.Attempt, r.Past)
	}
	if err := v1.settle(t, q, dedupe.Released); err != nil {
		t.Fatal(err)
	}
	claimOne(t, s, request("k"))
	if r := get(t, s, l.Key); len(r.Past) != 1 || r.Past[0].Number != 1 {
		t.Errorf("after it: Past %+v", r.Past)
	}
	exec(t, pool, `UPDATE records SET past = '\x07ff'`)
	if r := get(t, s, l.Key); r.Past != nil {
		t.Errorf("a Past that nobody wrote is %+v", r.Past)
	}
}

// TestMigrateAtWork: eight starters migrate while workers of version 1 are at work, and workers of
// the new version join them on the same keys. Every key is done once, and no call fails.
func TestMigrateAtWork(t *testing.T) {
	pool := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 30 })
	v1 := newVersion1(t, pool, "records")
	const keys, workers = 400, 4
	for n := range 2000 { // so that the index has something to read
		if n%500 == 0 {
			exec(t, pool, fmt.Sprintf(`INSERT INTO records (scope, key, status, fence, token, attempt, started, policy, owner, message_id, error_class, first_error, last_error, created, claimed_at, updated, expires)
				SELECT 'old', %d || '-' || g, CASE g %% 50 WHEN 0 THEN 'failed' ELSE 'done' END, 1, gen_random_uuid(), 1, false, 'rerun', '', '', '', '', '', now(), now(), now(), now() + interval '1 day' FROM generate_series(1, 500) g`, n))
		}
	}
	done := make(storetest.Done, keys)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			done.Work(t, request, func(q dedupe.ClaimRequest) (bool, error) { return v1.claim(t, q) },
				func(q dedupe.ClaimRequest, to dedupe.Status) error { return v1.settle(t, q, to) })
		})
	}
	for i := range 8 {
		s := must.Get(New(pool, &Options{Table: "records"}))
		wg.Go(func() {
			if err := s.Migrate(t.Context()); err != nil {
				t.Errorf("starter %d: %v", i, err)
				return
			}
			if i >= workers {
				return
			}
			done.Work(t, request, func(q dedupe.ClaimRequest) (bool, error) {
				cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q})
				if err == nil && errors.Is(cs[0].Err, dedupe.ErrBusy) {
					return false, nil
				}
				return err == nil && cs[0].Outcome == dedupe.Won, errors.Join(err, cs[0].Err)
			}, func(q dedupe.ClaimRequest, to dedupe.Status) error {
				for {
					as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: q.Key, Token: q.Token, To: to, ErrClass: "timeout"}})
					if err != nil || !errors.Is(as[0].Err, dedupe.ErrBusy) {
						return errors.Join(err, as[0].Err)
					}
				}
			})
		})
	}
	wg.Wait()
	s := newStore(t, pool, "records")
	done.WantOnce(t)
	ready := pgtest.Scan[bool](t, pool, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'records_attention'::regclass")
	failed := 0
	for _, err := range s.List(t.Context(), dedupe.Query{Status: dedupe.Failed}) {
		if err != nil {
			t.Fatal(err)
		}
		failed++
	}
	if !ready || failed != 40 {
		t.Errorf("the index is valid: %v; %d failed records, want 40", ready, failed)
	}
}

// TestMigrateBehindATransaction: somebody's transaction holds the table. Workers go on while
// Migrate waits for it, and Migrate ends when it does; or with its context, and says why.
func TestMigrateBehindATransaction(t *testing.T) {
	pool := openPool(t)
	v1 := newVersion1(t, pool, "records")
	q := v1.make(t, "held", dedupe.Claimed)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // after Commit it does nothing
	if _, err := tx.Exec(t.Context(), "UPDATE records SET owner = 'business' WHERE key = 'held'"); err != nil {
		t.Fatal(err)
	}
	s := must.Get(New(pool, &Options{Table: "records"}))
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.Migrate(short); err == nil || !strings.Contains(err.Error(), "records") {
		t.Errorf("Migrate with a context that ends: %v", err)
	}
	migrated := make(chan error, 1)
	go func() { migrated <- s.Migrate(t.Context()) }()
	until(t, "Migrate waiting for the table", func() bool { return noticedWaiting(t, pool) })
	for n := range 5 {
		start := time.Now()
		q := v1.make(t, fmt.Sprint("beside-", n), dedupe.Done)
		if took := time.Since(start); took > 30*time.Second { // who stands behind Migrate stands there for ever
			t.Errorf("a job beside it took %v", took)
		}
		_ = q
	}
	select {
	case err := <-migrated:
		t.Fatalf("Migrate did not wait: %v", err)
	default:
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
	if r := get(t, s, q.Key); r.Owner != "business" {
		t.Errorf("the record is %+v", r)
	}
}

// noticedWaiting reports whether somebody waits for a lock on the whole table.
func noticedWaiting(t *testing.T, pool *pgxpool.Pool) bool {
	t.Helper()
	return pgtest.Scan[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock')")
}

// TestIndexBehindATransaction: the build waits for an older transaction, other starters do not wait
// for the build, and work goes on. What an interrupted build leaves, the next start removes.
func TestIndexBehindATransaction(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "records")
	exec(t, pool, "DROP INDEX records_attention")
	old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Rollback(context.Background()) }()
	if _, err := old.Exec(t.Context(), "SELECT count(*) FROM records"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	built := make(chan error, 1)
	go func() { built <- s.Migrate(ctx) }()
	building := func() bool {
		return pgtest.Scan[int](t, pool, "SELECT count(*) FROM pg_index WHERE indrelid = 'records'::regclass AND NOT indisvalid") == 1
	}
	until(t, "the build", building)
	second := newStore(t, pool, "records") // does not wait
	settleOne(t, second, claimOne(t, second, request("k")), dedupe.Failed)
	cancel()
	if err := <-built; !errors.Is(err, context.Canceled) {
		t.Errorf("the interrupted build: %v", err)
	}
	if err := old.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The server may go on with the build, or notice that its client is gone.
	until(t, "the end of the interrupted build", func() bool {
		return !pgtest.Scan[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'records'::regclass AND mode = 'ShareUpdateExclusiveLock')")
	})
	exec(t, pool, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'records_attention'::regclass")
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !pgtest.Scan[bool](t, pool, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'records_attention'::regclass") {
		t.Error("the index is not valid")
	}
}

// TestMigrateOnOneConnection: a pool of one migrates, too.
func TestMigrateOnOneConnection(t *testing.T) {
	pool := openPool(t)
	newVersion1(t, pool, "records")
	one := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	claimOne(t, newStore(t, one, "records"), request("k"))
	if !pgtest.Scan[bool](t, pool, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'records_attention'::regclass") {
		t.Error("the index is not valid")
	}
}

// TestMigrateWithoutRights: who may not change the table is told who may.
func TestMigrateWithoutRights(t *testing.T) {
	pool := openPool(t)
	newVersion1(t, pool, "records")
	worker := newRole(t, pool, "work_mem = '4MB'")
	role := worker.Config().ConnConfig.User
	exec(t, pool, fmt.Sprintf("ALTER ROLE %[1]s NOSUPERUSER; GRANT USAGE ON SCHEMA public TO %[1]s; GRANT SELECT, INSERT, UPDATE, DELETE ON records TO %[1]s; GRANT USAGE ON SEQUENCE records_fence TO %[1]s", role))
	s := must.Get(New(worker, &Options{Table: "records"}))
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "owner of table records") {
		t.Errorf("Migrate: %v", err)
	}
	newStore(t, pool, "records")
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("after the owner: %v", err)
	}
	claimOne(t, s, request("k"))
}
