package cli

import (
	"bufio"
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
}

// confirm asks, and refuses what nobody confirms. Under a protected profile it asks for the
// profile's name, too.
func (a *app) confirm(w *world, q question) error {
	if q.Plan != "" {
		a.say("%s", strings.TrimRight(q.Plan, "\n"))
	}
	protected := w != nil && w.profile != nil && w.profile.Protect
	switch {
	case q.Free && !protected:
		return nil
	case a.io.Terminal && !a.yes && !q.Free:
		if err := a.typed(q.Want, q.Act); err != nil {
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
		return a.typed(name, "go on in the protected profile "+name)
	}
	if said, _ := a.io.Env("ONCEQ_CONFIRM"); said != name {
		return exit(exitRefused, "profile %s is protected: --yes alone does not do; set ONCEQ_CONFIRM=%s beside it", name, name)
	}
	return nil
}

// typed asks for a word.
func (a *app) typed(want, act string) error {
	_, _ = fmt.Fprintf(a.io.Err, "Type %s to %s: ", want, act)
	got, err := a.line()
	switch {
	case err != nil:
		return exit(exitRefused, "not confirmed: %w", err)
	case got != want:
		return exit(exitRefused, "not confirmed: %q is not %s; nothing was done", got, want)
	}
	return nil
}

// line reads what a person types.
func (a *app) line() (string, error) {
	in, ok := a.io.In.(*bufio.Reader)
	if !ok {
		in = bufio.NewReaderSize(a.io.In, 16)
		a.io.In = in
	}
	s, err := in.ReadString('\n')
	if err != nil && (s == "" || err != io.EOF) {
		return "", err
	}
	return strings.TrimSpace(s), nil
}

// reason is why somebody acts: --reason, or what he types.
func (a *app) reason() (string, error) {
	r := strings.TrimSpace(a.reasonText)
	if r == "" && a.io.Terminal {
		_, _ = fmt.Fprint(a.io.Err, "Why? (others read it): ")
		var err error
		if r, err = a.line(); err != nil {
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
