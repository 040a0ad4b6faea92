package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/settings"
)

// group makes a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short}
	c.AddCommand(subs...)
	return c
}

// span is a flag's value: a time with its unit, days among them.
type span struct{ d *time.Duration }

func (s span) String() string {
	if s.d == nil || *s.d == 0 {
		return ""
	}
	return s.d.String()
}

func (s span) Set(text string) error {
	d, err := settings.ParseDuration(text)
	if err == nil {
		*s.d = d
	}
	return err
}

func (s span) Type() string { return "duration" }

// completion must never keep a shell waiting.
const completionBound = 300 * time.Millisecond

// completeProfiles names the file's profiles.
func (a *app) completeProfiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	f, err := settings.Load(a.io.Env, a.io.Home)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var l []string
	for name := range f.Profiles {
		l = append(l, name)
	}
	slices.Sort(l)
	return l, cobra.ShellCompDirectiveNoFileComp
}

// completeQueue names queues for the first argument: those of the profile, and those that workers'
// cards name, as far as the store answers within completionBound.
func (a *app) completeQueue(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.queueNames(c.Context()), cobra.ShellCompDirectiveNoFileComp
}

// completeQueues is completeQueue for commands that take several.
func (a *app) completeQueues(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	l := slices.DeleteFunc(a.queueNames(c.Context()), func(s string) bool { return slices.Contains(args, s) })
	return l, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) queueNames(ctx context.Context) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	conf, err := a.config()
	if err != nil {
		return nil
	}
	var l []string
	if conf.profile != nil {
		l = append(l, conf.profile.Order...)
	}
	ctx, cancel := context.WithTimeout(ctx, completionBound)
	defer cancel()
	live := make(chan []string, 1)
	go func() { live <- a.liveQueues(ctx) }() // a driver that does not heed ctx is left behind
	select {
	case more := <-live:
		for _, name := range more {
			if !slices.Contains(l, name) && !strings.ContainsAny(name, "\n\t ") {
				l = append(l, name)
			}
		}
	case <-ctx.Done():
	}
	return l
}

func (a *app) liveQueues(ctx context.Context) []string { return nil }
