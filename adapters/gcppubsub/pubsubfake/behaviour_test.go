package pubsubfake_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/internal/testserver/testpubsub"
)

// A behaviour is something that Pub/Sub does. The same table runs against this server, called
// directly and over gRPC, in virtual time, and against the emulator that the environment names:
//
//	PUBSUB_EMULATOR_HOST=127.0.0.1:8085 go test -run Elsewhere ./pubsubfake
type behaviour struct {
	name string
	// ref says how we know: "doc" is Google's documentation, "proto" the comments of the API's
	// definition, "client" what Google's Go client goes by, "seen" what users of the service
	// report, "emulator" what Google's emulator does where nothing else tells.
	ref string
	// ours marks what Google leaves open and this server has decided, or what takes minutes: others
	// are not asked.
	ours bool
	// options set up our server, where Google leaves it open what it does.
	options pubsubfake.Options
	run     func(r *rig)
}

func behaviours() []behaviour {
	return slices.Concat(messageBehaviours, publishBehaviours, pullBehaviours, orderBehaviours, onceBehaviours,
		deadLetterBehaviours, topicBehaviours, subscriptionBehaviours, seekBehaviours, filterBehaviours)
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

func TestBehaviourOverGRPC(t *testing.T) {
	for _, b := range behaviours() {
		t.Run(b.name, func(t *testing.T) { overGRPC(t, b.options, b.run) })
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

// TestBehaviourElsewhere runs the table against another server: Google's emulator, or what the
// environment names. What it is known to do differently is listed by its kind; a difference that
// disappears fails too, so that the list stays true.
func TestBehaviourElsewhere(t *testing.T) {
	s := testpubsub.New(t)
	for name, d := range differences[s.Kind] {
		if !slices.ContainsFunc(behaviours(), func(b behaviour) bool { return b.name == name && !b.ours }) {
			t.Errorf("the difference %q of %s is of no behaviour (%s)", name, s.Kind, d.does)
		}
	}
	conn, err := dial(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for _, b := range behaviours() {
		if b.ours {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			failure := try(ctx, b, rig{api: clients(conn), project: "projects/" + s.Project(t)})
			d, known := differences[s.Kind][b.name]
			switch verdict(failure, known, d.sometimes) {
			case newDifference:
				t.Errorf("differs from the service (%s): %s", b.ref, failure)
			case noDifference:
				t.Errorf("does as the service does (%s) now: take it from the list, which says that it %s", b.ref, d.does)
			case knownDifference:
				t.Logf("known: %s; the service is right by %s: %s", d.does, b.ref, firstLine(failure))
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
	failing := behaviour{run: func(r *rig) { r.wantRefused(nil, "some") }}
	if got := try(t.Context(), failing, rig{}); !strings.Contains(got, "want InvalidArgument") {
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

// TestMain lets more behaviours wait at a time than there are processors: elsewhere they wait in
// real time.
func TestMain(m *testing.M) {
	const parallel = "test.parallel"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if !given {
		if err := flag.Set(parallel, "64"); err != nil {
			panic(err)
		}
	}
	m.Run()
}
