package pgstore

import (
	"context"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe/dedupetest"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
)

// token is a word, a name in quotes, a text, an operator or a mark of SQL.
var token = regexp.MustCompile(`'(?:[^']|'')*'|"[^"]*"|[A-Za-z_][A-Za-z0-9_]*|\$?[0-9]+|::|[-+*/<>=~!@#%^&|?]+|[^\s]`)

// What the grammar itself knows, whatever the search_path is.
var (
	grammarCalls = words("coalesce greatest unnest exists values any as and or in on from select where when then else by case with key check using extract lateral")
	grammarTypes = words("bigint integer smallint boolean float interval timestamp")
)

func words(s string) map[string]bool {
	m := make(map[string]bool)
	for w := range strings.FieldsSeq(s) {
		m[w] = true
	}
	return m
}

// unqualified are the functions, types and operators of a statement that the search_path decides.
// calls gets the names of PostgreSQL's own functions in it, and ops those of its operators.
func unqualified(sql string, calls, ops map[string]bool) (found []string) {
	sql = strings.ReplaceAll(sql, "UNION ALL", "UNION") // no operator
	sql, _, _ = strings.Cut(sql, "/* plan")
	all := token.FindAllString(sql, -1)
	at := func(i int) string {
		if i < 0 || i >= len(all) {
			return ""
		}
		return all[i]
	}
	isWord := regexp.MustCompile(`^[A-Za-z_]`).MatchString
	isOperator := regexp.MustCompile(`^[-+*/<>=~!@#%^&|]+$`).MatchString
	for i, w := range all {
		own := at(i-1) == "." && at(i-2) == "pg_catalog"
		switch {
		case at(i-1) == "::" || strings.EqualFold(at(i-1), "collate"):
			if w != "pg_catalog" && !grammarTypes[strings.ToLower(w)] {
				found = append(found, "type "+w)
			}
		case isWord(w) && at(i+1) == "(" && !grammarCalls[strings.ToLower(w)]:
			// Lists of columns stand behind the name of a table or of an alias.
			before := strings.ToLower(at(i - 1))
			switch {
			case own:
				calls[w] = true
			case before == "as" || strings.EqualFold(w, "operator") || strings.EqualFold(w, "conflict"):
			default:
				found = append(found, "function "+w)
			}
		case isOperator(w):
			switch {
			case own && at(i+1) == ")":
				ops[w] = true
			case w == "=" && assigns(all, i), w == "*" && (at(i-1) == "." || strings.EqualFold(at(i-1), "select")):
			default:
				found = append(found, "operator "+w+" behind "+at(i-1))
			}
		case slices.Contains([]string{"in", "between", "like", "similar", "nullif", "any", "all", "some"}, strings.ToLower(w)),
			strings.EqualFold(w, "distinct") && strings.EqualFold(at(i+1), "from"):
			found = append(found, "operator of "+w)
		}
	}
	return found
}

// assigns reports whether the = at i is that of UPDATE … SET.
func assigns(all []string, i int) bool {
	depth := 0
	for j := i - 1; j >= 0; j-- {
		switch w := strings.ToLower(all[j]); {
		case w == ")":
			depth++
		case w == "(":
			depth--
		case depth < 0:
			return false
		case depth == 0 && (w == "set" || w == "," && j > 0):
			// It is the first name of a part.
			return i-j == 2
		case depth == 0 && (w == "where" || w == "on" || w == "when"):
			return false
		}
	}
	return false
}

// spy keeps every statement that pgx sends.
type spy struct {
	mu  sync.Mutex
	all map[string]bool
}

func (s *spy) add(sql string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[sql] = true
}

func (s *spy) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.add(d.SQL)
	return ctx
}
func (s *spy) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *spy) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		s.add(q.SQL)
	}
	return ctx
}
func (s *spy) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (s *spy) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// sent are all statements of a store: those that it keeps, and those that its calls send.
func sent(t *testing.T) map[string]bool {
	t.Helper()
	s := &spy{all: make(map[string]bool)}
	pool := openPool(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = s })
	for _, damage := range []string{"SELECT 1", "DROP SEQUENCE records_fence", "DROP INDEX records_expires"} {
		if err := wholeLife(t.Context(), pool, "k "+damage); err != nil {
			t.Fatal(err)
		}
		exec(t, pool, damage)
	}
	newStore(t, pool, "jobs.records")
	st := reflect.ValueOf(*newStatements("jobs", "records"))
	for _, name := range []string{"insert", "read", "readState", "change", "renew", "lock", "settle", "word", "note", "remove", "sweep"} {
		s.add(st.FieldByName(name).String())
	}
	s.add(hasty)
	maps.DeleteFunc(s.all, func(sql string, _ bool) bool {
		return slices.ContainsFunc([]string{"-- ping", "begin", "commit", "rollback", "SELECT 1", "DROP "}, func(p string) bool { return strings.HasPrefix(sql, p) })
	})
	return s.all
}

