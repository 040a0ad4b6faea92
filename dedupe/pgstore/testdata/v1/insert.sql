INSERT INTO {table} AS t (scope, key, status, fence, token, attempt, started, policy, owner, message_id,
	lease_until, fingerprint, error_class, first_error, last_error, created, claimed_at, updated)
SELECT g.scope, g.key, 'claimed', pg_catalog.nextval('{fence}'::pg_catalog.regclass), g.token, 1, false, CASE WHEN g.park THEN 'park' ELSE 'rerun' END, g.owner, g.message_id,
	g.at {+} (g.ttl::float {*} interval '1 microsecond'), g.fingerprint, '', '', '', g.at, g.at, g.at
FROM (SELECT coalesce(g.scope, ($1::pg_catalog.text[])[1]) AS scope, g.key, g.token, coalesce(g.ttl, ($4::bigint[])[1]) AS ttl, g.park, coalesce(g.owner, ($6::pg_catalog.text[])[1]) AS owner,
		g.message_id, g.fingerprint, g.ord, pg_catalog.clock_timestamp() AS at
	FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.uuid[], $4::bigint[], $5::boolean[], $6::pg_catalog.text[], $7::pg_catalog.text[], $8::pg_catalog.bytea[])
	WITH ORDINALITY AS g (scope, key, token, ttl, park, owner, message_id, fingerprint, ord)) g
WHERE NOT EXISTS (SELECT FROM {table} h WHERE h.scope {=} g.scope AND h.key {=} g.key)
ORDER BY g.ord
ON CONFLICT (scope, key) DO NOTHING
RETURNING t.scope, t.key, t.fence, t.created
