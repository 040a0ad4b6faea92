package pgtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Modes are all ways in which pgx sends statements.
var Modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// setting is what a role or a database may have set. It may not matter, but where refused says
// so.
type setting struct {
	set string
	// refused is a part of the error of all calls; empty = none. Simple is that in the simple
	// protocol alone.
	refused, simple string
}

var settings = []setting{
	{set: "datestyle = 'German, DMY'"},
	{set: "datestyle = 'SQL, MDY'"},
	{set: "datestyle = 'Postgres, DMY'"},
	{set: "bytea_output = 'escape'"},
	{set: "intervalstyle = 'sql_standard'"},
	{set: "timezone = 'Asia/Kolkata'"},
	{set: "client_encoding = 'LATIN1'", simple: "client_encoding"},
	{set: "client_encoding = 'WIN1252'", simple: "client_encoding"},
	{set: "client_encoding = 'SQL_ASCII'", simple: "client_encoding"},
	{set: "default_transaction_isolation = 'repeatable read'"},
	{set: "default_transaction_isolation = 'serializable'"},
	{set: "default_transaction_read_only = on", refused: "default_transaction_read_only"},
	{set: "standard_conforming_strings = off", simple: "standard_conforming_strings"},
	{set: "lock_timeout = '1ms'"},
	{set: "enable_indexscan = off"},
	{set: "transform_null_equals = on"},
	{set: "backslash_quote = off"},
	{set: "array_nulls = off"},
	{set: "quote_all_identifiers = on"},
	{set: "extra_float_digits = -5"},
	{set: "lc_messages = 'C'"},
	{set: "row_security = off"},
	{set: "synchronize_seqscans = off"},
	{set: "default_transaction_deferrable = on"},
	{set: "xmloption = document"},
	{set: "search_path = public, pg_catalog"},
}

var roles atomic.Int64

// NewRole makes a role with these rights and this setting, and opens a pool as it.
func NewRole(t *testing.T, admin *pgxpool.Pool, rights, set string, more ...func(*pgxpool.Config)) (pool *pgxpool.Pool, role string) {
	t.Helper()
	// The number comes first, because PostgreSQL cuts a name after 63 bytes.
	role = strings.ToLower(fmt.Sprintf("r%d_%s", roles.Add(1), Scan[string](t, admin, "SELECT current_database()")))
	role = role[:min(len(role), 63)]
	Exec(t, admin, "CREATE ROLE "+role+" LOGIN "+rights+" PASSWORD 'secret'")
	if set != "" {
		Exec(t, admin, "ALTER ROLE "+role+" SET "+set)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	return PoolOn(t, admin.Config().ConnString(), append(more, func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = role, "secret" })...), role
}

// TestSettings lets roles with each setting call life, in all modes. name is new for each call.
// Where busy knows the error, nothing was written, and it is tried again. own are settings beside
// those that every user meets.
func TestSettings(t *testing.T, admin *pgxpool.Pool, life func(ctx context.Context, pool *pgxpool.Pool, name string) error, busy func(error) bool, own ...string) {
	t.Helper()
	all := settings
	for _, set := range own {
		all = append(all[:len(all):len(all)], setting{set: set})
	}
	var wg sync.WaitGroup
	for _, c := range all {
		pools := make([]*pgxpool.Pool, len(Modes))
		pools[0], _ = NewRole(t, admin, "SUPERUSER", c.set)
		for i, mode := range Modes {
			if pools[i] = pools[0]; i > 0 {
				config := pools[0].Config()
				config.ConnConfig.DefaultQueryExecMode = mode
				var err error
				if pools[i], err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(pools[i].Close)
			}
		}
		wg.Go(func() {
			for i, mode := range Modes {
				refused := c.refused
				if mode == pgx.QueryExecModeSimpleProtocol && c.simple != "" {
					refused = c.simple
				}
				var err error
				for try := range 10 {
					// On a busy machine the lock on the end of a file is kept for longer than a
					// millisecond. Nothing was written then.
					if err = life(t.Context(), pools[i], fmt.Sprintf("käse-☃-%v-%s-%d", mode, c.set, try)); !busy(err) {
						break
					}
				}
				if (err != nil) != (refused != "") || err != nil && !strings.Contains(err.Error(), refused) {
					t.Errorf("%s, %v: %v; want an error with %q", c.set, mode, err, refused)
				}
				pools[i].Close()
			}
		})
	}
	wg.Wait()
}
