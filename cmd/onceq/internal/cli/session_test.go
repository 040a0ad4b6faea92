package cli

import (
	"bytes"
	"context"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

var update = flag.Bool("update", false, "write the session of docs/command.md as the command prints it")

const page = "../../../../docs/command.md"

// TestSession runs the night of docs/command.md, and compares.
func TestSession(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { session(t, newRig(t)) })
	t.Run("postgres", func(t *testing.T) { session(t, postgresRig(t)) })
}

// postgresRig is a rig on PostgreSQL; the test is skipped where there is none.
func postgresRig(t *testing.T) *rig {
	t.Helper()
	db := testpg.New(t)
	pool := must.Get(pgxpool.New(t.Context(), db.URL))
	t.Cleanup(pool.Close)
	s := must.Get(pgstore.New(pool, nil))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rigOn(t, s, "'"+db.URL+"'")
}

// night is what the session finds: a worker that lives, four jobs that failed, one that waits.
func (r *rig) night() {
	r.Helper()
	for _, k := range []string{"A-1", "A-2", "A-3", "A-4"} {
		for range 5 {
			r.settle(r.claim(charge(k), time.Minute, dedupe.Rerun), dedupe.Released, "timeout", `Post "https://bank/": `+errBank.Error())
		}
		r.settle(r.claim(charge(k), time.Minute, dedupe.Rerun), dedupe.Failed, "timeout", `Post "https://bank/": `+errBank.Error())
		m := broker.Outgoing{Body: []byte("x"), Meta: &broker.Meta{ID: k, Key: k, Type: "charge", Created: time.Now(), Dead: &broker.Letter{
			Class: "timeout", LastErr: `Post "https://bank/": ` + errBank.Error(), Fence: r.get(charge(k)).Fence, At: time.Now(), Attempts: 6,
			Source: "orders", Scope: charge(k).Scope, Key: k,
		}}}
		if _, err := r.dead.Send(r.Context(), []broker.Outgoing{m}); err != nil {
			r.Fatal(err)
		}
	}
	r.send("A-5")
	// The first record is whole as well: the session may look before the next one.
	status := func(rules uint64) *control.WorkerStatus {
		now := time.Now()
		return &control.WorkerStatus{
			Host: "host-1", Slots: 100, Busy: 80, State: "running", Scope: "orders", Types: []string{"charge"}, Started: now, At: now, Rules: rules,
			Outcomes: map[string]uint64{"done": 996, "retried": 3, "failed": 1}, Minute: &control.Runs{Runs: 500, Errors: 2}, Rate: 601, HeadWait: 900 * time.Millisecond,
			Durations: map[string]control.Quantiles{"charge": {P95: 800 * time.Millisecond}},
			Jobs:      []control.RunningJob{{Key: "B-12", Type: "charge", At: now.Add(-41 * time.Second), Attempt: 1, Fence: 9}},
		}
	}
	s := r.seat("w-1/1", func(c *control.WorkerStatus) { *c = *status(0) })
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if rules, err := controlstore.Read(ctx, r.store); err == nil {
				_ = s.Beat(ctx, status(rules.Version))
			}
		}
	}()
	r.Cleanup(func() { cancel(); <-done })
}

func session(t *testing.T, r *rig) {
	r.night()
	r.T = t
	text := must.Get(os.ReadFile(page))
	before, rest, ok := strings.Cut(string(text), "```console\n")
	block, after, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatal("docs/command.md has no session")
	}
	var got, want []string
	for part := range strings.SplitSeq(block, "$ ") {
		command, printed, _ := strings.Cut(part, "\n")
		if command == "" {
			continue
		}
		words := split(command)
		var screen bytes.Buffer
		on := r.io(&screen, nil)
		on.Err = on.Out // as a terminal shows them
		if code := Main(t.Context(), append([]string{"--by", "ana"}, words[1:]...), on); code != 0 {
			t.Fatalf("%s: exit %d\n%s", command, code, screen.String())
		}
		want = append(want, strings.TrimSpace(printed))
		got = append(got, "$ "+command+"\n"+strings.TrimSpace(screen.String())+"\n")
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+"```console\n"+strings.Join(got, "\n")+"```\n"+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i := range got {
		command, printed, _ := strings.Cut(got[i], "\n")
		if have, told := masked(printed), masked(want[i]); have != told {
			t.Errorf("%s\nprints\n%s\nand the page has\n%s", command, have, told)
		}
	}
}

// split divides a command's line as a shell does.
func split(s string) (words []string) {
	for _, m := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(s, -1) {
		words = append(words, m[1]+m[2])
	}
	return words
}

// masks are what differs from run to run.
var masks = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d`), "DATE"},
	{regexp.MustCompile(`(DATE )?\d\d:\d\d:\d\d(\.\d+)?`), "TIME"},
	{regexp.MustCompile(`TIME ([A-Z]{3,5}|[+-]\d\d(\d\d)?)\b`), "TIME"}, // the zone
	{regexp.MustCompile(`\b(AT|FAILED|FIRST|LAST|CHANGED|SENT|STARTED|DUE) ([A-Z]{3,4}|[+-]\d\d(\d\d)?) `), "$1 ZONE "},
	{regexp.MustCompile(`plan [0-9a-f]{4,}`), "plan PLAN"},
	{regexp.MustCompile(`fence \d+`), "fence FENCE"},
	{regexp.MustCompile(`failed +(\d+) +\d+ `), "failed $1 FENCE "},
	{regexp.MustCompile(`(rules?|orders) [a-z2-7]{5}( --reason|\b)`), "$1 RULE$2"},
	{regexp.MustCompile(`\b[a-z2-7]{5}: (pause|limit)`), "RULE: $1"},
	{regexp.MustCompile(`<1ms|\b(\d+(\.\d+)?(ms|s|m|h))+\b`), "SPAN"},
	{regexp.MustCompile(`[+-]0\.\ds`), "SKEW"},
	{regexp.MustCompile(`[-+]SPAN`), "SKEW"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

func masked(s string) string {
	for _, m := range masks {
		s = m.what.ReplaceAllString(s, m.by)
	}
	return strings.TrimSpace(s)
}
