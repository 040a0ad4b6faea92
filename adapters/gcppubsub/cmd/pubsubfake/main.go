// Pubsubfake serves a strict Google Pub/Sub in memory, for tests and for work on a laptop, to a
// client of any language:
//
//	go run github.com/onceq/onceq/adapters/gcppubsub/cmd/pubsubfake -addr 127.0.0.1:8085 -subscription orders/worker
//
// See the package pubsubfake for what it does, and for faults over HTTP. It ends, and forgets
// everything, on an interrupt or SIGTERM: pulls that wait are answered, streams and what else is
// under way end.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/internal/fakecmd"
)

func main() { fakecmd.Main("pubsubfake", run) }

// settings are what the command line says.
type settings struct {
	options                pubsubfake.Options
	addr, control, project string
	topics, subscriptions  fakecmd.Names
	ordered, once          bool
	ackDeadline            time.Duration
}

func read(args []string, out io.Writer) (*settings, error) {
	var s settings
	flags := fakecmd.Flags("pubsubfake", out)
	flags.StringVar(&s.addr, "addr", "127.0.0.1:8085", "the address to listen on; port 0 takes a free one")
	flags.StringVar(&s.control, "control", "", "an address for faults and counts over HTTP; none by default")
	flags.StringVar(&s.project, "project", "test", "the project of -topic and -subscription")
	flags.Var(&s.topics, "topic", "the id of a topic to begin with; may be repeated")
	flags.Var(&s.subscriptions, "subscription", "a topic and a subscription to begin with, as orders/worker; may be repeated")
	flags.BoolVar(&s.ordered, "ordered", false, "the subscriptions keep the order of ordering keys")
	flags.BoolVar(&s.once, "exactly-once", false, "the subscriptions have exactly-once delivery, as Google calls it")
	flags.DurationVar(&s.ackDeadline, "ack-deadline", 10*time.Second, "the subscriptions' ack deadline, 10s to 600s")
	flags.BoolVar(&s.options.StrandCancelled, "strand-cancelled", false, "let pulls whose caller went away take messages, as the service may")
	flags.TextVar(&s.options.StaleAckIDs, "stale-ack-ids", pubsubfake.StaleRandom, "what old ack ids do without exactly-once delivery: random, work or ignored")
	flags.Uint64Var(&s.options.Seed, "seed", 0, "plays again what is random; 0 draws a seed")
	if err := fakecmd.Parse(flags, args, "a subscription is named with -subscription"); err != nil {
		return nil, err
	}
	return &s, nil
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	set, err := read(args, out)
	if err != nil {
		return err
	}
	srv := pubsubfake.New(&set.options)
	defer srv.Close()
	if err := set.create(ctx, srv); err != nil {
		return err
	}
	srv.ResetLog() // what this command asked for is nobody's
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", set.addr)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	control := ""
	if set.control != "" {
		c, err := (&net.ListenConfig{}).Listen(ctx, "tcp", set.control)
		if err != nil {
			_ = l.Close()
			return err
		}
		control = fakecmd.Reachable(c.Addr().String())
		h := &http.Server{Handler: srv.Control(), ReadHeaderTimeout: 10 * time.Second}
		defer h.Close() //nolint:errcheck // nothing is lost
		go func() { failed <- h.Serve(c) }()
	}
	if _, err := io.WriteString(out, directions(fakecmd.Reachable(l.Addr().String()), control, srv.Seed(), set)); err != nil {
		_ = l.Close()
		return err
	}
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	_, _ = fmt.Fprintln(out, "closing") // nobody may read any longer
	return nil
}

// create makes the topics and subscriptions that the command line names.
func (s *settings) create(ctx context.Context, srv *pubsubfake.Server) error {
	topic := func(id string) (string, error) {
		name := "projects/" + s.project + "/topics/" + id
		_, err := srv.CreateTopic(ctx, &pubsubpb.Topic{Name: name})
		if status.Code(err) == codes.AlreadyExists {
			err = nil
		}
		return name, err
	}
	for _, id := range s.topics {
		if _, err := topic(id); err != nil {
			return fmt.Errorf("-topic %s: %w", id, err)
		}
	}
	for _, pair := range s.subscriptions {
		of, id, ok := strings.Cut(pair, "/")
		if !ok {
			return fmt.Errorf("-subscription %s: it has the form TOPIC/SUBSCRIPTION", pair)
		}
		name, err := topic(of)
		if err == nil {
			_, err = srv.CreateSubscription(ctx, &pubsubpb.Subscription{
				Name: "projects/" + s.project + "/subscriptions/" + id, Topic: name, EnableMessageOrdering: s.ordered,
				EnableExactlyOnceDelivery: s.once, AckDeadlineSeconds: int32(s.ackDeadline / time.Second),
			})
		}
		if err != nil {
			return fmt.Errorf("-subscription %s: %w", pair, err)
		}
	}
	return nil
}

// directions tell how to reach the server.
func directions(addr, control string, seed uint64, set *settings) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pubsubfake serves Pub/Sub at %s\n", addr)
	if control != "" {
		fmt.Fprintf(&b, "faults and counts at http://%s/_pubsubfake/\n", control)
	}
	for _, id := range set.topics {
		fmt.Fprintf(&b, "topic projects/%s/topics/%s\n", set.project, id)
	}
	for _, pair := range set.subscriptions {
		of, id, _ := strings.Cut(pair, "/")
		fmt.Fprintf(&b, "subscription projects/%s/subscriptions/%s of projects/%s/topics/%s\n", set.project, id, set.project, of)
	}
	fmt.Fprintf(&b, "what is random plays again with -seed %d\n", seed)
	fmt.Fprintf(&b, `To point Google's client libraries at it:

  export PUBSUB_EMULATOR_HOST=%s PUBSUB_PROJECT_ID=%s
`, addr, set.project)
	return b.String()
}
