package cli

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// TestReconcilePipe plays the first command of docs/reconcile.md: a database is read by its own
// client. No time, quote or line end of psql's is misread, and a body is sent as the table has it.
func TestReconcilePipe(t *testing.T) {
	t.Parallel()
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("psql is not installed, so nothing is read through a pipe here")
	}
	page := must.Get(os.ReadFile("../../../../docs/reconcile.md"))
	m := regexp.MustCompile(`(?s)psql -c "([^"]+)" \|\s+onceq (reconcile [^\n]+)`).FindSubmatch(page)
	if m == nil {
		t.Fatal("the page has no such command")
	}
	at := must.Get(url.Parse(testpg.New(t).URL))
	db, err := pgx.Connect(t.Context(), at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(t.Context()) }()
	_, err = db.Exec(t.Context(), `CREATE TABLE orders (id text, created_at timestamptz, payload text);
		INSERT INTO orders VALUES ('A-1', now(), '{"to":"a"}'), ('A,2', now() - interval '90 minutes 1.25 seconds', E'{"say":"\\"hi\\"",\r\n "n":2}\n'),
			('A-3', now() - interval '2 days', '{}')`)
	if err != nil {
		t.Fatal(err)
	}
	query := at.Query()
	query.Del("require_auth") // pgx knows it, and older programs do not
	at.RawQuery = query.Encode()
	r := newRig(t)
	r.settle(r.claim(charge("A-1"), time.Minute, dedupe.Rerun), dedupe.Done, "", "")
	copied, err := exec.CommandContext(t.Context(), psql, at.String(), "-c", string(m[1])).Output() //nolint:gosec // the page's own
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(m[2]))
	for i, w := range words {
		if strings.HasSuffix(w, ".csv") {
			words[i] = r.input(filepath.Base(w), "key,id,type\nA-1,pay-1,charge\n")
		}
	}
	r.typed = string(copied)
	r.run(words...).want(1, "orders: 2 expected, 1 done once and in time, 1 missing")
	r.typed = string(copied)
	r.run(append(words, "--resend", "--reason", "x", "--yes", "--max", "5")...).want(1, "1 job sent")
	ms := r.receive(1)
	if got, want := string(ms[0].Body), "{\"say\":\"\\\"hi\\\"\",\r\n \"n\":2}\n"; ms[0].Meta.Key != "A,2" || got != want || time.Since(ms[0].Meta.Created).Round(time.Minute) != 90*time.Minute {
		t.Errorf("%+v %q, want %q", ms[0].Meta, got, want)
	}
}
