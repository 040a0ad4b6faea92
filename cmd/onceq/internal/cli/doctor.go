package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/places"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/ops"
)

// This file owns the command doctor, and how the card of a deployment is read. It runs in the
// goroutine of Main; nothing is locked.

func (a *app) doctorCommand() *cobra.Command {
	var do ops.DoctorOptions
	var card string
	c := &cobra.Command{
		Use: "doctor QUEUE", Short: "What is set wrongly, or about to fail, and what mends it", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		Long: "Checks the queue, its dead-letter queue, the store and the workers against each other, and says of each\n" +
			"finding what mends it. It changes nothing. Exit 1: something was found. 3: nothing was, and a check could\n" +
			"not be asked; the others were. With --card a deployment is checked before it is deployed: the file has\n" +
			"one worker as \"onceq workers QUEUE -o json\" prints it. Rights are always asked as the caller's own.",
		RunE: a.run(func(ctx context.Context, args []string) error {
			if do.NotBefore < 0 {
				return exit(exitUsage, "--not-before: %v is negative", do.NotBefore)
			}
			var err error
			if do.Card, err = a.readCard(ctx, card); err != nil {
				return err
			}
			a.old = true // the check of the table says it
			w, err := a.open(ctx, needParts, args[0])
			if err != nil {
				return err
			}
			defer w.close()
			return a.doctor(ctx, w, &do)
		}),
	}
	f := c.Flags()
	f.StringVar(&card, "card", "", "check the deployment whose card this file has (JSON; - = standard input)")
	f.Var(span{&do.NotBefore}, "not-before", "the longest time that a job waits for its not-before")
	f.BoolVar(&do.Letters, "letters", false, "look at dead letters, too, where that gives each a receive more")
	f.BoolVar(&do.Write, "write", false, "ask for the right to write by writing: one key is claimed, finished and removed")
	return c
}

func (a *app) doctor(ctx context.Context, w *world, do *ops.DoctorOptions) error {
	t, err := w.Target("")
	if err != nil {
		return err
	}
	do.Services = places.Checks(t.Queue)
	if a.timeout > 0 {
		do.Patience = min(5*time.Second, a.timeout/3)
	}
	r := out.Result{Columns: out.Columns("CHECK", "STATE", "WHAT"), Items: []any{}, Next: "onceq queue show " + t.Name}
	found, mends := 0, []string{}
	var refused error
	for c, err := range w.Doctor(ctx, t.Name, do) {
		if err != nil {
			return usable(err)
		}
		v := checkupView{Check: c.Check, State: string(c.State), Text: c.Text, Mend: c.Mend}
		state, text := string(c.State), c.Text
		if c.Err != nil {
			v.Error = c.Err.Error()
			text += ": " + out.Error(c.Err)
			if refused == nil {
				refused = fmt.Errorf("%s: %w", c.Check, c.Err)
			}
		}
		if c.State == ops.CheckFound {
			found++
			state = "FOUND"
			mends = append(mends, fmt.Sprintf("%s: %s", c.Check, out.Text(c.Mend)))
		}
		r.Add(c.Check, v, c.Check, state, out.Text(text))
	}
	if len(mends) > 0 {
		r.Lines = append([]string{"", "to mend"}, mends...)
	}
	if do.Card != nil {
		r.Title = "a deployment that is not there yet; rights are those of whoever runs this"
	}
	if err := a.show(r); err != nil {
		return err
	}
	switch {
	case found > 0:
		return exitWith(exitFound, nil)
	case refused != nil:
		return refused
	}
	return nil
}

// readCard reads the settings of a deployment; no name is none.
func (a *app) readCard(ctx context.Context, name string) (*control.WorkerStatus, error) {
	if name == "" {
		return nil, nil
	}
	refuse := func(format string, args ...any) (*control.WorkerStatus, error) {
		return nil, exit(exitUsage, "--card: %s: "+format, append([]any{out.Text(name)}, args...)...)
	}
	var b []byte
	var err error
	if name == "-" {
		b, err = io.ReadAll(&interruptible{ctx, a.io.In})
	} else {
		b, err = os.ReadFile(name)
	}
	switch {
	case isInterrupted(ctx):
		return nil, exit(exitInterrupted, "interrupted; nothing was done")
	case err != nil:
		return nil, exit(exitUsage, "--card: %w", err)
	}
	b = bytes.TrimSpace(b)
	if !bytes.HasPrefix(b, []byte("[")) {
		b = append(append([]byte("["), b...), ']')
	}
	var vs []workerView
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields() // a setting that is misspelt would go unchecked
	if err := d.Decode(&vs); err != nil {
		return refuse("%w", err)
	}
	if len(vs) != 1 {
		return refuse("it has %d workers, want one: the deployment's", len(vs))
	}
	v := &vs[0]
	c := &control.WorkerStatus{Version: v.Version, Scope: v.Scope, Interrupted: cmp.Or(v.Interrupted, "rerun"), At: a.io.Now(), Timeouts: map[string]time.Duration{}, Scopes: v.Scopes}
	for typ, s := range v.Timeouts {
		c.Timeouts[typ] = fromSeconds(&s)
	}
	c.Retention, c.Timeout, c.DrainTimeout = fromSeconds(v.Retention), fromSeconds(v.Timeout), fromSeconds(v.DrainTimeout)
	if v.DrainTimeout != nil && *v.DrainTimeout == 0 {
		c.DrainTimeout = -1
	}
	if v.MaxAttempts != nil {
		c.MaxAttempts = *v.MaxAttempts
	}
	switch {
	case c.Scope == "":
		return refuse("scope is empty")
	case c.Retention < time.Minute:
		return refuse("retention is %v, want 60 (seconds) or more", c.Retention)
	case c.Interrupted != "rerun" && c.Interrupted != "park":
		return refuse("interrupted is %q, want rerun or park", c.Interrupted)
	case c.MaxAttempts == 0:
		return refuse("max_attempts is missing, want 1 or more, or -1 for unlimited")
	case v.DrainTimeout == nil || *v.DrainTimeout < 0:
		return refuse("drain_timeout is missing, or negative; want seconds")
	}
	return c, nil
}

func fromSeconds(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return time.Duration(max(-1, min(*s, 1<<33)) * float64(time.Second))
}
