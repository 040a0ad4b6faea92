// Package cli holds the commands of onceq. Each does three things: it reads its flags, asks package
// ops, and prints what came of it.
//
// Main makes one app for a run of the command; its fields are written before the command starts,
// and read after. Only the completion of names and the screen of top have goroutines of their own.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
)

// This file owns one run of the command: its surroundings, its flags, and how a command's own code
// is called. The files of the commands use it; root.go makes it. Its fields are written before the
// command's own code starts, by the goroutine that runs it.

// IO is the command's surroundings.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	Env      settings.Env
	Home     string
	// Terminal reports whether a person sits at In and sees Err, and Screen whether Out is a
	// terminal.
	Terminal, Screen bool
	// Size is the terminal's; Raw makes it send each key at once, and answers what undoes that.
	Size func() (columns, rows int)
	Raw  func() (restore func(), err error)
	Now  func() time.Time
	// Patience is how long a shell's completion waits for the store. Default completePatience.
	Patience time.Duration
	// LetterWait is how long no letter may come until a dead-letter queue counts as empty. Default:
	// that of package dlq. A test's queue needs a shorter one.
	LetterWait time.Duration
}

// Process is the surroundings of this process.
func Process() *IO {
	home, _ := os.UserHomeDir()
	in, screen := int(os.Stdin.Fd()), int(os.Stdout.Fd())
	return &IO{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Home: home,
		Terminal: term.IsTerminal(in) && term.IsTerminal(int(os.Stderr.Fd())), Screen: term.IsTerminal(screen),
		Size: func() (int, int) {
			w, h, err := term.GetSize(screen)
			if err != nil {
				return 80, 24
			}
			return w, h
		},
		Raw: func() (func(), error) {
			old, err := term.MakeRaw(in)
			if err != nil {
				return nil, err
			}
			return func() { _ = term.Restore(in, old) }, nil
		},
		Now: time.Now,
	}
}

// app is one run of the command.
type app struct {
	io  *IO
	out *out.Printer

	// flags that hold everywhere
	profile, format, who, reasonText string
	quiet, noColor, utc, yes, old    bool
	timeout                          time.Duration
	hold                             int // --hold of the commands on dead letters

	bound   bound
	looked  time.Time // when a person was told last how far a look has come
	busy    bool      // a line of progress stands on the terminal
	started bool      // a command's own code runs: an error from here on is none of cobra's
}

// defaultTimeout bounds a command that does not wait for something by its nature.
const defaultTimeout = 30 * time.Second

// prepare checks what holds everywhere.
func (a *app) prepare() error {
	f, err := out.ParseFormat(a.format)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	if a.timeout < 0 {
		return exit(exitUsage, "--timeout: %v is negative", a.timeout)
	}
	none, _ := a.io.Env("NO_COLOR")
	a.out.Format, a.out.Quiet, a.out.UTC = f, a.quiet, a.utc
	a.out.Color = a.io.Screen && !a.noColor && none == ""
	return nil
}

// run wraps a command's own code: it bounds its time.
func (a *app) run(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		a.started = true
		ctx := c.Context()
		if a.timeout > 0 {
			var cancel context.CancelCauseFunc
			ctx, cancel = context.WithCancelCause(ctx)
			defer cancel(nil)
			a.bound.start(a.timeout, func() { cancel(context.DeadlineExceeded) })
			defer a.bound.rest()
		}
		err := do(ctx, args)
		if err != nil && c.Context().Err() == nil && ctx.Err() != nil && !isCoded(err) {
			return exit(exitReach, "no answer within --timeout %v: %w", a.timeout, err)
		}
		return err
	}
}

// A bound is --timeout at work. It rests while a person is asked, who may read for longer.
type bound struct {
	timer *time.Timer // nil = there is no bound
	end   time.Time
	left  time.Duration
}

func (b *bound) start(d time.Duration, end func()) {
	b.end, b.timer = time.Now().Add(d), time.AfterFunc(d, end)
}

func (b *bound) rest() {
	if b.timer != nil && b.timer.Stop() {
		b.left = max(1, time.Until(b.end))
	}
}

func (b *bound) goOn() {
	if b.left > 0 {
		b.end = time.Now().Add(b.left)
		b.timer.Reset(b.left)
		b.left = 0
	}
}

// unbounded is run for what lasts by its nature: --timeout holds only where it was given.
func (a *app) unbounded(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if !c.Flags().Changed("timeout") {
			a.timeout = 0
		}
		return a.run(do)(c, args)
	}
}

// by is who acts.
func (a *app) by() string {
	if a.who != "" {
		return a.who
	}
	if s, ok := a.io.Env(settings.EnvBy); ok && s != "" {
		return s
	}
	name := "unknown"
	if s, ok := a.io.Env("SUDO_USER"); ok && s != "" {
		name = s
	} else if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// until is a time with its zone, for people of several.
func (a *app) until(t time.Time) string { return a.out.Time(t) + " " + a.out.Zone(t) }

// show prints a result.
func (a *app) show(r out.Result) error {
	a.progress("")
	r.Columns = a.out.Zoned(r.Columns)
	return a.out.Print(r)
}

// say writes prose to the error output.
func (a *app) say(format string, args ...any) {
	a.progress("")
	a.out.Say(format, args...)
}

// progress rewrites one line, where a person looks at it. An empty one takes it away.
func (a *app) progress(text string) {
	if text == "" && !a.busy || !a.io.Terminal || a.quiet {
		return
	}
	a.busy = text != ""
	_, _ = fmt.Fprintf(a.io.Err, "\r\x1b[K%s", text)
}

// lookingEvery is how often a look tells how far it has come.
const lookingEvery = 200 * time.Millisecond

// looking tells how far a look at dead letters has come.
func (a *app) looking(seen, about int) {
	now := a.io.Now()
	if !a.looked.IsZero() && now.Sub(a.looked) < lookingEvery {
		return
	}
	a.looked = now
	if about > 0 {
		a.progress(fmt.Sprintf("%s of about %s looked at", out.Int(seen), out.Int(about)))
	} else {
		a.progress(out.Int(seen) + " looked at")
	}
}

// version is what the build knows of itself.
func version() (version, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", ""
	}
	version = info.Main.Version
	if version == "" || version == "(devel)" {
		version = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return version, revision
}
