package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A question precedes an act that cannot be undone, or that others feel.
type question struct {
	// Plan is what is shown before.
	Plan string
	// Want is what a person types to go on, mostly a number of the plan; Act says what for:
	// "replay 2,107 letters".
	Want, Act string
	// Bounded says that the caller has named what the act may reach at most (--plan, --max, a
	// fence, an end). Without a terminal --yes alone does not do.
	Bounded bool
	// Free acts ask for nothing but the name of a protected profile.
	Free bool
	// SoFar is what has been done when it is asked. Default: nothing was done.
	SoFar string
}

// confirm asks, and refuses what nobody confirms. Under a protected profile it asks for the
// profile's name, too.
func (a *app) confirm(ctx context.Context, w *world, q question) error {
	q.SoFar = cmp.Or(q.SoFar, "nothing was done")
	if q.Plan != "" {
		a.say("%s", strings.TrimRight(q.Plan, "\n"))
	}
	protected := w != nil && w.profile != nil && w.profile.Protect
	switch {
	case q.Free && !protected:
		return nil
	case a.io.Terminal && !a.yes && !q.Free:
		if err := a.typed(ctx, q.Want, q.Act, q.SoFar); err != nil {
			return err
		}
	case a.io.Terminal:
	case !a.yes && !q.Free:
		if q.Bounded {
			return exit(exitRefused, "not confirmed: there is no terminal to ask; --yes goes on")
		}
		return exit(exitRefused, "not confirmed: there is no terminal to ask; --yes with a bound (--plan FILE, --max N) goes on")
	case !q.Bounded && !q.Free:
		return exit(exitRefused, "--yes wants a bound beside it: --plan FILE or --max N")
	}
	if !protected {
		return nil
	}
	name := w.profile.Name
	if a.io.Terminal {
		return a.typed(ctx, name, "go on in the protected profile "+name, q.SoFar)
	}
	if said, _ := a.io.Env("ONCEQ_CONFIRM"); said != name {
		return exit(exitRefused, "profile %s is protected: --yes alone does not do; set ONCEQ_CONFIRM=%s beside it", name, name)
	}
	return nil
}

// typed asks for a word.
func (a *app) typed(ctx context.Context, want, act, soFar string) error {
	_, _ = fmt.Fprintf(a.io.Err, "Type %s to %s: ", want, act)
	got, err := a.line(ctx)
	switch {
	case isInterrupted(ctx):
		return exit(exitInterrupted, "interrupted; %s", soFar)
	case err != nil:
		return exit(exitRefused, "not confirmed: %w; %s", err, soFar)
	case got != want:
		return exit(exitRefused, "not confirmed: %q is not %s; %s", got, want, soFar)
	}
	return nil
}

// line reads what a person types. While it waits, --timeout does not run.
func (a *app) line(ctx context.Context) (string, error) {
	in, ok := a.io.In.(*bufio.Reader)
	if !ok {
		in = bufio.NewReaderSize(a.io.In, 16)
		a.io.In = in
	}
	a.bound.rest()
	defer a.bound.goOn()
	b, err := input(ctx, func() ([]byte, error) { return in.ReadBytes('\n') })
	switch {
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(a.io.Err) // behind the prompt
		return "", err
	case err != nil && (len(b) == 0 || err != io.EOF):
		return "", err
	}
	return string(bytes.TrimSpace(b)), nil
}

// input is what read brings, unless ctx ends before: ctrl-C ends the command at once, also while a
// person is asked. Nothing cuts off a read of a terminal, so it is left behind then.
func input(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type answer struct {
		b   []byte
		err error
	}
	got := make(chan answer, 1)
	go func() {
		b, err := read()
		got <- answer{b, err}
	}()
	select {
	case x := <-got:
		return x.b, x.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// isInterrupted reports whether a person, or a signal, ended the command.
func isInterrupted(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// reason is why somebody acts: --reason, or what he types.
func (a *app) reason(ctx context.Context) (string, error) {
	r := strings.TrimSpace(a.reasonText)
	if r == "" && a.io.Terminal {
		_, _ = fmt.Fprint(a.io.Err, "Why? (others read it): ")
		var err error
		if r, err = a.line(ctx); isInterrupted(ctx) {
			return "", exit(exitInterrupted, "interrupted; nothing was done")
		} else if err != nil {
			return "", exit(exitUsage, "--reason: %w", err)
		}
	}
	switch {
	case r == "":
		return "", exit(exitUsage, "--reason is missing: say why, others read it")
	case len(r) > maxReason:
		return "", exit(exitUsage, "--reason: %d bytes, the limit is %d", len(r), maxReason)
	}
	return r, nil
}

// maxReason is what a rule and an audit record take.
const maxReason = 256
