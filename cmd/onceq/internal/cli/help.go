package cli

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/settings"
)

// topics are pages of help that no command has: onceq help json.
//
//go:embed help/*.txt
var topics embed.FS

// topicNames are what onceq help has beside the commands.
func topicNames() []string {
	files, err := fs.Glob(topics, "help/*.txt")
	if err != nil {
		return nil // the pattern is ours, and sound
	}
	var l []string
	for _, f := range files {
		l = append(l, strings.TrimSuffix(strings.TrimPrefix(f, "help/"), ".txt"))
	}
	slices.Sort(l)
	return l
}

func (a *app) helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND | TOPIC]", Short: "Help about a command, or one of: " + strings.Join(topicNames(), ", "),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			l := topicNames()
			for _, c := range root.Commands() {
				if c.IsAvailableCommand() {
					l = append(l, c.Name())
				}
			}
			return l, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			a.started = true
			if len(args) == 1 {
				if text, err := topics.ReadFile("help/" + args[0] + ".txt"); err == nil {
					_, err = fmt.Fprint(root.OutOrStdout(), string(text))
					return err
				}
			}
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				word := strings.Join(args, " ")
				names := topicNames()
				for _, c := range root.Commands() {
					names = append(names, c.Name())
				}
				return exit(exitUsage, "help: no command or topic %q%s", word, settings.DidYouMean(word, names))
			}
			return c.Help()
		},
	}
}
