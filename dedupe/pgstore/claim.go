package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/records"
)

// This file owns the claim: the insertion of new records, the compare-and-swap of those that were
// read, and the rounds in which both are tried. Workers call Claim from many goroutines. What a
// call keeps on its way is its own. Rows are locked by the database alone.

// insertFresh wins the keys that have no record, and reads the records of the others. Each key is
// looked up once. The insertion is made of what was not found, because ON CONFLICT alone would wait
// for a row that an open transaction has updated, such as a job that is just being completed. It
// still waits for another claim of the same key that is being committed, as long as waits allow.
// Then it leaves the row to that claim. Such a key is not among the answers: it has come since the
// look.
var insertFresh = `WITH looked AS MATERIALIZED (
	SELECT g.*, t.key AS found, {columns}
	FROM (SELECT ` + inScope + ` AS new_scope, g.key AS new_key, g.new_token, coalesce(g.ttl, ($4::bigint[])[1]) AS ttl, g.park, coalesce(g.new_owner, ($6::pg_catalog.text[])[1]) AS new_owner,
			g.new_message, g.new_print, g.new_sent, g.ord, pg_catalog.clock_timestamp() AS at
		FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.uuid[], $4::bigint[], $5::boolean[], $6::pg_catalog.text[], $7::pg_catalog.text[], $8::pg_catalog.bytea[], $9::bigint[])
		WITH ORDINALITY AS g (scope, key, new_token, ttl, park, new_owner, new_message, new_print, new_sent, ord)) g
	LEFT JOIN LATERAL (SELECT t.* FROM {table} t WHERE t.scope {=} g.new_scope AND t.key {=} g.new_key OFFSET 0) t ON true
), fresh AS (
	INSERT INTO {table} AS t (scope, key, status, fence, token, attempt, started, policy, owner, message_id,
		lease_until, fingerprint, error_class, first_error, last_error, created, claimed_at, updated, sent)
	SELECT l.new_scope, l.new_key, 'claimed', pg_catalog.nextval('{fence}'::pg_catalog.regclass), l.new_token, 1, false, CASE WHEN l.park THEN 'park' ELSE 'rerun' END, l.new_owner, l.new_message,
		l.at {+} (l.ttl::float {*} interval '1 microsecond'), l.new_print, '', '', '', l.at, l.at, l.at,
		` + sinceEpoch("l.new_sent") + `
	FROM looked l WHERE l.found IS NULL
	ORDER BY l.ord
	ON CONFLICT (scope, key) DO NOTHING
	RETURNING t.scope, t.key, t.fence, t.created
)
SELECT NULL, f.created, f.scope, f.key, NULL, f.fence` + strings.Repeat(", NULL", strings.Count(columns, ",")-1) + ` FROM fresh f
UNION ALL
SELECT l.ord, l.at, NULL, NULL, ` + strings.ReplaceAll(columns, "t.", "l.") + ` FROM looked l WHERE l.found IS NOT NULL`

// sinceEpoch is a time that is given in microseconds.
func sinceEpoch(column string) string {
	return `'epoch'::pg_catalog.timestamptz {+} (` + column + `::float {*} interval '1 microsecond')`
}

// readGiven reads the records under keys. Those that the transaction itself has just written are
// left out.
const readGiven = `SELECT g.ord, pg_catalog.clock_timestamp(), {columns}
FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) WITH ORDINALITY AS g (scope, key, ord)
CROSS JOIN LATERAL (SELECT t.* FROM {table} t WHERE t.scope {=} ` + inScope + ` AND t.key {=} g.key AND ` + notOurs + ` OFFSET 0) t`

// notOurs leaves out the rows that the transaction itself has written; no row has the transaction
// 0.
const notOurs = `t.xmin {<>} coalesce(pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.xid, '0'::pg_catalog.xid)`

