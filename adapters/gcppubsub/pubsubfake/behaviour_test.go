package pubsubfake_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/internal/fakeserver/elsewhere"
	"github.com/onceq/onceq/internal/testserver/testgcp"
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

// try tells how a behaviour fails elsewhere; "" means that it does not.
func try(ctx context.Context, b behaviour, r rig) string {
	return elsewhere.Try(ctx, func(j elsewhere.Judge) {
		r.Judge = j
		b.run(&r)
	})
}

// rows are the table, as far as a comparison knows it.
func rows() (rs []elsewhere.Row) {
	for _, b := range behaviours() {
		rs = append(rs, elsewhere.Row{Name: b.name, Ref: b.ref, Ours: b.ours})
	}
	return rs
}

// TestBehaviourElsewhere runs the table against another server: Google's emulator, or what the
// environment names. What it is known to do differently is listed by its kind; a difference that
// disappears fails too, so that the list stays true.
func TestBehaviourElsewhere(t *testing.T) {
	s := testgcp.NewPubSub(t)
	conn, err := dial(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	all := behaviours()
	elsewhere.Compare(t, "the service", differences[s.Kind], rows(), func(t *testing.T, i int) string {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		return try(ctx, all[i], rig{api: clients(conn), project: "projects/" + s.Project(t)})
	})
}

// A behaviour that fails elsewhere says how.
func TestVerdict(t *testing.T) {
	failing := behaviour{run: func(r *rig) { r.wantRefused(nil, "some") }}
	if got := try(t.Context(), failing, rig{}); !strings.Contains(got, "want InvalidArgument") {
		t.Errorf("a behaviour that fails says %q", got)
	}
	if got := try(t.Context(), behaviour{run: func(*rig) {}}, rig{}); got != "" {
		t.Errorf("one that does not fail says %q", got)
	}
}

func TestMain(m *testing.M) { elsewhere.Main(m, 64) }
