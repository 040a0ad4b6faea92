package cli

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns the way back of what a purge or an export wrote: dlq import, and queue send
// --from. Each command runs in the goroutine of Main.

func (a *app) importCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "import QUEUE", Short: "Put letters back that purge or export wrote; twice does no harm", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		Long: "Sends the letters of the file to the queue's dead-letter queue, as they were: with the same ids, keys,\n" +
			"fences and signatures. A letter that is there still, or was replayed since, does no harm: of each failure\n" +
			"one letter runs. So an import that ended early is run again.",
		RunE: a.unbounded(func(ctx context.Context, args []string) error {
			if file == "" {
				return exit(exitUsage, "-f is missing: the file that a purge or an export wrote, or - for the input")
			}
			return a.bringBack(ctx, args[0], file, "-f", "letter", needDead, func(w *world) bringer { return w.ImportLetters })
		}),
	}
	c.Flags().StringVarP(&file, "file", "f", "", "the file that a purge or an export wrote; - is the input")
	a.reasonFlag(c)
	return c
}

type bringer = func(ctx context.Context, queue string, ms iter.Seq2[broker.Outgoing, error], reason string) (ops.Imported, string, error)

// bringBack sends what a file has. what is one of its messages, and flag named the file.
func (a *app) bringBack(ctx context.Context, queue, file, flag, what string, needs need, by func(*world) bringer) error {
	in := a.io.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return exit(exitUsage, "%s: %w", flag, err)
		}
		defer f.Close()
		in = f
	} else {
		in = &interruptible{ctx, in}
	}
	w, err := a.open(ctx, needs, queue)
	if err != nil {
		return err
	}
	defer w.close()
	t, err := w.Target("")
	if err != nil {
		return err
	}
	if err := a.confirm(ctx, w, question{Act: "send " + what + "s to " + t.Name, Free: true}); err != nil {
		return err
	}
	got, audit, err := by(w)(ctx, t.Name, a.counting(in, what), a.reasonText)
	if audit == "" && err != nil && got.Sent == 0 {
		return usable(err)
	}
	v := importedView{Queue: t.Name, File: file, Sent: got.Sent, Refused: []string{}, Audit: audit, Completed: err == nil}
	line := out.Plural(got.Sent, what, what+"s") + " sent back"
	if audit != "" {
		line += "   audit " + audit
	}
	lines := []string{line}
	for _, e := range got.Refused {
		v.Refused = append(v.Refused, e.Error())
		lines = append(lines, "  refused: "+out.Text(e.Error()))
	}
	next := "onceq queue show " + t.Name
	if needs&needDead != 0 {
		next = "onceq dlq group " + t.Name
	}
	if e := a.show(out.Result{Lines: lines, Value: v, IDs: []string{audit}, Next: next}); e != nil {
		return e
	}
	switch {
	case isInterrupted(ctx):
		return exit(exitInterrupted, "interrupted; run it again, which does no harm")
	case err != nil && ctx.Err() == nil && got.Sent > 0:
		return exit(exitPartly, "%w; run it again, which does no harm", err)
	case err != nil:
		return usable(err)
	case len(got.Refused) > 0:
		return exit(exitPartly, "%s could not be read", out.Plural(len(got.Refused), "line", "lines"))
	}
	return nil
}

// counting tells how far the reading has come.
func (a *app) counting(in io.Reader, what string) iter.Seq2[broker.Outgoing, error] {
	return func(yield func(broker.Outgoing, error) bool) {
		n := 0
		for m, err := range dlq.ImportJSON(in) {
			if n++; n%100 == 0 {
				a.progress(fmt.Sprintf("%s %ss read", out.Int(n), what))
			}
			if !yield(m, err) {
				return
			}
		}
	}
}
