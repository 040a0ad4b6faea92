CREATE TABLE IF NOT EXISTS onceq_dedupe (
	scope TEXT NOT NULL,
	key TEXT NOT NULL,
	status TEXT NOT NULL,
	fence INTEGER NOT NULL,
	token BLOB NOT NULL,
	attempt INTEGER NOT NULL,
	started INTEGER NOT NULL,
	policy TEXT NOT NULL,
	owner TEXT NOT NULL,
	message_id TEXT NOT NULL,
	lease_until TEXT,
	fingerprint BLOB,
	result BLOB,
	state BLOB,
	error_class TEXT NOT NULL,
	first_error TEXT NOT NULL,
	last_error TEXT NOT NULL,
	created TEXT NOT NULL,
	claimed_at TEXT NOT NULL,
	updated TEXT NOT NULL,
	finished TEXT,
	expires TEXT,
	PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS onceq_dedupe_expires ON onceq_dedupe (expires) WHERE expires IS NOT NULL;
CREATE TABLE IF NOT EXISTS onceq_dedupe_fence (
	id INTEGER PRIMARY KEY CHECK (id = 1),
	fence INTEGER NOT NULL
) STRICT