// changeRead writes records that were read before, if they are still the same and nobody holds
// their rows. A time is given in microseconds from now: NULL leaves it, and a number below 0 clears
// it.
var changeRead = `WITH given AS MATERIALIZED (
	SELECT u.*, pg_catalog.clock_timestamp() AS at
	FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::bigint[], $4::pg_catalog.uuid[], $5::pg_catalog.text[], $6::pg_catalog.timestamptz[], $7::pg_catalog.timestamptz[],
		$8::pg_catalog.text[], $9::boolean[], $10::pg_catalog.uuid[], $11::integer[], $12::boolean[], $13::boolean[], $14::pg_catalog.text[], $15::pg_catalog.text[], $16::pg_catalog.bytea[],
		$17::boolean[], $18::pg_catalog.text[], $19::pg_catalog.text[], $20::pg_catalog.text[],
		$21::bigint[], $22::bigint[], $23::bigint[], $24::bigint[], $25::bigint[], $26::pg_catalog.bytea[], $27::bigint[])
	WITH ORDINALITY AS u (scope, key, was_fence, was_token, was_status, was_updated, was_lease,
		status, rises, token, attempt, started, park, owner, message_id, fingerprint,
		anew, error_class, first_error, last_error,
		lease_until, created, claimed_at, finished, expires, past, sent, ord)
), locked AS MATERIALIZED (
	SELECT g.*, t.place, t.part FROM given g CROSS JOIN LATERAL (
		SELECT ` + placed + ` FROM {table} t WHERE t.scope {=} g.scope AND t.key {=} g.key
			AND t.fence {=} g.was_fence AND t.token {=} g.was_token AND t.status {=} g.was_status
			AND t.updated {=} g.was_updated AND (t.lease_until {=} g.was_lease OR t.lease_until IS NULL AND g.was_lease IS NULL)
		FOR NO KEY UPDATE SKIP LOCKED) t
)
UPDATE {table} t SET status = g.status, token = g.token, attempt = g.attempt, started = g.started IS TRUE,
	fence = CASE WHEN g.rises THEN greatest(pg_catalog.nextval('{fence}'::pg_catalog.regclass), t.fence {+} 1::bigint) ELSE t.fence END,
	policy = CASE WHEN g.park THEN 'park' ELSE 'rerun' END, owner = g.owner, message_id = g.message_id, fingerprint = g.fingerprint,
	result = CASE WHEN g.anew THEN NULL ELSE t.result END, state = CASE WHEN g.anew THEN NULL ELSE t.state END,
	error_class = g.error_class, first_error = g.first_error, last_error = g.last_error,
	past = g.past, sent = ` + sinceEpoch("g.sent") + `, updated = g.at, ` +
	fromNow("lease_until") + `, ` + fromNow("created") + `, ` + fromNow("claimed_at") + `, ` + fromNow("finished") + `, ` + fromNow("expires") + `
FROM locked g WHERE ` + atPlace + `
RETURNING g.ord, t.fence, g.at`

func fromNow(column string) string {
	return fmt.Sprintf(`%[1]s = CASE WHEN g.%[1]s IS NULL THEN t.%[1]s WHEN g.%[1]s {>=} 0::bigint THEN g.at {+} (g.%[1]s::float {*} interval '1 microsecond') END`, column)
}

// pauses are those before each round of a claim. The first round looks, the second writes. The
// others are for a record that somebody else was writing, because most such transactions end at
// once and then the answer is clear. The caller's own earlier try, whose reply was lost, may be
// one.
var pauses = [...]time.Duration{0, 0, 2 * time.Millisecond, 10 * time.Millisecond}

// claim is an entry of a claim on its way.
type claim struct {
	req    *dedupe.ClaimRequest
	answer *dedupe.Claim // the call's
	// absent: there was no record, so the next round inserts one.
	absent bool
	// won, seen: what the round has done with it.
	won, seen bool
	// What was read, when, and what the table makes of it, to be written in the next round; nil
	// where nothing is.
	before, after *dedupe.Record
	now           time.Time
}

// claims keeps what a call needs on its way.
type claims struct {
	all     []claim
	pending []*claim
}

var claimsMade = sync.Pool{New: func() any { return new(claims) }}

// begin makes a claim of each of the requests at.
func (c *claims) begin(at []int, rs []dedupe.ClaimRequest, cs []dedupe.Claim) []*claim {
	c.all, c.pending = slices.Grow(c.all[:0], len(at)), c.pending[:0]
	for n, i := range at {
		c.all = append(c.all, claim{req: &rs[i], answer: &cs[i], absent: true})
		c.pending = append(c.pending, &c.all[n])
	}
	return c.pending
}

// end lets go of what was claimed.
func (c *claims) end() {
	clear(c.all)
	clear(c.pending[:cap(c.pending)])
	claimsMade.Put(c)
}

