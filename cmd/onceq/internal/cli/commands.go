package cli

import (
	"slices"
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

// completeQueue names the profile's queues for the first argument.
func (a *app) completeQueue(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.queueNames(), cobra.ShellCompDirectiveNoFileComp
}

// completeQueues is completeQueue for commands that take several.
func (a *app) completeQueues(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	l := slices.DeleteFunc(a.queueNames(), func(s string) bool { return slices.Contains(args, s) })
	return l, cobra.ShellCompDirectiveNoFileComp
}

// queueNames are those of the profile. It does no I/O beyond the file, so no shell waits.
func (a *app) queueNames() []string {
	conf, err := a.config()
	if err != nil || conf.profile == nil {
		return nil
	}
	return slices.Clone(conf.profile.Order)
}
