package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit"
)

var _ dedupe.Checker = (*Store)(nil)

// rightsOf are the caller's, in the order of rights and with the one on the sequence behind them.
const rightsOf = `SELECT pg_catalog.has_table_privilege($1::pg_catalog.oid, 'SELECT'), pg_catalog.has_table_privilege($1::pg_catalog.oid, 'INSERT'),
	pg_catalog.has_table_privilege($1::pg_catalog.oid, 'UPDATE'), pg_catalog.has_table_privilege($1::pg_catalog.oid, 'DELETE'),
	coalesce((SELECT pg_catalog.has_sequence_privilege(f.oid, 'USAGE') FROM pg_catalog.pg_class f
		JOIN pg_catalog.pg_class c ON c.oid {=} $1::pg_catalog.oid WHERE f.relnamespace {=} c.relnamespace AND f.relname {=} $2::pg_catalog.name), true)`

var rights = [...]string{"SELECT", "INSERT", "UPDATE", "DELETE"}

// unsweptRows is how many records expired more than an hour ago, as far as mostUnswept. One that
// expires later than its table is swept is no finding.
const unsweptRows = `SELECT pg_catalog.count(*) FROM (SELECT FROM {table} t WHERE expires {<} (SELECT pg_catalog.clock_timestamp() {-} '1 hour'::pg_catalog.interval)
	AND (status {=} 'done' OR status {=} 'failed' OR status {=} 'released') LIMIT $1::bigint) old`

const mostUnswept = 100_000

// Check tells what the table lacks, which of a worker's rights a role that may write has not, and
// whether nobody sweeps. It reads the catalogue and, by an index, up to 100,000 expired rows.
func (s *Store) Check(ctx context.Context) (fs []dedupe.Fault, err error) {
	if err := s.ready(ctx, 0); err != nil {
		return nil, err
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		fs = nil
		have, err := s.inspect(ctx, tx)
		if err != nil {
			return err
		}
		if have.version == 0 {
			fs = append(fs, dedupe.Fault{Text: "there is no table " + s.sql().name, Mend: "call Migrate of the store, as programs do at their start"})
			return nil
		}
		fs = have.missing(s.sql().name)
		missing, err := s.missingRights(ctx, tx, have.oid)
		if fs = append(fs, missing...); err != nil || len(fs) > 0 {
			return err
		}
		var old int
		if err := tx.QueryRow(ctx, newStatements(have.schema, s.table).fill(pgkit.Operators(unsweptRows)), mostUnswept).Scan(&old); err != nil {
			return err
		}
		if old > 0 {
			fs = append(fs, dedupe.Fault{
				Text: fmt.Sprintf("%d records or more of table %s ended more than an hour ago and are still there: nobody removes them, and the table only grows", old, s.sql().name),
				Mend: "WorkerConfig.SweepEvery of a worker, or call the store's Sweep; it needs DELETE",
			})
		}
		return nil
	})
	return fs, s.explain(ctx, "Check", err)
}

// missing is what Migrate would make.
func (p *present) missing(table string) (fs []dedupe.Fault) {
	const migrate = "call Migrate of the store as the table's owner"
	if p.version < version {
		fs = append(fs, dedupe.Fault{Text: fmt.Sprintf("table %s is of version %d, and this program's is %d: it keeps no history of attempts", table, p.version, version), Mend: migrate})
	}
	for _, part := range []struct {
		what  string
		there bool
	}{{"index of expiries", p.expiry}, {"sequence of fences", p.fence}, {"index of failed, parked and released records", p.attention == ready}} {
		if !part.there {
			fs = append(fs, dedupe.Fault{Text: "table " + table + " has no valid " + part.what, Mend: migrate})
		}
	}
	return fs
}

// missingRights is what the role could not do as a worker's. One that may only look is nobody's
// mistake.
func (s *Store) missingRights(ctx context.Context, tx pgx.Tx, oid uint32) (fs []dedupe.Fault, err error) {
	var has [len(rights)]bool
	var fence bool
	if err := tx.QueryRow(ctx, pgkit.Operators(rightsOf), oid, s.table+"_fence").Scan(&has[0], &has[1], &has[2], &has[3], &fence); err != nil {
		return nil, err
	}
	var missing []string
	for i, name := range rights {
		if !has[i] {
			missing = append(missing, name)
		}
	}
	if looks := has[0] && len(missing) == len(rights)-1; len(missing) > 0 && !looks {
		list := strings.Join(missing, ", ")
		fs = append(fs, dedupe.Fault{Text: fmt.Sprintf("this role has no %s on table %s: as a worker's it could do nothing", list, s.sql().name), Mend: fmt.Sprintf("GRANT %s ON %s TO ROLE", list, s.sql().name)})
	}
	if !fence && len(missing) == 0 {
		fs = append(fs, dedupe.Fault{Text: "this role may not use the sequence of fences, without which nothing is claimed", Mend: "GRANT USAGE ON SEQUENCE " + s.sql().name + "_fence TO ROLE"})
	}
	return fs, nil
}
