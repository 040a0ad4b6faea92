//go:build unix

package testserver

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/rundir"
)

// fake is a back end that says where it is.
var fake = Backend{Name: "postgres", Version: func(_ context.Context, url, variant string) (string, error) {
	if url == "broken" {
		return "", errors.New("it\nis broken")
	}
	return url + " " + variant, nil
}}

// forget makes a test look as a new process does.
func forget(t *testing.T, run, plain, special string) {
	t.Helper()
	before := found.byName
	found.byName = nil
	t.Cleanup(func() { found.byName = before })
	t.Setenv(rundir.Env, run)
	t.Setenv("ONCEQ_POSTGRES_URL", plain)
	t.Setenv("ONCEQ_POSTGRES_DURABLE_URL", special)
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name, plain, special, variant string
		want                          rundir.Endpoint
	}{
		{"named", "a", "b", "", rundir.Endpoint{URL: "a", Version: "a ", How: "environment"}},
		{"two addresses", "a", "b", "durable", rundir.Endpoint{URL: "b", Version: "b durable", How: "environment"}},
		{"one for both", "a", "", "durable", rundir.Endpoint{URL: "a", Version: "a durable", How: "environment"}},
		{"broken", "broken", "", "", rundir.Endpoint{Err: "ONCEQ_POSTGRES_URL: it is broken", Broken: true}},
		{"none", "", "b", "", rundir.Endpoint{Err: "no server: run make test, or set ONCEQ_POSTGRES_URL"}},
		{"none that is special", "", "", "durable", rundir.Endpoint{Err: "no server: run make test, or set ONCEQ_POSTGRES_DURABLE_URL"}},
	} {
		forget(t, "", c.plain, c.special)
		if got, err := fake.Find(c.variant, ""); got != c.want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

func TestEnv(t *testing.T) {
	for _, c := range [][3]string{
		{"postgres", "", "ONCEQ_POSTGRES_URL"},
		{"postgres", "durable", "ONCEQ_POSTGRES_DURABLE_URL"},
		{"pubsub", "", "PUBSUB_EMULATOR_HOST"}, // Google's own name for it
	} {
		if got := Env(c[0], c[1]); got != c[2] {
			t.Errorf("%s %s: %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

// taker is a test that learns what becomes of it.
type taker struct {
	testing.TB
	end string
}

func (t *taker) Helper()      {}
func (t *taker) Name() string { return "TestX" }
func (t *taker) Skipf(format string, args ...any) {
	t.end = "skipped"
	panic(t)
}

func (t *taker) Fatalf(format string, args ...any) {
	t.end = "failed"
	panic(t)
}

// TestCounted: whoever asks is counted, and one that went without is not among those who had it.
func TestCounted(t *testing.T) {
	for _, c := range []struct{ name, url, require, end, line string }{
		{"there", "a", "all", "", "backend postgres: a (environment), 1 test"},
		{"not there", "", "", "skipped", "backend postgres: none (the starter's word), 0 of 1 tests"},
		{"not there and required", "", "postgres", "failed", "backend postgres: none (the starter's word), 0 of 1 tests"},
	} {
		r := rundir.Open(t.TempDir())
		forget(t, r.Dir(), c.url, "")
		t.Setenv(rundir.RequireEnv, c.require)
		stores := `printf '{"Err":"the starter'"'"'s word"}' >"$ONCEQ_RUN/$0.json"`
		if err := r.SetStarter("sh", "-c", stores); err != nil {
			t.Fatal(err)
		}
		test := &taker{TB: t}
		func() {
			defer func() { _ = recover() }()
			fake.Get(test, "")
		}()
		if test.end != c.end {
			t.Errorf("%s: it is %q, want %q", c.name, test.end, c.end)
		}
		line, missing, err := r.Report("postgres")
		if line = strings.ReplaceAll(line, "a  (", "a ("); line != c.line || missing != (c.url == "") || err != nil {
			t.Errorf("%s: %q, %v, %v; want %q", c.name, line, missing, err, c.line)
		}
	}
}

// TestDurableAlone: where only a variant was asked for, the line that ends a run tells of that.
func TestDurableAlone(t *testing.T) {
	r := rundir.Open(t.TempDir())
	forget(t, r.Dir(), "", "b")
	fake.Get(t, "durable")
	if line, missing, err := r.Report("postgres"); line != "backend postgres: b durable (environment), 1 test" || missing || err != nil {
		t.Errorf("%q, %v, %v", line, missing, err)
	}
}

// TestAsk: what the starter cannot do is an error with its words, and what it stored is asked
// for once.
func TestAsk(t *testing.T) {
	r := rundir.Open(t.TempDir())
	if _, err := r.Ask("postgres"); err == nil || !strings.Contains(err.Error(), "starts nothing") {
		t.Errorf("without a starter: %v", err)
	}
	if err := r.SetStarter("sh", "-c", "echo cannot start $0; exit 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Ask("postgres_durable"); err == nil || !strings.Contains(err.Error(), "cannot start postgres_durable") {
		t.Errorf("a starter that fails: %v", err)
	}
	count := t.TempDir() + "/count"
	if err := r.SetStarter("sh", "-c", `echo >>"`+count+`"; echo '{"URL":"u"}' >"$ONCEQ_RUN/$0.json"`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if e, err := r.Ask("sqs"); e.URL != "u" || err != nil {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if text, err := os.ReadFile(count); string(text) != "\n" || err != nil {
		t.Errorf("the starter ran %q times, %v", text, err)
	}
}