// Claim tries to win each key. Keys without a record, and records that stay as they are, are
// answered in one round trip. Records that the claim changes take another. So do keys that another
// claim is inserting at that moment.
func (s *Store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	if err := s.ready(ctx, len(rs)); err != nil {
		return nil, err
	}
	w := s.insertWaits(ctx)
	made := claimsMade.Get().(*claims)
	defer made.end()
	divide := func(valid []int) [][]int {
		return arrange(valid, func(i int) *dedupe.Key { return &rs[i].Key }, func(i int) int { return len(rs[i].Fingerprint) })
	}
	return calls.Claims.Parts(rs, divide, func(part []int, cs []dedupe.Claim) error {
		return s.claim(ctx, w, made.begin(part, rs, cs))
	})
}

// waits bound how long insertions of one call wait for rivals that are being committed. Usually
// that takes milliseconds. But if the rival's host or network died in the middle of its
// transaction, the server keeps the row until TCP gives the rival up, after hours on its defaults.
// One such key must not hold up, and fail, all that stand in a batch with it.
type waits struct {
	each time.Duration
	left int
	end  time.Time // the call's; zero where it has none
}

const (
	insertWait = 250 * time.Millisecond
	// maxWaits of that length leave a fifth of the call's time for the rest.
	maxWaits = 16
	// narrow is into how many parts a batch is divided that had to wait. So the key that makes it
	// wait is found among 500 in three more waits.
	narrow = 8
)

func (s *Store) insertWaits(ctx context.Context) *waits {
	w := &waits{each: s.insertWait, left: maxWaits}
	if end, ok := ctx.Deadline(); ok {
		w.each, w.end = min(w.each, time.Until(end)/(maxWaits*5/4)), end
	}
	return w
}

// over reports whether the call has waited so much that the rest is answered busy. Otherwise the
// client would give up in the middle, with the connection and the answers of all.
func (w *waits) over() bool {
	return w.left <= 0 || w.left < maxWaits && !w.end.IsZero() && time.Until(w.end) < 2*w.each
}

// limit is a lock_timeout; 0 would be none.
func (w *waits) limit() string { return fmt.Sprintf("%dms", max(1, w.each.Milliseconds())) }

// claim answers claims of different keys.
func (s *Store) claim(ctx context.Context, w *waits, pending []*claim) error {
	for round := 0; len(pending) > 0; round++ {
		if w.over() {
			for _, c := range pending {
				*c.answer = dedupe.Claim{Err: errClaimBusy}
			}
			return nil
		}
		if round == len(pauses) {
			for _, c := range pending {
				*c.answer = c.locked()
			}
			return nil
		}
		if pauses[round] > 0 {
			select {
			case <-time.After(pauses[round]):
			case <-ctx.Done():
			}
		}
		next, err := s.claimRound(ctx, w, pending)
		if pgkit.State(err) == pgkit.LockNotAvailable && ctx.Err() == nil {
			w.left--
			if len(pending) > 1 {
				for part := range slices.Chunk(pending, (len(pending)+narrow-1)/narrow) {
					if err := s.claim(ctx, w, part); err != nil {
						return err
					}
				}
				return nil
			}
		}
		if err = s.explain(ctx, "Claim", err); errors.Is(err, dedupe.ErrBusy) {
			for _, c := range pending {
				*c.answer = dedupe.Claim{Err: err}
			}
			return nil
		}
		if err != nil {
			return err
		}
		pending = next
	}
	return nil
}

// claimRound sends one round trip and answers what that decides. It returns the claims of the next
// round.
func (s *Store) claimRound(ctx context.Context, w *waits, pending []*claim) ([]*claim, error) {
	sent := time.Now()
	fresh, changed := divide(pending)
	p := newHasty(w.limit())
	if len(fresh) > 0 {
		s.insert(p, fresh)
	}
	if len(changed) > 0 {
		s.change(p, changed)
		s.readRows(p, keyed(changed, (*claim).key).args(), func(n int, w *row) { changed[n].read(w) })
	}
	if err := p.Run(ctx, s.db); err != nil {
		return nil, err
	}
	next := pending[:0]
	for _, c := range pending {
		switch {
		case c.won:
			if c.answer.Outcome == dedupe.Won {
				c.answer.Lease.Deadline = sent.Add(c.req.TTL)
			}
		case !c.seen: // inserted by another since the look, or removed
			c.absent = true
			next = append(next, c)
		case c.after == nil: // the answer stands
		default:
			next = append(next, c)
		}
	}
	return next, nil
}

func (c *claim) key() *dedupe.Key { return &c.req.Key }

