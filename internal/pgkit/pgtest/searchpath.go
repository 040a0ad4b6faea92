package pgtest

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// This file owns what is tested of a search_path in which others may create: that no statement goes
// by it, by its text, and by twins of PostgreSQL's own functions that tell when they are called.

// token is a word, a name in quotes, a text, an operator or a mark of SQL.
var token = regexp.MustCompile(`'(?:[^']|'')*'|"[^"]*"|[A-Za-z_][A-Za-z0-9_]*|\$?[0-9]+|::|[-+*/<>=~!@#%^&|?]+|[^\s]`)

// What the grammar itself knows, whatever the search_path is.
var (
	grammarCalls = words("coalesce greatest unnest exists values any all array as and or in on from select where when then else by case with key check using extract lateral")
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
	sql, _, _ = strings.Cut(sql, ") WITH (fillfactor") // settings of a table
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
			case w == "=" && assigns(all, i), w == "*" && (at(i-1) == "." || strings.EqualFold(at(i-1), "select") || at(i-1)+at(i+1) == "()"):
			default:
				found = append(found, "operator "+w+" behind "+at(i-1))
			}
		case (strings.EqualFold(w, "any") || strings.EqualFold(w, "all")) && at(i-1) == ")" && isOperator(at(i-2)) && at(i-3) == ".": // of a qualified one
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

// Spy keeps every statement that pgx sends.
type Spy struct {
	mu  sync.Mutex
	all map[string]bool
}

// Add keeps one more.
func (s *Spy) Add(sql string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]bool)
	}
	s.all[sql] = true
}

func (s *Spy) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.Add(d.SQL)
	return ctx
}
func (s *Spy) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *Spy) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		s.Add(q.SQL)
	}
	return ctx
}
func (s *Spy) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (s *Spy) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// Sent are the statements, but for those of a driver's own and those that begin with one of skip.
func (s *Spy) Sent(skip ...string) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	skip = append(skip, "-- ping", "begin", "commit", "rollback")
	sent := maps.Clone(s.all)
	maps.DeleteFunc(sent, func(sql string, _ bool) bool {
		return slices.ContainsFunc(skip, func(p string) bool { return strings.HasPrefix(sql, p) })
	})
	return sent
}

// TestQualified checks that no function, type or operator of these statements is looked for in the
// search_path, in which others may create. least is how many there are at least.
func TestQualified(t *testing.T, sent map[string]bool, least int) {
	t.Helper()
	calls, ops := map[string]bool{}, map[string]bool{}
	for sql := range sent {
		for _, what := range unqualified(sql, calls, ops) {
			t.Errorf("%s\nin: %s", what, sql)
		}
	}
	if len(sent) < least || len(calls) < least/2 || len(ops) < (least+2)/4 {
		t.Errorf("%d statements with %d functions and %d operators were seen", len(sent), len(calls), len(ops))
	}
	for _, sql := range []string{
		"SELECT now()", "SELECT a = b", "UPDATE t SET a = b WHERE c = d", "SELECT a IN (b)", "SELECT $1::text", "SELECT a IS DISTINCT FROM b",
		"SELECT a + b", "UPDATE t SET a = f(b)", "UPDATE t SET a = b = c", "SELECT 1 WHERE nullif(a, b)", `SELECT a COLLATE "C"`, "SELECT a = ANY (b)",
	} {
		if len(unqualified(sql, calls, ops)) == 0 {
			t.Errorf("the search_path decides what this is, and it was not seen: %s", sql)
		}
	}
}

// Hostile makes, in the schema public of the pool's database, a twin of each of PostgreSQL's own
// functions and operators that these statements use, of each type, and those that take what others
// would have to be converted to. A twin that is called says so.
func Hostile(t *testing.T, pool *pgxpool.Pool, sent map[string]bool) {
	t.Helper()
	calls, ops := map[string]bool{}, map[string]bool{}
	for sql := range sent {
		unqualified(sql, calls, ops)
	}
	quoted := func(m map[string]bool) string {
		return "'" + strings.Join(slices.Sorted(maps.Keys(m)), "','") + "'"
	}
	Exec(t, pool, `DO $do$
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
		if n := Scan[int](t, pool, sql); n < 30 {
			t.Errorf("%d %s were made", n, what)
		}
	}
}
