UPDATE {table} t SET status = 'done', result = $1::pg_catalog.bytea, error_class = '', first_error = '', last_error = '', lease_until = NULL,
	updated = pg_catalog.statement_timestamp(), finished = pg_catalog.statement_timestamp(),
	expires = pg_catalog.statement_timestamp() {+} ($2::bigint::float {*} interval '1 microsecond')
WHERE t.scope {=} pg_catalog.convert_from($3::pg_catalog.bytea, 'UTF8') AND t.key {=} pg_catalog.convert_from($4::pg_catalog.bytea, 'UTF8')
	AND t.token {=} $5::pg_catalog.text::pg_catalog.uuid AND (t.status {=} 'claimed' OR t.status {=} 'parked')
