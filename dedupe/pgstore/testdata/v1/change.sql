WITH given AS MATERIALIZED (
	SELECT u.*, pg_catalog.clock_timestamp() AS at
	FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::bigint[], $4::pg_catalog.uuid[], $5::pg_catalog.text[], $6::pg_catalog.timestamptz[], $7::pg_catalog.timestamptz[],
		$8::pg_catalog.text[], $9::boolean[], $10::pg_catalog.uuid[], $11::integer[], $12::boolean[], $13::boolean[], $14::pg_catalog.text[], $15::pg_catalog.text[], $16::pg_catalog.bytea[],
		$17::boolean[], $18::pg_catalog.text[], $19::pg_catalog.text[], $20::pg_catalog.text[],
		$21::bigint[], $22::bigint[], $23::bigint[], $24::bigint[], $25::bigint[])
	WITH ORDINALITY AS u (scope, key, was_fence, was_token, was_status, was_updated, was_lease,
		status, rises, token, attempt, started, park, owner, message_id, fingerprint,
		anew, error_class, first_error, last_error,
		lease_until, created, claimed_at, finished, expires, ord)
), locked AS MATERIALIZED (
	SELECT g.* FROM given g JOIN {table} t ON t.scope {=} g.scope AND t.key {=} g.key
	WHERE t.fence {=} g.was_fence AND t.token {=} g.was_token AND t.status {=} g.was_status
		AND t.updated {=} g.was_updated AND (t.lease_until {=} g.was_lease OR t.lease_until IS NULL AND g.was_lease IS NULL)
	FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE {table} t SET status = g.status, token = g.token, attempt = g.attempt, started = g.started IS TRUE,
	fence = CASE WHEN g.rises THEN greatest(pg_catalog.nextval('{fence}'::pg_catalog.regclass), t.fence {+} 1::bigint) ELSE t.fence END,
	policy = CASE WHEN g.park THEN 'park' ELSE 'rerun' END, owner = g.owner, message_id = g.message_id, fingerprint = g.fingerprint,
	result = CASE WHEN g.anew THEN NULL ELSE t.result END, state = CASE WHEN g.anew THEN NULL ELSE t.state END,
	error_class = g.error_class, first_error = g.first_error, last_error = g.last_error,
	updated = g.at, lease_until = CASE WHEN g.lease_until IS NULL THEN t.lease_until WHEN g.lease_until {>=} 0::bigint THEN g.at {+} (g.lease_until::float {*} interval '1 microsecond') END, created = CASE WHEN g.created IS NULL THEN t.created WHEN g.created {>=} 0::bigint THEN g.at {+} (g.created::float {*} interval '1 microsecond') END, claimed_at = CASE WHEN g.claimed_at IS NULL THEN t.claimed_at WHEN g.claimed_at {>=} 0::bigint THEN g.at {+} (g.claimed_at::float {*} interval '1 microsecond') END, finished = CASE WHEN g.finished IS NULL THEN t.finished WHEN g.finished {>=} 0::bigint THEN g.at {+} (g.finished::float {*} interval '1 microsecond') END, expires = CASE WHEN g.expires IS NULL THEN t.expires WHEN g.expires {>=} 0::bigint THEN g.at {+} (g.expires::float {*} interval '1 microsecond') END
FROM locked g WHERE t.scope {=} g.scope AND t.key {=} g.key
RETURNING g.ord, t.fence, g.at
