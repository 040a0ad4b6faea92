//go:build !nosqlite

package places

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
)

// busyTimeout is how long a command waits for the file's lock, which busy workers may hold in turns
// for seconds: a person can wait for that, and a script should not fail of it.
const busyTimeout = 10 * time.Second

func (p *Places) sqlite(ctx context.Context, s settings.StoreURL) (dedupe.Store, error) {
	if _, err := os.Stat(s.Path); err != nil {
		return nil, err // a slip in the name shall not make a file
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(s.Path))
	if err != nil {
		return nil, err
	}
	p.closing(db.Close)
	st, err := sqlitestore.New(db, &sqlitestore.Options{Table: s.Table, BusyTimeout: busyTimeout})
	if err != nil {
		return nil, err
	}
	p.closing(st.Close)
	if _, err := st.Get(ctx, []dedupe.Key{{Scope: "onceq", Key: "is the table there"}}); err != nil {
		if text := err.Error(); strings.Contains(text, "no such table") || strings.Contains(text, "no such column") {
			return nil, fmt.Errorf("%w (%w)", ErrOld, err)
		}
		return nil, err
	}
	return st, nil
}

// sqliteQueue opens a queue. It never makes a file or a table.
func (p *Places) sqliteQueue(ctx context.Context, q settings.QueueURL) (broker.Broker, error) {
	if _, err := os.Stat(q.Path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(q.Path))
	if err != nil {
		return nil, err
	}
	p.closing(db.Close)
	// It is for its writer: its table need not be there.
	st, err := sqlitestore.New(db, &sqlitestore.Options{BusyTimeout: busyTimeout})
	if err != nil {
		return nil, err
	}
	p.closing(st.Close)
	b, err := sqlitebroker.New(st, q.Name, &sqlitebroker.Options{Table: q.Table})
	if err != nil {
		return nil, err
	}
	p.closing(b.Close)
	if _, err := b.Depth(ctx); errors.Is(err, broker.ErrNotFound) {
		return nil, fmt.Errorf("%w (%w)", ErrNoQueueTable, err)
	} else if err != nil {
		return nil, err
	}
	// Migrate would refuse a newer table, but it changes older ones. New has checked the name.
	table, version := cmp.Or(q.Table, "onceq_messages"), 0
	err = db.QueryRowContext(ctx, `SELECT version FROM "`+table+`_version" WHERE id = 1`).Scan(&version)
	if err != nil {
		return nil, fmt.Errorf("table %s has no version: %w", table, err)
	}
	if version > queueVersion {
		return nil, fmt.Errorf("table %s is of version %d, made by a newer sqlitebroker; this onceq knows up to %d: update it", table, version, queueVersion)
	}
	return b, nil
}

// queueVersion is that of the newest table of messages that this command reads.
const queueVersion = 1
