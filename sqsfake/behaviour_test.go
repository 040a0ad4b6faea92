package sqsfake_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/internal/fakeserver/elsewhere"
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
	all := behaviours()
	elsewhere.Compare(t, "AWS", differences[kind], rows(), func(t *testing.T, i int) string {
		return try(t.Context(), all[i], rig{api: api, prefix: fmt.Sprintf("%s-%d-", run, i)})
	})
}

// A behaviour that fails elsewhere says how.
func TestVerdict(t *testing.T) {
	failing := behaviour{run: func(r *rig) { r.wantCode(nil, "Some") }}
	if got := try(t.Context(), failing, rig{}); !strings.Contains(got, `want "Some"`) {
		t.Errorf("a behaviour that fails says %q", got)
	}
	if got := try(t.Context(), behaviour{run: func(*rig) {}}, rig{}); got != "" {
		t.Errorf("one that does not fail says %q", got)
	}
}

func TestMain(m *testing.M) { elsewhere.Main(m, 16) }