// TestQualified: no function, type or operator of any statement is looked for in the search_path,
// in which others may create.
func TestQualified(t *testing.T) {
	calls, ops := map[string]bool{}, map[string]bool{}
	all := sent(t)
	for sql := range all {
		for _, what := range unqualified(sql, calls, ops) {
			t.Errorf("%s\nin: %s", what, sql)
		}
	}
	if len(all) < 30 || len(calls) < 15 || len(ops) < 8 {
		t.Errorf("%d statements with %d functions and %d operators were seen", len(all), len(calls), len(ops))
	}
	for _, sql := range []string{
		"SELECT now()", "SELECT a = b", "UPDATE t SET a = b WHERE c = d", "SELECT a IN (b)", "SELECT $1::text", "SELECT a IS DISTINCT FROM b",
		"SELECT a + b", "UPDATE t SET a = f(b)", "UPDATE t SET a = b = c", "SELECT 1 WHERE nullif(a, b)", `SELECT a COLLATE "C"`,
	} {
		if len(unqualified(sql, calls, ops)) == 0 {
			t.Errorf("the search_path decides what this is, and it was not seen: %s", sql)
		}
	}
}

// hostile makes, in the schema public of the pool's database, a twin of each of PostgreSQL's own
// functions and operators that a store uses, of each type, and those that take what others would
// have to be converted to. A twin that is called says so.
func hostile(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	calls, ops := map[string]bool{}, map[string]bool{}
	for sql := range sent(t) {
		unqualified(sql, calls, ops)
	}
	quoted := func(m map[string]bool) string {
		return "'" + strings.Join(slices.Sorted(maps.Keys(m)), "','") + "'"
	}
	exec(t, pool, `DO $do$
DECLARE
	r record;
	body text := 'LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION ''hijacked''; END $$';
BEGIN
	FOR r IN SELECT p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid) AS args, pg_catalog.pg_get_function_result(p.oid) AS result
		FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.proname IN (`+quoted(calls)+`)
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s %s', r.proname, r.args, r.result, body);
		EXCEPTION WHEN OTHERS THEN NULL; -- a type that only PostgreSQL's own functions may take
		END;
	END LOOP;
	FOR r IN SELECT row_number() OVER () AS n, o.oprname, o.oprleft, o.oprright, o.oprresult FROM (
		SELECT oprname, oprleft::regtype, oprright::regtype, oprresult::regtype FROM pg_catalog.pg_operator WHERE oprkind = 'b' AND oprname IN (`+quoted(ops)+`)
		UNION VALUES ('*', 'bigint'::regtype, 'interval'::regtype, 'interval'::regtype), ('*', 'numeric', 'integer', 'numeric'),
			('=', 'text[]', 'text[]', 'boolean'), ('=', 'regclass', 'oid', 'boolean')) o
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION public.twin_%s(%s, %s) RETURNS %s %s', r.n, r.oprleft, r.oprright, r.oprresult, body);
			EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.twin_%s)', r.oprname, r.oprleft, r.oprright, r.n);
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END LOOP;
	FOR r IN SELECT f.name, f.args FROM (VALUES ('nextval', 'text'), ('obj_description', 'regclass, text'), ('pg_advisory_xact_lock', 'text'),
		('array_agg', 'text'), ('setval', 'text, bigint'), ('has_sequence_privilege', 'regclass, text'), ('max', 'text'), ('bool_or', 'boolean')) f (name, args)
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS bigint %s', r.name, r.args, body);
		EXCEPTION WHEN duplicate_function THEN NULL;
		END;
	END LOOP;
	FOR r IN SELECT n AS name FROM unnest('{text,uuid,bytea,timestamptz,regclass,xid,oid,name}'::pg_catalog.text[]) n
	LOOP
		EXECUTE format('CREATE DOMAIN public.%I AS pg_catalog.%I CHECK (false)', r.name, r.name);
	END LOOP;
END $do$`)
	for what, sql := range map[string]string{"functions": "SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace", "operators": "SELECT count(*) FROM pg_operator WHERE oprnamespace = 'public'::regnamespace"} {
		if n := pgtest.Scan[int](t, pool, sql); n < 30 {
			t.Errorf("%d %s were made", n, what)
		}
	}
}

// TestHostilePath runs the suite where the schema public, which comes first in the search_path, is
// full of twins of all that a store uses.
func TestHostilePath(t *testing.T) {
	admin := openPool(t, func(c *pgxpool.Config) { c.MaxConns = 30 })
	hostile(t, admin)
	for _, path := range []string{"public", "public, pg_catalog"} {
		pool := poolOn(t, admin.Config().ConnString(), func(c *pgxpool.Config) {
			c.MaxConns = 30
			c.ConnConfig.RuntimeParams["search_path"] = path
		})
		if path != "public" {
			if _, err := pool.Exec(t.Context(), "SELECT clock_timestamp()"); err == nil || !strings.Contains(err.Error(), "hijacked") {
				t.Fatalf("the twins do not take the calls: %v", err)
			}
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			dedupetest.Run(t, dedupetest.Harness{Open: func(t testing.TB) dedupetest.Subject {
				return subjectBeside(t, admin, pool, func(t testing.TB, s *Store, ledger string) dedupetest.Tx {
					return beginPgx(t, s, pool, "public."+ledger)
				})
			}})
		})
	}
	if err := wholeLife(t.Context(), poolOn(t, admin.Config().ConnString(), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["search_path"] = "public, pg_catalog"
	}), "k"); err != nil {
		t.Error(err)
	}
}
