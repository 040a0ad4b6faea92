package pgstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// This file plays a worker of version 1, by the statements that version 1 sent (testdata/v1), and
// makes its tables. The tests of the migration and of a rollout call it. Nothing is locked.

type version1 struct {
	pool *pgxpool.Pool
	st   *statements
}

// newVersion1 makes a table as version 1 did.
func newVersion1(t *testing.T, pool *pgxpool.Pool, table string) *version1 {
	t.Helper()
	v := &version1{pool, newStatements("public", table)}
	exec(t, pool, v.sql(t, "create"))
	exec(t, pool, "COMMENT ON TABLE "+table+" IS 'onceq dedupe records, version 1'")
	exec(t, pool, "CREATE INDEX "+table+"_expires ON "+table+" (expires) WHERE expires IS NOT NULL")
	exec(t, pool, "CREATE SEQUENCE "+table+"_fence AS bigint MINVALUE 1 START WITH "+fmt.Sprint(time.Now().Add(2*time.Minute).UnixMicro())+" CACHE 1")
	return v
}

func (v *version1) sql(t testing.TB, name string) string {
	t.Helper()
	b := must.Get(os.ReadFile(filepath.Join("testdata", "v1", name+".sql")))
	return v.st.fill(string(b))
}

// migrates reports whether version 1 takes the table at its start, by its own reading of the
// comment.
func (v *version1) migrates(t *testing.T) bool {
	t.Helper()
	comment := pgtest.Scan[string](t, v.pool, "SELECT obj_description($1::regclass, 'pg_class')", v.st.table)
	number, ok := strings.CutPrefix(comment, "onceq dedupe records, version ")
	version := 0
	_, err := fmt.Sscan(number, &version)
	return ok && err == nil && version == 1
}

// claim is version 1's claim of a key that is absent, released or dead, with all the columns that
// it knew. It answers whether the claim was won.
func (v *version1) claim(t testing.TB, q dedupe.ClaimRequest) (bool, error) {
	ctx := context.Background()
	scope, key, token := []string{q.Key.Scope}, []string{q.Key.Key}, [][16]byte{q.Token}
	owner, message := []string{q.Owner}, []string{q.MessageID}
	tag, err := v.pool.Exec(ctx, v.sql(t, "insert"), scope, key, token, []int64{pgkit.Micros(q.TTL)}, []bool{false}, owner, message, [][]byte{q.Fingerprint})
	if err != nil || tag.RowsAffected() == 1 {
		return err == nil, err
	}
	var (
		fence                   int64
		was                     [16]byte
		status                  string
		attempt                 int
		updated                 time.Time
		lease                   *time.Time
		class, first, last      string
		dead, expired, released bool
	)
	err = v.pool.QueryRow(ctx, v.st.fill(`SELECT fence, token, status, attempt, updated, lease_until, error_class, first_error, last_error,
		status = 'claimed' AND lease_until < clock_timestamp(), coalesce(expires <= clock_timestamp(), false), status = 'released'
		FROM {table} WHERE scope = $1 AND key = $2`), q.Key.Scope, q.Key.Key).
		Scan(&fence, &was, &status, &attempt, &updated, &lease, &class, &first, &last, &dead, &expired, &released)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !dead && !expired && !released {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	none, zero, ttl, gone := (*int64)(nil), int64(0), pgkit.Micros(q.TTL), int64(-1)
	created := none
	if expired {
		attempt, class, first, last, created = 0, "", "", "", &zero
	}
	tag, err = v.pool.Exec(ctx, v.sql(t, "change"), scope, key, []int64{fence}, [][16]byte{was}, []string{status}, []time.Time{updated}, []*time.Time{lease},
		[]string{"claimed"}, []bool{true}, token, []int{attempt + 1}, []bool{false}, []bool{false}, owner, message, [][]byte{q.Fingerprint},
		[]bool{expired}, []string{class}, []string{first}, []string{last},
		[]*int64{&ttl}, []*int64{created}, []*int64{&zero}, []*int64{&gone}, []*int64{&gone})
	return err == nil && tag.RowsAffected() == 1, err
}

// settle is version 1's settlement, repeated while somebody holds the row.
func (v *version1) settle(t testing.TB, q dedupe.ClaimRequest, to dedupe.Status) error {
	class, text := (*string)(nil), (*string)(nil)
	if to != dedupe.Done {
		c, e := "timeout", "no answer from the bank"
		class, text = &c, &e
	}
	for {
		tag, err := v.pool.Exec(context.Background(), v.sql(t, "settle"), []string{q.Key.Scope}, []string{q.Key.Key}, [][16]byte{q.Token}, []string{to.String()},
			[]int64{pgkit.Micros(time.Hour)}, [][]byte{[]byte("result")}, []*string{class}, []*string{text}, []bool{false})
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		var token [16]byte
		var status string
		const look = "SELECT token, status FROM {table} WHERE scope = $1 AND key = $2"
		if err := v.pool.QueryRow(context.Background(), v.st.fill(look), q.Key.Scope, q.Key.Key).Scan(&token, &status); err != nil {
			return err
		}
		if token != q.Token || status != "claimed" {
			return fmt.Errorf("version 1's settlement of %v to %v met what is %s, its own: %v", q.Key, to, status, token == q.Token)
		}
	}
}

// make makes one record as version 1 left it.
func (v *version1) make(t *testing.T, key string, to dedupe.Status) dedupe.ClaimRequest {
	t.Helper()
	q := request(key)
	q.Owner, q.Fingerprint = "old", []byte("payload")
	if won, err := v.claim(t, q); !won || err != nil {
		t.Fatal(won, err)
	}
	exec(t, v.pool, v.st.fill("UPDATE {table} SET state = '\\x00000000000000017374657031' WHERE key = $1"), key)
	if to != dedupe.Claimed {
		if err := v.settle(t, q, to); err != nil {
			t.Fatal(err)
		}
	}
	return q
}