// divide separates the claims that insert a record from those that change one.
func divide(pending []*claim) (fresh, changed []*claim) {
	for _, c := range pending {
		c.won, c.seen = false, false
		if !c.absent {
			changed = append(changed, c)
		}
	}
	if len(changed) == 0 {
		return pending, nil
	}
	for _, c := range pending {
		if c.absent {
			fresh = append(fresh, c)
		}
	}
	return fresh, changed
}

// insert adds the insertion of fresh claims, and the reading of those that are not fresh any more.
func (s *Store) insert(p *pgkit.Pipeline, fresh []*claim) {
	a := keyed(fresh, (*claim).key)
	column(a, fresh, func(c *claim) dedupe.Token { return c.req.Token }, (*array).token)
	shared(a, fresh, func(c *claim) int64 { return pgkit.Micros(c.req.TTL) }, (*array).int)
	column(a, fresh, func(c *claim) bool { return c.req.Policy == dedupe.Park }, (*array).bool)
	shared(a, fresh, func(c *claim) string { return clean(c.req.Owner) }, (*array).text)
	column(a, fresh, func(c *claim) string { return clean(c.req.MessageID) }, (*array).text)
	column(a, fresh, func(c *claim) []byte { return c.req.Fingerprint }, (*array).blob)
	column(a, fresh, func(c *claim) time.Time { return records.Sent(c.req.Sent) }, (*array).micros)
	var (
		scope, key pgtype.DriverBytes // of the moment only
		fence      int64
		created    time.Time
		w          row
	)
	found := append([]any{&w.ord, &w.now, nil, nil}, w.targets()...)
	inserted := make([]any, len(found)) // nil = not read
	inserted[1], inserted[2], inserted[3], inserted[5] = &created, &scope, &key, &fence
	n := -1
	p.Query(s.sql().insert, a.args(), func(rows pgx.Rows) error {
		if rows.RawValues()[0] != nil {
			if err := rows.Scan(found...); err != nil {
				return err
			}
			w.now = w.now.UTC()
			fresh[w.ord-1].read(&w)
			return nil
		}
		if err := rows.Scan(inserted...); err != nil {
			return err
		}
		for n++; n < len(fresh); n++ { // they come in the order of the arrays
			if c := fresh[n]; c.req.Key.Key == string(key) && c.req.Key.Scope == string(scope) {
				c.won = true
				c.inserted(fence, created.UTC())
				return nil
			}
		}
		return fmt.Errorf("the database inserted scope %q, key %q, which was not asked for", scope, key)
	})
}

// inserted is the answer to a claim that has made the record.
func (c *claim) inserted(fence int64, created time.Time) {
	var r dedupe.Record
	*c.answer, _ = machine.ApplyClaim(&r, c.req, created, func() uint64 { return uint64(fence) })
}

// read asks the table what the record under the key means to the claim.
func (c *claim) read(w *row) {
	c.seen, c.after = true, nil
	r, err := w.record(c.req.Key)
	if err != nil {
		*c.answer = dedupe.Claim{Err: fmt.Errorf("pgstore: Claim: %w", err)}
		return
	}
	after := r
	var changed bool
	*c.answer, changed = machine.ApplyClaim(&after, c.req, w.now, func() uint64 { return r.Fence + 1 })
	if changed {
		c.absent, c.now, c.before, c.after = false, w.now, &r, &after
	}
}

