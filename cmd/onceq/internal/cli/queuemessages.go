package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/ops"
)

// This file owns peek, send and purge of a live queue. Each command runs in the goroutine of Main.

func (a *app) peekCommand() *cobra.Command {
	var n int
	var force bool
	c := &cobra.Command{
		Use: "peek QUEUE", Short: "Look at some messages; outside of databases each has one receive more then", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		RunE: a.run(func(ctx context.Context, args []string) error {
			if n < 1 || n > ops.MaxPeek {
				return exit(exitUsage, "-n: %d, want 1 to %d", n, ops.MaxPeek)
			}
			w, err := a.open(ctx, 0, args[0])
			if err != nil {
				return err
			}
			defer w.close()
			t, err := w.Target("")
			if err != nil {
				return err
			}
			ms, err := w.Peek(ctx, t.Name, ops.PeekOptions{Max: n, Force: force})
			if errors.Is(err, ops.ErrRefused) {
				return exitWith(exitRefused, fmt.Errorf("%w (--force looks all the same)", err))
			}
			if err != nil && len(ms) == 0 {
				return err
			}
			r := out.Result{Columns: out.Columns("KEY", "TYPE", "RECEIVES>", "SENT@", "GROUP", "BODY"), Empty: "nothing came", Next: "onceq key show KEY"}
			for _, m := range ms {
				v := viewMessage(m)
				receives := out.None
				if m.Attempt > 0 {
					receives = out.Int(m.Attempt)
				}
				r.Add(m.ID, v, cutKey(v.Key), cutName(v.Type), receives, a.out.Time(m.Published), out.Or(m.Group), out.Cut(body(m), 60))
			}
			if len(ms) == 0 {
				r.Next = ""
			}
			if e := a.show(r); e != nil {
				return e
			}
			if _, ok := broker.As[broker.Peeker](t.Queue); ok {
				a.say("read %s of %s, in its database; nothing was received", out.Int(len(ms)), t.Name)
				return err
			}
			a.say("received %s of %s; each has one receive more; given back", out.Int(len(ms)), t.Name)
			if p, ok := broker.As[broker.Redriver](t.Queue); ok && len(ms) > 0 {
				if policy, e := p.Redrive(ctx); e == nil && policy.MaxReceives > 0 {
					a.say("%s counts receives, to %d", t.Name, policy.MaxReceives)
				}
			}
			return err
		}),
	}
	c.Flags().IntVarP(&n, "count", "n", 10, "how many")
	c.Flags().BoolVar(&force, "force", false, "also where groups stand still meanwhile (FIFO queues)")
	return c
}

func body(m *broker.Message) string {
	if !utf8.Valid(m.Body) {
		return fmt.Sprintf("(%s, not text)", out.Bytes(len(m.Body)))
	}
	return out.Text(string(m.Body[:min(len(m.Body), 400)]))
}

func viewMessage(m *broker.Message) messageView {
	v := messageView{ID: m.ID, Group: m.Group, Attempt: m.Attempt, Published: out.Stamp(m.Published), Attributes: m.Attributes}
	if v.Attributes == nil {
		v.Attributes = map[string]string{}
	}
	if m.Meta != nil {
		v.Key, v.Type, v.Job, v.Created = m.Meta.Key, m.Meta.Type, m.Meta.ID, out.Stamp(m.Meta.Created)
	}
	if m.MetaErr != nil {
		v.MetaError = m.MetaErr.Error()
	}
	if utf8.Valid(m.Body) {
		v.Body = new(string(m.Body))
	} else {
		v.Base64 = m.Body
	}
	return v
}

// A removedView is a line of the file that a purge of a live queue writes: all that is needed to
// send the message again.
type removedView struct {
	messageView
	Meta json.RawMessage `json:"onceq,omitempty"`
}

func viewRemoved(m *broker.Message) removedView {
	v := removedView{messageView: viewMessage(m)}
	if m.Meta != nil {
		v.Meta = json.RawMessage(broker.EncodeMeta(m.Meta))
	}
	return v
}

// maxBody is more than any queue takes.
const maxBody = 16 << 20

