package sqlitestore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/sqlitewriter"
)

var _ dedupe.Checker = (*Store)(nil)

const countParts = `SELECT count(*) FILTER (WHERE type = 'table' AND name IN ({name}, {name} || '_fence')),
	count(*) FILTER (WHERE type = 'index' AND name IN ({name} || '_expires', {name} || '_attention')) FROM sqlite_schema`

const countUnswept = `SELECT count(*) FROM (SELECT 1 FROM {table} WHERE expires < ? AND status IN ('done', 'failed', 'released') LIMIT 100000)`

// Check tells what the table lacks, and whether nobody sweeps. It writes nothing.
func (s *Store) Check(ctx context.Context) (fs []dedupe.Fault, err error) {
	if s.w.IsClosed() {
		return nil, errClosed
	}
	const migrate = "call Migrate of the store, as programs do at their start"
	var tables, indexes int
	if err := s.db.QueryRowContext(ctx, s.sql.parts).Scan(&tables, &indexes); err != nil {
		return nil, explain("checking", err)
	}
	if tables < 2 {
		return []dedupe.Fault{{Text: "the file has no table of the store", Mend: migrate}}, nil
	}
	if indexes < 2 {
		fs = append(fs, dedupe.Fault{Text: "the table has not both of its indexes, of expiries and of failed, parked and released records", Mend: migrate})
	}
	for _, c := range newColumns {
		name, _, _ := strings.Cut(c, " ")
		var missing bool
		if err := s.db.QueryRowContext(ctx, s.sql.missing, name).Scan(&missing); err != nil {
			return nil, explain("checking", err)
		}
		if missing {
			fs = append(fs, dedupe.Fault{Text: "the table is of version 1: it has no column " + name, Mend: migrate})
		}
	}
	if len(fs) > 0 {
		return fs, nil
	}
	var old int
	if err := s.db.QueryRowContext(ctx, s.sql.unswept, sqlitewriter.TimeText(time.Now().Add(-time.Hour))).Scan(&old); err != nil {
		return nil, explain("checking", err)
	}
	if old > 0 {
		fs = append(fs, dedupe.Fault{
			Text: fmt.Sprintf("%d records or more ended more than an hour ago and are still there: nobody removes them, and the file only grows", old),
			Mend: "WorkerConfig.SweepEvery of a worker, or call the store's Sweep",
		})
	}
	return fs, nil
}
