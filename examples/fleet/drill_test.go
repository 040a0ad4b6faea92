package main

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/examples/internal/shop"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/internal/runbook"
)

// mended is what an operator types in each drill. All of it stands in docs/runbook.md.
var mended = map[string]string{
	"bank": `
onceq dlq group orders
onceq queue pause orders --type charge --for 1h --reason "INC-311: charges fail" --yes
# the bank is green again
onceq queue resume orders --reason "INC-311: mended" --yes
GROUP=$(onceq -q dlq group orders | head -1)
onceq dlq replay orders --group $GROUP --max 500 --canary 1 --ramp --rate 50/s --reason "INC-311: mended" --yes
# wait until the queue is empty
`,
	"receives": `
onceq dlq group orders
# write redrive.json
aws sqs set-queue-attributes --queue-url $QUEUE_URL --attributes file://redrive.json
onceq dlq replay orders --max 500 --rate 50/s --reason "INC-320: moved by the queue" --yes
# wait until the queue is empty
`,
	"producer": `
onceq dlq group orders
onceq dlq purge orders --class mismatch --max 100 --dry-run=false -f other-amounts.ndjson --reason "INC-321: charged as ordered first" --yes
`,
}

// Each fault is mended by commands that stand in the runbook, and onceq itself says so: before,
// one of the judges finds something, and afterwards none does.
func TestDrills(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the drill's aws is a link, which not everybody may make on Windows")
	}
	require.Len(t, mended, len(faults))
	nights, err := runbook.Read(filepath.Join("..", "..", "docs", "runbook.md"))
	require.NoError(t, err)
	page := map[string]runbook.Step{}
	for _, n := range nights {
		for _, s := range n.Steps {
			page[s.Line] = s
		}
	}
	bin := t.TempDir()
	text, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "onceq"), "../../cmd/onceq").CombinedOutput()
	require.NoError(t, err, "%s", text)
	played := slices.Sorted(maps.Keys(mended))
	if !proof.Asked() {
		proof.Leave(t, "examples/fleet: two of the three drills")
		n := proof.Seed(t) % uint64(len(played))
		played = played[n : n+1]
	}
	var all sync.WaitGroup
	defer all.Wait()
	for _, name := range played { // at once: each waits most of the time
		script := mended[name]
		all.Go(func() {
			t.Run(name, func(t *testing.T) { playDrill(t, name, script, page, filepath.Join(bin, "onceq")) })
		})
	}
}

func playDrill(t *testing.T, name, script string, page map[string]runbook.Step, onceq string) {
	o := &shop.Settings{Ledger: filepath.Join(t.TempDir(), "ledger.db"), Workers: 2, Visibility: 2 * time.Second, Restart: time.Second}
	dir := filepath.Join(filepath.Dir(o.Ledger), "drill")
	var out, errs transcript
	ctx, stop := context.WithCancel(t.Context())
	begun, ended := make(chan *demo, 1), make(chan error, 1)
	go func() { ended <- drill(ctx, o, name, &out, &errs, func(d *demo) { begun <- d }) }()
	defer func() {
		stop()
		require.NoError(t, <-ended)
		require.Empty(t, errs.String())
	}()
	var d *demo
	select {
	case d = <-begun:
	case err := <-ended:
		ended <- err
		t.Fatal(err, errs.String())
	}
	require.Contains(t, out.String(), faults[name].told)
	run := func(words []string) (int, string, string) {
		var said, to bytes.Buffer
		exe := onceq
		if words[0] != "onceq" {
			exe = filepath.Join(dir, words[0])
		}
		c := exec.CommandContext(t.Context(), exe, words[1:]...)
		c.Dir, c.Env, c.Stdout, c.Stderr = dir, append([]string{"HOME=" + dir, "ONCEQ_BY=ana"}, d.drillEnv()...), &said, &to
		if err := c.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			return -1, "", err.Error()
		}
		return c.ProcessState.ExitCode(), said.String(), to.String()
	}
	found := func() (codes []int, said string) {
		require.NoError(t, d.writeBooks(t.Context(), dir))
		for _, j := range judges {
			code, out, errs := run(strings.Fields(j))
			codes, said = append(codes, code), said+"$ "+j+"\n"+out+errs
		}
		return codes, said
	}
	codes, said := found()
	require.Contains(t, codes, 1, "the judges see no fault: %s", said)

	p := runbook.Player{
		Run: run, Dir: dir, Vars: map[string]string{"QUEUE_URL": d.a.Queue},
		Said: func(s *runbook.Step, output string) { t.Logf("$ %s\n%s", s.Line, output) },
		Do: map[string]func(){
			"the bank is green again": func() { require.NoError(t, os.Remove(d.a.Drill.Red)) },
			"write redrive.json": func() {
				text := `{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:orders-dead\",\"maxReceiveCount\":40}"}`
				require.NoError(t, os.WriteFile(filepath.Join(dir, "redrive.json"), []byte(text), 0o600))
			},
			"wait until the queue is empty": func() {
				require.NoError(t, d.await(t.Context(), func(queue, _ broker.Depth) bool { return queue.Visible+queue.InFlight+queue.Delayed == 0 }))
			},
		},
	}
	for line := range strings.SplitSeq(strings.TrimSpace(script), "\n") {
		s, ok := page[line]
		if !ok && !strings.HasPrefix(line, "# ") {
			t.Fatalf("%q does not stand in the runbook", line)
		}
		require.NoError(t, p.Play(&runbook.Step{Line: line, Exit: s.Exit}))
	}
	codes, said = found()
	require.Equal(t, []int{0, 0}, codes, "%s", said)
	a, err := d.till.audit(t.Context(), d.rows, nil)
	require.NoError(t, err)
	require.True(t, a.Holds(), "%+v", a)
	require.Equal(t, drillOrders, a.Charges)
}

// A drill that nobody knows is refused.
func TestUnknownDrill(t *testing.T) {
	t.Parallel()
	err := drill(t.Context(), &shop.Settings{Ledger: filepath.Join(t.TempDir(), "l.db")}, "flood", nil, nil, nil)
	require.ErrorContains(t, err, `-drill is "flood", want one of bank, producer, receives`)
	for _, other := range []string{"-no-onceq", "-queue=sqlite", "-store=dynamodb"} {
		var out transcript
		require.Equal(t, 2, command(t.Context(), []string{"-drill", "bank", other}, &out, &out))
		require.Contains(t, out.String(), "-drill is for sqs and sqlite")
	}
}