func (a *app) sendCommand() *cobra.Command {
	var typ, key, group, file, from string
	var delay time.Duration
	var send func(ctx context.Context, args []string) error
	c := &cobra.Command{
		Use: "send QUEUE", Short: "Send one job; its body comes from a file or the input", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		Long: "--from sends what \"queue purge\" wrote into its file, each message as it was: with the same id, key, fence and\n" +
			"limits. A message that was sent before does no harm, because of each key one runs.",
		RunE: func(c *cobra.Command, args []string) error {
			run := a.run
			if from != "" {
				run = a.unbounded
			}
			return run(send)(c, args)
		},
	}
	send = func(ctx context.Context, args []string) error {
		switch {
		case delay < 0:
			return exit(exitUsage, "--delay: %v is negative", delay)
		case from != "" && (typ != "" || key != "" || group != "" || delay > 0 || file != "-"):
			return exit(exitUsage, "--from has whole messages: leave --type, --key, --group, --delay and -f out")
		case from != "":
			return a.bringBack(ctx, args[0], from, "--from", "message", 0, func(w *world) bringer { return w.SendBack })
		}
		b, err := a.read(ctx, file)
		if err != nil {
			return err
		}
		w, err := a.open(ctx, 0, args[0])
		if err != nil {
			return err
		}
		defer w.close()
		t, err := w.Target("")
		if err != nil {
			return err
		}
		if err := a.confirm(ctx, w, question{Act: "send a job to " + t.Name, Free: true}); err != nil {
			return err
		}
		m := &broker.Outgoing{Body: b, Group: group, Delay: delay, Meta: &broker.Meta{Type: typ, Key: key}}
		audit, err := w.Send(ctx, t.Name, m, a.reasonText)
		if err != nil {
			return usable(err)
		}
		v := sentView{Key: m.Meta.Key, ID: m.Meta.ID, Queue: t.Name, Audit: audit}
		line := fmt.Sprintf("sent %s to %s", out.Text(v.Key), t.Name)
		if audit != "" {
			line += "   audit " + audit
		}
		return a.show(out.Result{Lines: []string{line}, Value: v, IDs: []string{v.Key}, Next: suggest("key show", "", v.Key)})
	}
	f := c.Flags()
	f.StringVar(&typ, "type", "", "the job's type")
	f.StringVar(&key, "key", "", "its idempotency key (default: its id, which is new)")
	f.StringVar(&group, "group", "", "its group, on queues that keep an order")
	f.Var(span{&delay}, "delay", "deliver it later, such as 5m")
	f.StringVarP(&file, "file", "f", "-", "the body; - is the input")
	f.StringVar(&from, "from", "", "send the messages of a file that \"queue purge\" wrote, as they were")
	a.reasonFlag(c)
	return c
}

// read reads a file, or the input.
func (a *app) read(ctx context.Context, file string) ([]byte, error) {
	in := a.io.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, exit(exitUsage, "-f: %w", err)
		}
		defer f.Close()
		in = f
	}
	a.bound.rest() // a program in front of a pipe may take its time, and so may a person
	b, err := input(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(in, maxBody+1)) })
	a.bound.goOn()
	switch {
	case isInterrupted(ctx):
		return nil, exit(exitInterrupted, "interrupted; nothing was done")
	case err != nil:
		return nil, exit(exitUsage, "-f %s: %w", file, err)
	case len(b) > maxBody:
		return nil, exit(exitUsage, "-f %s: more than %s", file, out.Bytes(maxBody))
	}
	return b, nil
}

func (a *app) purgeQueueCommand() *cobra.Command {
	var most int
	var file string
	var dry bool
	c := &cobra.Command{
		Use: "purge QUEUE", Short: "Remove messages of a live queue, into a file; their jobs never run", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		Long: "Removes messages that nobody holds, and writes each to the file (NDJSON) before. Without --dry-run=false\n" +
			"it only says how many there are. \"queue send --from FILE\" sends them again, as they were.",
		RunE: a.unbounded(func(ctx context.Context, args []string) error {
			w, err := a.open(ctx, 0, args[0])
			if err != nil {
				return err
			}
			defer w.close()
			states, err := w.Overview(ctx)
			if err != nil {
				return err
			}
			q := &states[0]
			v := emptiedView{Queue: q.Queue, DryRun: dry}
			visible := "an unknown number of"
			if q.Depth != nil {
				v.Visible = &q.Depth.Visible
				visible = "about " + out.Int(q.Depth.Visible)
			}
			plan := fmt.Sprintf("%s has %s messages that nobody holds", q.Queue, visible)
			if v.DryRun {
				next := fmt.Sprintf("onceq queue purge %s --dry-run=false --max N -f FILE --reason TEXT", q.Queue)
				return a.show(out.Result{Lines: []string{plan + "; nothing was removed"}, Value: v, Next: next})
			}
			if most < 1 {
				return exit(exitUsage, "--max is missing: how many messages may be removed at most")
			}
			if file == "" {
				return exit(exitUsage, "-f is missing: the file that keeps what is removed")
			}
			reason, err := a.reason(ctx)
			if err != nil {
				return err
			}
			want := fmt.Sprint(most)
			if err := a.confirm(ctx, w, question{Plan: plan, Want: want, Act: "remove up to " + out.Int(most) + " messages", Bounded: true}); err != nil {
				return err
			}
			keep, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return exit(exitUsage, "-f: %w", err)
			}
			lines := json.NewEncoder(keep)
			each := func(m *broker.Message) error {
				a.progress("removing …")
				if err := lines.Encode(viewRemoved(m)); err != nil {
					return err
				}
				return keep.Sync() // what is removed must not be lost with the machine
			}
			v.Removed, v.Audit, err = w.Empty(ctx, q.Queue, ops.EmptyOptions{Max: most, Each: each, Reason: reason})
			a.progress("")
			err = errors.Join(err, keep.Sync(), keep.Close())
			line := fmt.Sprintf("removed %s into %s   audit %s", out.Plural(v.Removed, "message", "messages"), file, v.Audit)
			if e := a.show(out.Result{Lines: []string{line}, Value: v, Next: "onceq queue show " + q.Queue}); e != nil {
				return e
			}
			if err != nil && v.Removed > 0 && ctx.Err() == nil {
				return exitWith(exitPartly, err)
			}
			return usable(err)
		}),
	}
	f := c.Flags()
	f.BoolVar(&dry, "dry-run", true, "only say what there is; --dry-run=false removes")
	f.IntVar(&most, "max", 0, "how many at most")
	f.StringVarP(&file, "file", "f", "", "the new file that keeps what is removed")
	a.reasonFlag(c)
	return c
}
