package sqsfake_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/sqsfake"
)

// A behaviour is something that SQS does, checked through an SDK. The same table runs
// against this server, in virtual time, and against the one that the harness finds, or another:
//
//	ONCEQ_SQS_URL=http://127.0.0.1:9324 ONCEQ_SQS_KIND=elasticmq go test -run Elsewhere ./sqsfake
type behaviour struct {
	name string
	// ref says how we know: "doc" is AWS's API reference, "snapshot" a recording of AWS by the
	// LocalStack project, "seen" what users of AWS report.
	ref string
	// ours marks what AWS leaves open and this server has decided, or what takes hours:
	// others are not asked.
	ours bool
	// options set up our server, where AWS leaves it open what it does.
	options *sqsfake.Options
	run     func(r *rig)
}

func behaviours() []behaviour {
	return slices.Concat(visibilityBehaviours, staleBehaviours, recordedBehaviours, messageBehaviours, batchBehaviours, queueBehaviours,
		fifoBehaviours, redriveBehaviours, moveBehaviours)
}

func TestBehaviour(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range behaviours() {
		if seen[b.name] || b.ref == "" {
			t.Errorf("%q is there twice, or without a reference", b.name)
		}
		seen[b.name] = true
		t.Run(b.name, func(t *testing.T) { inBubble(t, b.options, b.run) })
	}
}

// trial is a judge for a foreign server: a failure ends the behaviour's goroutine and
// nothing else.
type trial struct {
	ctx     context.Context //nolint:containedctx // of one behaviour
	failure string
}

func (*trial) Helper()                    {}
func (t *trial) Context() context.Context { return t.ctx }
func (t *trial) Fatal(args ...any)        { t.Fatalf("%s", fmt.Sprint(args...)) }

func (t *trial) Fatalf(format string, args ...any) {
	t.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// try tells how a behaviour fails; "" means that it does not.
func try(ctx context.Context, b behaviour, r rig) string {
	t := &trial{ctx: ctx}
	r.judge = t
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.run(&r)
	}()
	<-done
	return t.failure
}

// TestBehaviourElsewhere runs the table against another server: LocalStack, or what ONCEQ_SQS_URL
// names. What it is known to do differently is listed by its kind, which ONCEQ_SQS_KIND names where
// the server does not tell; a difference that disappears fails too, so that the list stays true.
func TestBehaviourElsewhere(t *testing.T) {
	s := testaws.NewSQS(t)
	kind := cmp.Or(os.Getenv("ONCEQ_SQS_KIND"), s.Kind)
	if kind == "sqsfake" {
		t.Skip("no other server: TestBehaviour checks this one")
	}
	api := s.Client(t, func(o *sqs.Options) { o.RetryMaxAttempts = 1 })
	run := fmt.Sprintf("b%x", time.Now().UnixMilli()%0xffffff)
	// The first calls to a server that just started take seconds; the ones below have timeouts.
	warm := try(t.Context(), behaviour{run: func(r *rig) {
		q := r.queue("warm")
		r.send(q, "a")
		_ = r.changeInBatch(q, r.receiveOne(q), 0)
		_ = r.removeInBatch(q, r.receiveOne(q))
		_ = r.attribute(q, "QueueArn")
	}}, rig{api: api, prefix: run})
	if warm != "" {
		t.Fatal(warm)
	}
	for name, d := range differences[kind] {
		if !slices.ContainsFunc(behaviours(), func(b behaviour) bool { return b.name == name && !b.ours }) {
			t.Errorf("the difference %q of %s is of no behaviour (%s)", name, kind, d.does)
		}
	}
	for i, b := range behaviours() {
		if b.ours {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			failure := try(t.Context(), b, rig{api: api, prefix: fmt.Sprintf("%s-%d-", run, i)})
			d, known := differences[kind][b.name]
			switch verdict(failure, known, d.sometimes) {
			case newDifference:
				t.Errorf("differs from AWS (%s): %s", b.ref, failure)
			case noDifference:
				t.Errorf("does as AWS does (%s) now: take it from the list, which says that it %s", b.ref, d.does)
			case knownDifference:
				t.Logf("known: %s; AWS is right by %s: %s", d.does, b.ref, firstLine(failure))
			case asExpected:
			}
		})
	}
}

type finding uint8

const (
	asExpected      finding = iota
	newDifference           // a red one: it is not in the list
	noDifference            // a red one: it is in the list for nothing
	knownDifference         // it is in the list
)

func verdict(failure string, known, sometimes bool) finding {
	switch {
	case failure != "" && known:
		return knownDifference
	case failure != "":
		return newDifference
	case known && !sometimes:
		return noDifference
	default:
		return asExpected
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		failure          string
		known, sometimes bool
		want             finding
	}{
		{"", false, false, asExpected},
		{"x", false, false, newDifference},
		{"x", true, false, knownDifference},
		{"x", true, true, knownDifference},
		{"", true, false, noDifference},
		{"", true, true, asExpected},
	} {
		if got := verdict(c.failure, c.known, c.sometimes); got != c.want {
			t.Errorf("verdict(%q, %v, %v) = %d, want %d", c.failure, c.known, c.sometimes, got, c.want)
		}
	}
	failing := behaviour{run: func(r *rig) { r.wantCode(nil, "Some") }}
	if got := try(t.Context(), failing, rig{}); !strings.Contains(got, `want "Some"`) {
		t.Errorf("a behaviour that fails says %q", got)
	}
	if got := try(t.Context(), behaviour{run: func(*rig) {}}, rig{}); got != "" {
		t.Errorf("one that does not fail says %q", got)
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// TestMain lets more behaviours wait at a time than there are processors: elsewhere they wait in real time.
func TestMain(m *testing.M) {
	const parallel = "test.parallel"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if !given {
		if err := flag.Set(parallel, "16"); err != nil {
			panic(err)
		}
	}
	m.Run()
}
