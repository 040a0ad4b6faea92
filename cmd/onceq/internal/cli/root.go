package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
)

// This file owns Main and the tree of commands. The program calls it, and tests do, each with an IO
// of its own; nothing is shared between two calls.

// Main runs the command and answers its exit code.
func Main(ctx context.Context, args []string, on *IO) int {
	a := &app{io: on, out: &out.Printer{Out: on.Out, Err: on.Err, Format: out.Table, Now: on.Now}}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(on.In)
	root.SetErr(on.Err)
	err := root.ExecuteContext(ctx)
	if err != nil && !a.started {
		if c := (*coded)(nil); !errors.As(err, &c) {
			err = exitWith(exitUsage, err)
		}
	}
	code, text := classify(ctx, err)
	if text != "" {
		for i, line := range strings.Split(text, "\n") {
			if i == 0 {
				line = "onceq: " + line
			}
			line = strings.ReplaceAll(line, "\t", "  ") // as PostgreSQL's driver indents
			a.progress("")
			_, _ = fmt.Fprintln(on.Err, out.Text(settings.Mask(line)))
		}
	}
	return code
}

// quietly is an output whose reader may be gone: help is printed by cobra, which would not notice.
type quietly struct{ w io.Writer }

func (q *quietly) Write(b []byte) (int, error) {
	_, _ = q.w.Write(b)
	return len(b), nil
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "onceq",
		Short: "See and steer the jobs of managed queues",
		Long: "onceq shows what waits in the queues, who works on it, what has died and why, and what\n" +
			"became of a key. It pauses queues, replays dead letters and settles parked jobs.",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.prepare() },
	}
	f := root.PersistentFlags()
	f.StringVarP(&a.profile, "profile", "p", "", "profile of the configuration file (or ONCEQ_PROFILE)")
	f.StringVarP(&a.format, "output", "o", "table", "table, json, ndjson or md")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print ids only")
	f.BoolVar(&a.noColor, "no-color", false, "no colours (or NO_COLOR)")
	f.BoolVar(&a.utc, "utc", false, "times in UTC")
	a.timeout = defaultTimeout
	f.Var(span{&a.timeout}, "timeout", "how long the command may take; 0 = no bound")
	f.BoolVar(&a.yes, "yes", false, "do not ask; destructive acts then want a bound (--max, --plan), too")
	f.StringVar(&a.who, "by", "", "who acts, for the audit (or ONCEQ_BY; default: user@host)")
	f.BoolVar(&a.old, "old", false, "read a store whose table is of an earlier version")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "ndjson", "md"}, cobra.ShellCompDirectiveNoFileComp))
	_ = root.RegisterFlagCompletionFunc("profile", a.completeProfiles)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitWith(exitUsage, flagError(err)) })
	root.CompletionOptions.HiddenDefaultCmd = false
	v, revision := version()
	root.Version = strings.TrimSpace(v + " " + revision[:min(12, len(revision))])
	root.SetVersionTemplate("onceq {{.Version}}\n")
	root.AddCommand(a.versionCommand())
	root.SetHelpCommand(a.helpCommand(root))
	for _, c := range a.commands() {
		root.AddCommand(c)
	}
	root.SetOut(&quietly{a.io.Out}) // before the next line, which keeps it
	root.InitDefaultCompletionCmd()
	strict(root)
	a.completeFlags(root)
	return root
}

// commands are those that do the work, in the order of the help.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{a.queueCommand(), a.dlqCommand(), a.keyCommand(), a.reconcileCommand(), a.scheduleCommand(), a.jobsCommand(), a.workersCommand(), a.doctorCommand(), a.auditCommand(), a.topCommand(), a.webCommand(), a.metricsCommand()}
}

// strict has a group of commands refuse a word that it does not know, instead of printing its help
// and answering success.
func strict(c *cobra.Command) {
	for _, sub := range c.Commands() {
		strict(sub)
	}
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return exit(exitUsage, "%s: %w", strings.TrimSuffix(c.UseLine(), " [flags]"), err)
			}
			return nil
		}
	}
	if c.RunE == nil && c.Run == nil && c.HasSubCommands() {
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			var names []string
			for _, sub := range c.Commands() {
				if !sub.Hidden {
					names = append(names, sub.Name())
				}
			}
			return exit(exitUsage, "%sunknown command %q%s", groupOf(c), args[0], settings.DidYouMean(args[0], names))
		}
		c.Args = cobra.ArbitraryArgs
	}
}

// groupOf is what stands before an error in a group of commands.
func groupOf(c *cobra.Command) string {
	if name, ok := strings.CutPrefix(c.CommandPath(), "onceq "); ok {
		return name + ": "
	}
	return ""
}

// badFlag is how pflag refuses a value.
var badFlag = regexp.MustCompile(`^invalid argument ".*" for "(?:-\w, )?(--[\w-]+)" flag: (?s)(.*)$`)

// flagError is pflag's error with the flag in front.
func flagError(err error) error {
	if m := badFlag.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s: %s", m[1], m[2])
	}
	return err
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "The version of this command", Args: cobra.NoArgs,
		RunE: a.run(func(context.Context, []string) error {
			v, revision := version()
			line := "onceq " + v
			if revision != "" {
				line += " " + revision[:min(12, len(revision))]
			}
			return a.show(out.Result{
				Lines: []string{line}, IDs: []string{v},
				Value: struct {
					Version  string `json:"version"`
					Revision string `json:"revision"`
				}{v, revision},
			})
		}),
	}
}
