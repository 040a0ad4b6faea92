SELECT g.ord, pg_catalog.clock_timestamp(), t.status, t.fence, t.token, t.attempt, t.started, t.policy, t.owner, t.message_id, t.lease_until, t.fingerprint,
	t.result, t.state, t.error_class, t.first_error, t.last_error, t.created, t.claimed_at, t.updated, t.finished, t.expires
FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) WITH ORDINALITY AS g (scope, key, ord)
JOIN {table} t ON t.scope {=} coalesce(g.scope, ($1::pg_catalog.text[])[1]) AND t.key {=} g.key
WHERE t.xmin {<>} coalesce(pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.xid, '0'::pg_catalog.xid)
