package bench

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// byHand is what a careful programmer writes for one program: the same columns, no other outcomes
// than won and done.
type byHand struct{ pool *pgxpool.Pool }

var errNotWon = errors.New("the key was not won, or not completed")

func openHand(tb testing.TB, pool *pgxpool.Pool) byHand {
	tb.Helper()
	_, err := pool.Exec(tb.Context(), `
		CREATE SEQUENCE IF NOT EXISTS hand_fence;
		CREATE TABLE IF NOT EXISTS hand (
			scope text COLLATE "C", key text COLLATE "C", status text NOT NULL, fence bigint NOT NULL, token bytea NOT NULL, attempt int NOT NULL,
			started boolean NOT NULL DEFAULT false, policy text NOT NULL DEFAULT 'rerun', owner text NOT NULL, message_id text NOT NULL,
			lease_until timestamptz, fingerprint bytea, result bytea, state bytea, error_class text NOT NULL DEFAULT '',
			first_error text NOT NULL DEFAULT '', last_error text NOT NULL DEFAULT '',
			created timestamptz NOT NULL, claimed_at timestamptz NOT NULL, updated timestamptz NOT NULL,
			finished timestamptz, expires timestamptz,
			PRIMARY KEY (scope, key));
		CREATE INDEX IF NOT EXISTS hand_expires ON hand (expires) WHERE expires IS NOT NULL`)
	if err != nil {
		tb.Fatal(err)
	}
	return byHand{pool}
}

const (
	claimOne = `INSERT INTO hand AS h (scope, key, status, fence, token, attempt, owner, message_id, lease_until, created, claimed_at, updated)
		VALUES ('bench', $1, 'claimed', nextval('hand_fence'), $2, 1, 'bench', $1, clock_timestamp() + interval '30 s', clock_timestamp(), clock_timestamp(), clock_timestamp())
		ON CONFLICT (scope, key) DO UPDATE SET status = 'claimed', fence = excluded.fence, token = excluded.token, attempt = h.attempt + 1,
			lease_until = clock_timestamp() + interval '30 s', claimed_at = clock_timestamp(), updated = clock_timestamp()
		WHERE h.status = 'released' OR h.status = 'claimed' AND h.lease_until < clock_timestamp()
		RETURNING h.fence`
	completeOne = `UPDATE hand SET status = 'done', lease_until = NULL, updated = clock_timestamp(), finished = clock_timestamp(),
			expires = clock_timestamp() + interval '31 days'
		WHERE scope = 'bench' AND key = $1 AND token = $2 AND status = 'claimed'`
	claimMany = `INSERT INTO hand AS h (scope, key, status, fence, token, attempt, owner, message_id, lease_until, created, claimed_at, updated)
		SELECT 'bench', u.key, 'claimed', nextval('hand_fence'), u.token, 1, 'bench', u.key, clock_timestamp() + interval '30 s', clock_timestamp(), clock_timestamp(), clock_timestamp()
		FROM unnest($1::text[], $2::bytea[]) AS u (key, token)
		ON CONFLICT (scope, key) DO UPDATE SET status = 'claimed', fence = excluded.fence, token = excluded.token, attempt = h.attempt + 1,
			lease_until = clock_timestamp() + interval '30 s', claimed_at = clock_timestamp(), updated = clock_timestamp()
		WHERE h.status = 'released' OR h.status = 'claimed' AND h.lease_until < clock_timestamp()
		RETURNING h.fence`
	completeMany = `UPDATE hand SET status = 'done', lease_until = NULL, updated = clock_timestamp(), finished = clock_timestamp(),
			expires = clock_timestamp() + interval '31 days'
		FROM unnest($1::text[], $2::bytea[]) AS u (key, token)
		WHERE hand.scope = 'bench' AND hand.key = u.key AND hand.token = u.token AND hand.status = 'claimed'`
)

func (h byHand) oneByOne(ctx context.Context, n int) error {
	return share(n, singles, 1, func(int) error {
		key, token := newKey(), newToken()
		var fence int64
		if err := h.pool.QueryRow(ctx, claimOne, key, token[:]).Scan(&fence); err != nil {
			return err
		}
		tag, err := h.pool.Exec(ctx, completeOne, key, token[:])
		if err == nil && tag.RowsAffected() != 1 {
			err = errNotWon
		}
		return err
	})
}

func (h byHand) batches(ctx context.Context, n int) error {
	return share(n, inFlight, perBatch, func(n int) error {
		keys, tokens := make([]string, n), make([][]byte, n)
		for i := range keys {
			t := newToken()
			keys[i], tokens[i] = newKey(), t[:]
		}
		for _, sql := range []string{claimMany, completeMany} {
			tag, err := h.pool.Exec(ctx, sql, keys, tokens)
			if err != nil {
				return err
			}
			if tag.RowsAffected() != int64(n) {
				return errNotWon
			}
		}
		return nil
	})
}
