// Command email sends mails that must not be sent twice.
//
// The trap: SMTP knows no idempotency key. When the server has taken the mail and its answer never
// comes, or the worker dies before its own record, nobody in the program knows whether it was sent;
// a redelivery sends it again.
//
// The answer: Interrupted: dedupe.Park. A job that was cut off is not run again; it becomes a dead
// letter of class "interrupted", and an operator who looks into the mail server's log decides. Its
// Message-ID is the job's EffectKey, so that it can be found there. Where the provider takes an
// idempotency key, nobody needs to decide: see the last scene.
//
// Under Park a plain error is the handler's word that nothing has happened: only what the server
// itself refuses may end in one.
//
//	go run ./examples/email
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/examples/internal/screen"
)

type mail struct{ To, Subject string }

// mails are what is sent; the first one twice, as a producer does that saw no answer.
var mails = []mail{
	{"ann@example.com", "welcome"},
	{"bob@example.com", "invoice"},  // its connection is reset after the server took it
	{"cem@example.com", "reminder"}, // the server goes silent before it takes it
	{"dan@example.com", "ticket"},   // the server says: not now
	{"ann@example.com", "welcome"},
}

// sender is the handler: the whole of the program's own work.
func sender(s *server) onceq.Handler {
	return onceq.JSON(func(ctx context.Context, j *onceq.Job, m mail) error {
		err := s.send(ctx, j.EffectKey("mail"), m)
		_, refused := errors.AsType[*refusal](err)
		if err == nil || refused || ctx.Err() != nil {
			// Sent; or not sent, and tried again; or cut off by the job's Timeout or a deploy,
			// which parks it.
			return err
		}
		// Sent or not? It parks the job under Park, and is an error under Rerun.
		return onceq.Unknown(err)
	})
}

// cutOff is how long a mail server may take.
const cutOff = 50 * time.Millisecond

// scene sends the mails, and lets the operator decide what is left.
func scene(ctx context.Context, out io.Writer, s *server, policy dedupe.Policy) {
	queue, dead, store := must(membroker.New(nil)), must(membroker.New(nil)), must(memstore.New(nil))
	for _, m := range mails {
		body := must(json.Marshal(m))
		check(onceq.SendOne(ctx, queue, &broker.Outgoing{Body: body, Meta: &broker.Meta{Key: m.Subject + " " + m.To}}))
	}
	work := func(ends int) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		p := must(onceq.NewProcessor(onceq.ProcessorConfig{
			Handler: sender(s), Store: store, Scope: "mails",
			Defaults: onceq.JobOptions{
				Timeout:     cutOff,
				Interrupted: policy,
				Backoff:     func(int, error) time.Duration { return cutOff },
			},
			Logger: slog.New(slog.DiscardHandler), Observer: &screen.Screen{Out: out, Left: ends, Last: stop, Line: func(_ context.Context, r *onceq.JobReport) string {
				return fmt.Sprintf("  worker:   %-24s %s", dlq.Printable(r.Key.Key), strings.TrimSpace(string(r.Outcome)+" "+r.ErrClass))
			}},
		}))
		w := must(p.Worker(queue, onceq.WorkerConfig{
			DeadLetter:  dead,
			Concurrency: 1, // one after the other, so that the screen is easy to read
		}))
		check(w.Run(ctx))
	}
	work(len(mails))
	if again := operator(ctx, out, queue, dead, store, s); again > 0 {
		work(again)
	}
	s.report(out)
}

// operator decides about each dead letter by the mail server's log, and tells how many letters went
// back.
func operator(ctx context.Context, out io.Writer, queue, dead *membroker.Broker, store dedupe.Store, s *server) int {
	interrupted := dlq.Filter{Class: onceq.ClassInterrupted}
	letters := must(dlq.New(dead, &dlq.Options{Wait: cutOff}))
	for letter, err := range letters.List(ctx, interrupted) {
		check(err)
		key := dedupe.Key{Scope: "mails", Key: letter.Message.Meta.Key}
		if !s.sent(onceq.EffectKey(key, "mail")) {
			fmt.Fprintf(out, "  operator: %-24s the log has nothing: it shall run again\n", key.Key)
			continue
		}
		fmt.Fprintf(out, "  operator: %-24s the log has it: mark it done\n", key.Key)
		check(dedupe.Resolve(ctx, store, key, letter.Message.Meta.Dead.Fence, dedupe.Done, nil))
	}
	// A letter has the permission to reopen its failure, once. Those that are done now are answered
	// "already done".
	return must(letters.Replay(ctx, dlq.ReplayOptions{Filter: interrupted, To: queue})).Replayed
}

// run shows the three ways, and gives the servers for the test to ask.
func run(ctx context.Context, out io.Writer) (rerun, park, keyed *server) {
	rerun, park, keyed = newServer(false), newServer(false), newServer(true)
	fmt.Fprintln(out, "SMTP, at least once (Rerun, the default): what was cut off is run again")
	scene(ctx, out, rerun, dedupe.Rerun)
	fmt.Fprintln(out, "\nSMTP, at most once (Park): what was cut off waits for an operator")
	scene(ctx, out, park, dedupe.Park)
	fmt.Fprintln(out, "\na provider that takes an idempotency key (Rerun): nobody has to decide")
	scene(ctx, out, keyed, dedupe.Rerun)
	return rerun, park, keyed
}

func main() { run(context.Background(), os.Stdout) }

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
