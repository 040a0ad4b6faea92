package cli

import "github.com/spf13/cobra"

// dlqCommand holds the commands on dead letters.
func (a *app) dlqCommand() *cobra.Command {
	return group("dlq", "Dead letters: list, group, show, replay, purge, export, redrive",
		a.letterListCommand(), a.letterGroupCommand(), a.letterShowCommand(), a.replayCommand(), a.purgeCommand(), a.exportCommand(), a.redriveCommand())
}
