WITH given AS MATERIALIZED (
	SELECT coalesce(g.scope, ($1::pg_catalog.text[])[1]) AS scope, g.key, g.token, coalesce(g.status, ($4::pg_catalog.text[])[1]) AS status, coalesce(g.retain, ($5::bigint[])[1]) AS retain,
		g.result, g.error_class, g.error_text, g.uncounted, g.ord, pg_catalog.clock_timestamp() AS at
	FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.uuid[], $4::pg_catalog.text[], $5::bigint[], $6::pg_catalog.bytea[], $7::pg_catalog.text[], $8::pg_catalog.text[], $9::boolean[])
	WITH ORDINALITY AS g (scope, key, token, status, retain, result, error_class, error_text, uncounted, ord)
), locked AS MATERIALIZED (
	SELECT g.* FROM given g JOIN {table} t ON t.scope {=} g.scope AND t.key {=} g.key
	WHERE t.token {=} g.token AND (t.status {=} 'claimed' OR t.status {=} 'parked' AND g.status {<>} 'parked')
	FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE {table} t SET status = g.status, updated = g.at, lease_until = NULL,
	finished = CASE WHEN g.status {<>} 'released' THEN g.at END,
	expires = CASE WHEN g.status {<>} 'parked' THEN g.at {+} (g.retain::float {*} interval '1 microsecond') END,
	result = CASE WHEN g.status {=} 'done' THEN g.result ELSE t.result END,
	started = t.started AND g.status {<>} 'released',
	attempt = CASE WHEN g.status {=} 'released' AND g.uncounted THEN greatest(0, t.attempt {-} 1) ELSE t.attempt END,
	error_class = CASE WHEN g.status {=} 'done' THEN '' ELSE coalesce(g.error_class, t.error_class) END,
	last_error = CASE WHEN g.status {=} 'done' THEN '' ELSE coalesce(g.error_text, t.last_error) END,
	first_error = CASE WHEN g.status {=} 'done' THEN '' WHEN t.first_error {=} '' THEN coalesce(g.error_text, '') ELSE t.first_error END
FROM locked g WHERE t.scope {=} g.scope AND t.key {=} g.key
RETURNING g.ord
