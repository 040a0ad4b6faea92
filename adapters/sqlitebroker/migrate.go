package sqlitebroker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/internal/sqlitewriter"
)

const (
	// version is that of the table that this package makes and reads.
	version = 1
	// migratePatience: a start that finds another starter at work should wait for it.
	migratePatience = 10 * time.Second
)

// Migrate makes what is missing: the table, its indexes and its triggers. Run it at every start.
// Several starters at once take turns; it waits up to 10 s for the file's write lock, then answers
// [broker.ErrThrottled]. It also raises the number that the next message gets to the clock's
// microseconds, so that none is given out twice after the file was restored from a backup, or the
// table was dropped.
//
// Migrate refuses, with the reason:
//
//   - a table of that name that is not a table of messages, or is of a newer version,
//   - a database without a file, such as ":memory:".
func (q *Queue) Migrate(ctx context.Context) error {
	const call = "Migrate"
	if err := q.ready(ctx, call, 1, 1); err != nil {
		return err
	}
	var file string
	err := q.w.Do(ctx, &sqlitewriter.Call{Wait: migratePatience, Grace: grace, Entries: 1, Apply: func(t *sqlitewriter.Txn) (err error) {
		if file, err = t.File(); err == nil {
			err = q.sql.migrate(t)
		}
		return err
	}})
	if err != nil {
		return q.explain(call, err)
	}
	q.file.Store(&file)
	return nil
}

func (st *statements) migrate(t *sqlitewriter.Txn) error {
	if err := st.checkTable(t); err != nil {
		return err
	}
	for _, s := range st.schema {
		if _, err := t.Exec(s); err != nil {
			return err
		}
	}
	if _, err := t.Exec(st.setVersion1); err != nil {
		return err
	}
	for _, s := range []string{st.beginNumbers, st.raiseNumbers} {
		if _, err := t.Exec(s, t.Now.UnixMicro()); err != nil {
			return err
		}
	}
	return nil
}

// wanted are the columns of this version.
var wanted = []string{"seq", "queue", "due", "attempts", "held", "waits", "grp", "published", "meta", "attributes", "body"}

// checkTable finds the table that only has the name of ours, and the one of a newer version.
func (st *statements) checkTable(t *sqlitewriter.Txn) error {
	if _, err := t.Exec(st.makeVersion); err != nil {
		return err
	}
	var have int
	err := t.Scan(st.readVersion, nil, &have)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	case have > version:
		return fmt.Errorf("table %s is of version %d, made by a newer sqlitebroker; this one knows up to %d: update this program", st.table, have, version)
	}
	var names []string
	err = t.Each(st.columns, nil, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	})
	if err != nil || len(names) == 0 {
		return err
	}
	var wrong []string
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			wrong = append(wrong, "no column "+name)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("table %s is no table of messages: %s; choose another Options.Table", st.table, strings.Join(wrong, ", "))
	}
	return nil
}