// change adds the writing of what the table made of records that were read.
func (s *Store) change(p *pgkit.Pipeline, changed []*claim) {
	a := newArrays()
	add := func(put func(a *array, b, r *dedupe.Record)) {
		for _, c := range changed {
			put(&a.array, c.before, c.after)
		}
		a.end()
	}
	add(func(a *array, b, _ *dedupe.Record) { a.text(b.Key.Scope) })
	add(func(a *array, b, _ *dedupe.Record) { a.text(b.Key.Key) })
	add(func(a *array, b, _ *dedupe.Record) { a.int(int64(b.Fence)) })
	add(func(a *array, b, _ *dedupe.Record) { a.token(b.Token) })
	add(func(a *array, b, _ *dedupe.Record) { a.text(b.Status.String()) })
	add(func(a *array, b, _ *dedupe.Record) { a.time(b.Updated) })
	add(func(a *array, b, _ *dedupe.Record) { a.time(b.LeaseUntil) })
	add(func(a *array, _, r *dedupe.Record) { a.text(r.Status.String()) })
	add(func(a *array, b, r *dedupe.Record) { a.bool(r.Fence != b.Fence) })
	add(func(a *array, _, r *dedupe.Record) { a.token(r.Token) })
	// No column holds more; by then it is far above every limit on attempts.
	add(func(a *array, _, r *dedupe.Record) { a.int(int64(min(r.Attempt, math.MaxInt32))) })
	add(func(a *array, _, r *dedupe.Record) { a.bool(r.Started) })
	add(func(a *array, _, r *dedupe.Record) { a.bool(r.Policy == dedupe.Park) })
	add(func(a *array, _, r *dedupe.Record) { a.text(clean(r.Owner)) })
	add(func(a *array, _, r *dedupe.Record) { a.text(clean(r.MessageID)) })
	add(func(a *array, _, r *dedupe.Record) { a.blob(r.Fingerprint) })
	// No claim writes a result or a state: it leaves both or, where it begins anew, drops both.
	add(func(a *array, b, r *dedupe.Record) {
		a.bool(r.Result == nil && b.Result != nil || r.State == nil && b.State != nil)
	})
	add(func(a *array, _, r *dedupe.Record) { a.text(r.ErrClass) })
	add(func(a *array, _, r *dedupe.Record) { a.text(r.FirstErr) })
	add(func(a *array, _, r *dedupe.Record) { a.text(r.LastErr) })
	for n := range changed[0].times() {
		for _, c := range changed {
			c.times()[n].shift(&a.array, c.now)
		}
		a.end()
	}
	add(func(a *array, _, r *dedupe.Record) { a.blob(dedupe.EncodePast(r.Past)) })
	add(func(a *array, _, r *dedupe.Record) { a.micros(r.Sent) })
	var (
		ord, fence int64
		now        time.Time
	)
	targets := []any{&ord, &fence, &now}
	p.Query(s.sql().change, a.args(), func(rows pgx.Rows) error {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		changed[ord-1].written(fence, now.UTC())
		return nil
	})
}

// moment is a time of a record before and after a change.
type moment struct{ before, after *time.Time }

// times are those that changeRead takes, in its order.
func (c *claim) times() [5]moment {
	b, a := c.before, c.after
	return [5]moment{
		{&b.LeaseUntil, &a.LeaseUntil},
		{&b.Created, &a.Created},
		{&b.ClaimedAt, &a.ClaimedAt},
		{&b.Finished, &a.Finished},
		{&b.Expires, &a.Expires},
	}
}

// shift adds the time after the change as a distance from now, because the database counts it from
// the moment at which it writes.
func (m moment) shift(a *array, now time.Time) {
	switch {
	case m.after.Equal(*m.before):
		a.null()
	case m.after.IsZero():
		a.int(-1)
	default:
		a.int(pgkit.Micros(m.after.Sub(now)))
	}
}

// written completes the answer with what the database has set.
func (c *claim) written(fence int64, now time.Time) {
	c.won = true
	r := c.after
	for _, m := range c.times() {
		if !m.after.Equal(*m.before) && !m.after.IsZero() {
			*m.after = now.Add(m.after.Sub(c.now))
		}
	}
	r.Fence, r.Updated = uint64(fence), now
	if c.answer.From != "" {
		c.answer.DeadFor += now.Sub(c.now)
	}
	if c.answer.Outcome == dedupe.Won {
		c.answer.Lease.Fence, c.answer.Created = r.Fence, r.Created
	}
	if c.answer.Record != nil {
		c.answer.Record = r.Clone()
	}
}

// locked is the answer if a record was locked or changed in every round. A claimed or parked record
// that stays locked is being completed by somebody's transaction, however long that takes. For all
// others, and for the caller's own claim, repeating is right.
func (c *claim) locked() dedupe.Claim {
	if r := c.before; !c.absent && (r.Status == dedupe.Claimed || r.Status == dedupe.Parked) && r.Token != c.req.Token {
		return dedupe.Claim{Outcome: dedupe.InProgress, Left: max(0, r.LeaseUntil.Sub(c.now)), Age: max(0, c.now.Sub(r.ClaimedAt)), Term: max(0, r.LeaseUntil.Sub(r.Updated))}
	}
	return dedupe.Claim{Err: errClaimBusy}
}

var errClaimBusy = fmt.Errorf("pgstore: Claim: %w", dedupe.ErrBusy)
