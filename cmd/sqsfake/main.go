// Sqsfake serves a strict SQS in memory, for tests and for work on a laptop, to an SDK of
// any language:
//
//	go run github.com/onceq/onceq/cmd/sqsfake -addr 127.0.0.1:9324 -queue orders -queue payments.fifo
//
// See the package sqsfake for what it does, and for faults over HTTP. It ends,
// and forgets everything, on an interrupt or SIGTERM: receives that wait are answered, calls
// under way end within the time of -drain.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/internal/fakecmd"
	"github.com/onceq/onceq/sqsfake"
)

func main() { fakecmd.Main("sqsfake", run) }

// run serves until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	var o sqsfake.Options
	var queues fakecmd.Names
	flags := fakecmd.Flags("sqsfake", out)
	addr := flags.String("addr", "127.0.0.1:9324", "the address to listen on; port 0 takes a free one")
	drain := flags.Duration("drain", 5*time.Second, "how long calls under way may take at the end")
	flags.Var(&queues, "queue", "the name of a queue to begin with, .fifo for a FIFO queue; may be repeated")
	flags.StringVar(&o.Region, "region", "us-east-1", "the region in ARNs")
	flags.StringVar(&o.Account, "account", "000000000000", "the account in ARNs and queue URLs")
	flags.IntVar(&o.MaxInFlight, "max-in-flight", 120_000, "how many messages of a queue may be in flight")
	flags.BoolVar(&o.ReportLostLeases, "report-lost-leases", false, "answer an extension after the timeout with an error; AWS answers OK")
	flags.BoolVar(&o.StrandCancelled, "strand-cancelled", false, "let long polls whose caller went away take messages, as AWS does")
	flags.TextVar(&o.StaleHandles, "stale-handles", sqsfake.StaleRandom, "what old receipt handles of standard queues do: random, work or ignored")
	flags.TextVar(&o.ShortPolls, "short-polls", sqsfake.ShortPollsSampled, "what receives that do not wait bring of standard queues: sampled or whole")
	flags.Uint64Var(&o.Seed, "seed", 0, "plays again what is random; 0 draws a seed")
	flags.BoolVar(&o.RecreateAtOnce, "recreate-at-once", false, "allow a queue of a deleted one's name within 60 seconds")
	if err := fakecmd.Parse(flags, args, "a queue is named with -queue"); err != nil {
		return err
	}
	if _, err := strconv.ParseUint(o.Account, 10, 64); err != nil || len(o.Account) != 12 {
		return fmt.Errorf("-account %s: an account has 12 digits", o.Account)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	s := sqsfake.New(&o)
	defer s.Close()
	s.URL = "http://" + fakecmd.Reachable(l.Addr().String()) // queue URLs name whatever host a client calls
	urls := make([]string, len(queues))
	for i, name := range queues {
		if urls[i], err = s.CreateQueue(name, nil); err != nil {
			_ = l.Close()
			return fmt.Errorf("-queue %s: %w", name, err)
		}
	}
	if _, err := io.WriteString(out, directions(s.URL, o.Region, s.Seed(), urls)); err != nil {
		_ = l.Close()
		return err
	}

	var calls atomic.Int64 // under way
	h := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		defer calls.Add(-1)
		s.ServeHTTP(w, r)
	})}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	_, _ = fmt.Fprintln(out, "draining") // nobody may read any longer
	s.Drain()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), *drain)
	defer cancel()
	if err := h.Shutdown(end); err != nil {
		n := calls.Load()
		_ = h.Close()
		if n > 0 { // else connections that asked nothing yet: they are busy to Shutdown for 5 s
			return fmt.Errorf("%d calls were under way after -drain %v: %w", n, *drain, err)
		}
	}
	return nil
}

// directions tell how to reach the server.
func directions(url, region string, seed uint64, urls []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "sqsfake serves SQS at %s\n", url)
	for _, u := range urls {
		fmt.Fprintf(&b, "queue %s\n", u)
	}
	fmt.Fprintf(&b, "what is random plays again with -seed %d\n", seed)
	// Python's SDK reads AWS_DEFAULT_REGION, the others AWS_REGION.
	fmt.Fprintf(&b, `To point any SDK at it, or version 2 of the AWS command line:

  export AWS_ENDPOINT_URL_SQS=%s AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
  export AWS_REGION=%s AWS_DEFAULT_REGION=%s

Version 1 of the command line passes over the address and calls the real AWS, unless it is given: aws --endpoint-url %s sqs list-queues
In Go: sqs.NewFromConfig(cfg, func(o *sqs.Options) { o.BaseEndpoint = aws.String(%q) })
`, url, region, region, url, url)
	return b.String()
}
