WITH given AS MATERIALIZED (
	SELECT coalesce(g.scope, ($1::pg_catalog.text[])[1]) AS scope, g.key, g.token, coalesce(g.ttl, ($4::bigint[])[1]) AS ttl, g.started, g.state, g.ord, pg_catalog.clock_timestamp() AS at
	FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.uuid[], $4::bigint[], $5::boolean[], $6::pg_catalog.bytea[])
	WITH ORDINALITY AS g (scope, key, token, ttl, started, state, ord)
), locked AS MATERIALIZED (
	SELECT g.* FROM given g JOIN {table} t ON t.scope {=} g.scope AND t.key {=} g.key
	WHERE t.token {=} g.token AND t.status {=} 'claimed'
	FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE {table} t SET lease_until = greatest(t.lease_until, g.at {+} (g.ttl::float {*} interval '1 microsecond')), updated = g.at,
	started = t.started OR g.started IS TRUE,
	state = CASE WHEN g.state IS NULL THEN t.state
		WHEN pg_catalog.substr(g.state, 1, 8) {>} coalesce(pg_catalog.substr(t.state, 1, 8), ''::pg_catalog.bytea) THEN g.state ELSE t.state END
FROM locked g WHERE t.scope {=} g.scope AND t.key {=} g.key
RETURNING g.ord
