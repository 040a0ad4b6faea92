package pgstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// odd are texts that an array, a literal or a quoted name could trip over.
var odd = []string{
	`"`, `\`, `'`, `{`, `}`, `,`, `{}`, `NULL`, `null`, `\N`, `\x00`, `a"b\c'd{e,f}g`, ` `, "\t\n\r", "é🚀", `\\x`, `$1`, `''; DROP TABLE x; --`,
}

// TestExecModes: every way in which pgx sends a statement, as a pooler between may require.
func TestExecModes(t *testing.T) {
	pool := openPool(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			moded := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			s := newStore(t, moded, newTable())
			all := make([]byte, 256)
			for i := range all {
				all[i] = byte(i)
			}
			var qs []dedupe.ClaimRequest
			for i, text := range odd {
				qs = append(qs, dedupe.ClaimRequest{
					Key: dedupe.Key{Scope: text, Key: text}, Token: newToken(), TTL: time.Minute, Owner: text, MessageID: text,
					Fingerprint: [][]byte{nil, {}, all}[i%3], Policy: dedupe.Policy(i % 2),
				})
			}
			slices.SortFunc(qs, func(a, b dedupe.ClaimRequest) int { return strings.Compare(a.Key.Scope, b.Key.Scope) })
			fences := make(map[dedupe.Key]uint64)
			for i, c := range claimAll(t, s, qs...) {
				if c.Outcome != dedupe.Won || !c.Fresh || c.Lease.Key != qs[i].Key {
					t.Errorf("claim of %q: %+v", qs[i].Key, c)
				}
				fences[qs[i].Key] = c.Lease.Fence
			}
			var ns []dedupe.Renewal
			var ss []dedupe.Settlement
			for i, q := range qs {
				ns = append(ns, dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: time.Hour, Started: i%2 == 0, State: [][]byte{nil, {}, all}[i%3], StateNo: 1})
				ss = append(ss, dedupe.Settlement{
					Key: q.Key, Token: q.Token, To: []dedupe.Status{dedupe.Released, dedupe.Done, dedupe.Failed}[i%3], Result: [][]byte{nil, {}, all}[i/2%3],
					ErrClass: q.Key.Key, ErrText: q.Key.Key, Uncounted: i%2 == 0,
				})
			}
			rs, err := s.Renew(t.Context(), ns)
			if err != nil {
				t.Fatal(err)
			}
			for i := range rs {
				if rs[i].Err != nil {
					t.Errorf("renewal of %q: %v", ns[i].Key, rs[i].Err)
				}
			}
			as, err := s.Settle(t.Context(), ss)
			if err != nil {
				t.Fatal(err)
			}
			for i, q := range qs {
				r := get(t, s, q.Key)
				want := dedupe.Record{Key: q.Key, Owner: q.Owner, MessageID: q.MessageID, Fingerprint: q.Fingerprint, State: ns[i].State, Policy: q.Policy, Status: ss[i].To}
				if ss[i].To == dedupe.Done {
					want.Result, want.MessageID, want.State = ss[i].Result, "", nil
				} else {
					want.ErrClass, want.FirstErr, want.LastErr = q.Key.Key, q.Key.Key, q.Key.Key
				}
				got := dedupe.Record{Key: r.Key, Owner: r.Owner, MessageID: r.MessageID, Fingerprint: r.Fingerprint, State: r.State, Policy: r.Policy, Status: as[i].Status, Result: r.Result, ErrClass: r.ErrClass, FirstErr: r.FirstErr, LastErr: r.LastErr}
				if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
					t.Errorf("stored %#v\nwant   %#v", got, want)
				}
			}
			for i := range qs {
				age(t, pool, s, qs[i].Key, time.Hour)
				qs[i].Token = newToken()
				qs[i].Reopen = fences[qs[i].Key]
			}
			for i, c := range claimAll(t, s, qs...) {
				want := dedupe.Won
				if ss[i].To == dedupe.Done {
					want = dedupe.AlreadyDone
				}
				if c.Outcome != want || want == dedupe.Won && c.Lease.Fence <= fences[qs[i].Key] {
					t.Errorf("a second claim of %q: %+v, want %v", qs[i].Key, c, want)
				}
			}
			for i, q := range qs { // what is parked keeps the late error of its own claim
				if ss[i].To == dedupe.Done {
					continue
				}
				for _, to := range []dedupe.Status{dedupe.Parked, dedupe.Released} {
					as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: q.Key, Token: q.Token, To: to, ErrClass: "late", ErrText: q.Key.Key}})
					if err != nil || as[0].Err != nil || as[0].Status != dedupe.Parked {
						t.Errorf("%q settled to %v, once it was claimed again: %+v, %v", q.Key, to, as, err)
					}
				}
			}
			for _, prefix := range []string{"", `\`, "'", "\xc3", "\xf0\x9f", "🚀", "é\xf0", "\x00"} {
				want := 0
				for _, text := range odd {
					if strings.HasPrefix(text, prefix) {
						want++
					}
				}
				n := 0
				for r, err := range s.List(t.Context(), dedupe.Query{Prefix: prefix, Before: time.Now().Add(time.Hour)}) {
					if err != nil || !strings.HasPrefix(r.Key.Key, prefix) {
						t.Fatalf("prefix %q: %v, %v", prefix, r, err)
					}
					n++
				}
				if n != want {
					t.Errorf("prefix %q: %d records, want %d", prefix, n, want)
				}
			}
			for n, err := range s.List(t.Context(), dedupe.Query{Scope: "\xff"}) {
				t.Errorf("a scope that is no text: %v, %v", n, err)
			}
			l := claimOne(t, s, request("tx"))
			if err := completing(t, s, moded, l).Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			l = claimOne(t, s, request("joined"))
			as, err = s.Settle(t.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Failed, Joined: true}})
			if err != nil || as[0].Status != dedupe.Failed {
				t.Error(as, err)
			}
			if errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence}}); err != nil || errs[0] != nil {
				t.Error(errs, err)
			}
			if n, err := s.Sweep(t.Context(), 5); n != 0 || err != nil {
				t.Error(n, err)
			}
		})
	}
}

// TestDefaultIsolation: a role whose transactions are REPEATABLE READ or SERIALIZABLE by default,
// as some databases are set up, gets the same answers: the store names its own level.
func TestDefaultIsolation(t *testing.T) {
	pool := openPool(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		strict := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level })
		s := newStore(t, strict, newTable())
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := make(map[string]int)
		for range 8 {
			wg.Go(func() {
				for i := range 25 {
					q := request(fmt.Sprint(i))
					cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q})
					if err != nil || cs[0].Err != nil {
						t.Errorf("%s: claim: %v, %v", level, cs, err)
						return
					}
					if cs[0].Outcome != dedupe.Won {
						continue
					}
					mu.Lock()
					won[q.Key.Key]++
					mu.Unlock()
					as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: q.Key, Token: q.Token, To: dedupe.Done}})
					if err != nil || as[0].Status != dedupe.Done {
						t.Errorf("%s: settlement: %+v, %v", level, as, err)
					}
				}
			})
		}
		wg.Wait()
		for i := range 25 {
			if won[fmt.Sprint(i)] != 1 {
				t.Errorf("%s: key %d was won %d times", level, i, won[fmt.Sprint(i)])
			}
		}
		// A joined settlement sees what was committed while it waited.
		l := claimOne(t, s, request("joined"))
		tx := completing(t, s, pool, l)
		var as []dedupe.Settled
		var err error
		wg.Go(func() {
			as, err = s.Settle(t.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Released, Joined: true}})
		})
		until(t, "the wait for the row", func() bool { return waiting(t, pool) == 1 })
		tx.Commit(t.Context())
		wg.Wait()
		if err != nil || as[0].Status != dedupe.Done {
			t.Errorf("%s: a joined settlement: %+v, %v; want done", level, as, err)
		}
	}
}

// TestTextsThatPostgresRefuses: NUL and invalid UTF-8 in what is for people fail nothing.
func TestTextsThatPostgresRefuses(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, newTable())
	const bad, good = "a\x00b\xffc", "a\ufffdb\ufffdc"
	q := request("k")
	q.Owner, q.MessageID = bad, bad
	claimOne(t, s, q)
	as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: q.Key, Token: q.Token, To: dedupe.Released, ErrClass: bad, ErrText: bad}})
	if err != nil || as[0].Err != nil {
		t.Fatal(as, err)
	}
	q.Token = newToken()
	if c := claimAll(t, s, q)[0]; c.Outcome != dedupe.Won || c.FirstErr != good {
		t.Errorf("claimed again: %+v", c)
	}
	if r := get(t, s, q.Key); r.Owner != good || r.MessageID != good || r.ErrClass != good || r.FirstErr != good || r.LastErr != good {
		t.Errorf("stored %+v", r)
	}
}

// TestBadRowsFailAlone: a row that was changed by hand into what nobody understands is its own
// entry's error.
func TestBadRowsFailAlone(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, newTable())
	for name, damage := range map[string]string{
		"unknown status":   "ALTER TABLE {t} DROP CONSTRAINT IF EXISTS {t}_status_check; UPDATE {t} SET status = 'sleeping' WHERE key LIKE 'bad%'",
		"unknown policy":   "ALTER TABLE {t} DROP CONSTRAINT IF EXISTS {t}_policy_check; UPDATE {t} SET policy = 'shrug' WHERE key LIKE 'bad%'",
		"fence is 0":       "UPDATE {t} SET fence = 0 WHERE key LIKE 'bad%'",
		"time is infinite": "UPDATE {t} SET lease_until = 'infinity' WHERE key LIKE 'bad%'",
	} {
		exec(t, pool, "TRUNCATE "+s.sql().table)
		bad, good := claimOne(t, s, request("bad "+name)), claimOne(t, s, request("good "+name))
		exec(t, pool, strings.ReplaceAll(damage, "{t}", s.sql().name))
		cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{{Key: bad.Key, Token: newToken(), TTL: 1}, {Key: good.Key, Token: newToken(), TTL: 1}})
		if err != nil || cs[0].Err == nil || !strings.Contains(cs[0].Err.Error(), name) || !strings.Contains(cs[0].Err.Error(), bad.Key.Key) || cs[1].Outcome != dedupe.InProgress {
			t.Errorf("%s: Claim: %+v, %v", name, cs, err)
		}
		errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: bad.Key, Fence: bad.Fence, Force: true}, {Key: good.Key, Fence: good.Fence, Force: true}})
		if err != nil || errs[0] == nil || errs[1] != nil {
			t.Errorf("%s: Forget: %v, %v", name, errs, err)
		}
		if _, err := s.Get(t.Context(), []dedupe.Key{bad.Key}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: Get: %v", name, err)
		}
		for _, err := range s.List(t.Context(), dedupe.Query{}) {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: List: %v", name, err)
			}
		}
		if name != "unknown status" {
			continue
		}
		as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: bad.Key, Token: bad.Token, To: dedupe.Done}})
		if err != nil || as[0].Err == nil || errors.Is(as[0].Err, dedupe.ErrLeaseLost) {
			t.Errorf("%s: Settle: %+v, %v", name, as, err)
		}
		rs, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: bad.Key, Token: bad.Token, TTL: 1}})
		if err != nil || rs[0].Err == nil || errors.Is(rs[0].Err, dedupe.ErrLeaseLost) {
			t.Errorf("%s: Renew: %+v, %v", name, rs, err)
		}
	}
}

// TestLargeBatches: results and states of many megabytes in one call go out in several statements.
func TestLargeBatches(t *testing.T) {
	pool := openPool(t)
	counting := &counted{DB: pool}
	s := newStore(t, counting, newTable())
	const n = 10
	blob := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, maxResult) }
	var qs []dedupe.ClaimRequest
	var ns []dedupe.Renewal
	var ss []dedupe.Settlement
	var ks []dedupe.Key
	for i := range n {
		q := request(fmt.Sprintf("%03d", i))
		qs, ks = append(qs, q), append(ks, q.Key)
		ns = append(ns, dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: time.Hour, State: blob(i), StateNo: 1})
		ss = append(ss, dedupe.Settlement{Key: q.Key, Token: q.Token, To: dedupe.Done, Result: blob(n - i)})
	}
	claimAll(t, s, qs...)
	counting.trips.Store(0)
	rs, err := s.Renew(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rs {
		if rs[i].Err != nil {
			t.Error(rs[i].Err)
		}
	}
	if trips := counting.trips.Load(); trips != 2 {
		t.Errorf("%d statements for %d MB, want 2", trips, n)
	}
	got, err := s.Get(t.Context(), ks)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range got {
		if !bytes.Equal(r.State, blob(i)) {
			t.Errorf("record %d holds another state", i)
		}
	}
	as, err := s.Settle(t.Context(), ss)
	if err != nil {
		t.Fatal(err)
	}
	for i := range as {
		if as[i].Status != dedupe.Done {
			t.Error(as[i])
		}
	}
	got, err = s.Get(t.Context(), ks)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range got {
		if r.State != nil || !bytes.Equal(r.Result, blob(n-i)) {
			t.Errorf("record %d holds other bytes", i)
		}
	}
	if _, err := s.Claim(t.Context(), make([]dedupe.ClaimRequest, maxBatch+1)); !errors.Is(err, dedupe.ErrBadRequest) {
		t.Errorf("a batch above the limit: %v", err)
	}
}

// TestNeverReadsTheTableWhole: a new table has no statistics, and a prepared statement would keep
// the plan that was good for its first rows.
func TestNeverReadsTheTableWhole(t *testing.T) {
	pool := openPool(t)
	table := newTable()
	s := newStore(t, pool, table)
	exec(t, pool, "ALTER TABLE "+table+" SET (autovacuum_enabled = false)")
	scans := func() int64 {
		t.Helper()
		fresh := poolOn(t, pool.Config().ConnString())
		return pgtest.Scan[int64](t, fresh, "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = $1", table)
	}
	pool.Reset() // what a connection has counted is known when it has ended
	before := int64(-1)
	until(t, "an idle server", func() bool { now := scans(); same := now == before; before = now; return same })
	for round := range 20 {
		var qs []dedupe.ClaimRequest
		var ss []dedupe.Settlement
		for i := range 100 {
			qs = append(qs, request(fmt.Sprintf("%d-%03d", round%10, i)))
			ss = append(ss, dedupe.Settlement{Key: qs[i].Key, Token: qs[i].Token, To: dedupe.Released})
		}
		claimAll(t, s, qs...)
		if _, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: qs[0].Key, Token: qs[0].Token, TTL: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Settle(t.Context(), ss); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), []dedupe.Key{qs[0].Key}); err != nil {
			t.Fatal(err)
		}
	}
	pool.Close()
	if n := scans() - before; n != 0 {
		t.Errorf("the table was read whole %d times", n)
	}
}

// TestRowsForPeople: what an operator sees in psql.
func TestRowsForPeople(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, "")
	q := request("order-1")
	q.Policy = dedupe.Park
	l := claimOne(t, s, q)
	row := `SELECT concat_ws(' ', scope, key, status, attempt, policy, owner, message_id, last_error, lease_until > now(), replace(token::text, '-', '')) FROM onceq_dedupe`
	if got, want := pgtest.Scan[string](t, pool, row), "orders order-1 claimed 1 park worker-1 m-order-1  t "+l.Token.Hex(); got != want {
		t.Errorf("a claimed row reads %q, want %q", got, want)
	}
	as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Failed, ErrClass: "permanent", ErrText: "card declined"}})
	if err != nil || as[0].Err != nil {
		t.Fatal(as, err)
	}
	row = `SELECT concat_ws(' ', status, error_class, first_error, last_error, lease_until IS NULL, expires - finished) FROM onceq_dedupe`
	if got, want := pgtest.Scan[string](t, pool, row), "failed permanent card declined card declined t 31 days"; got != want {
		t.Errorf("a failed row reads %q, want %q", got, want)
	}
}
