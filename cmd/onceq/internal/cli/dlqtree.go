package cli

import "github.com/spf13/cobra"

// dlqCommand holds the commands on dead letters.
func (a *app) dlqCommand() *cobra.Command {
	c := group("dlq", "Dead letters: list, group, show, replay, purge, export, import, redrive",
		a.letterListCommand(), a.letterGroupCommand(), a.letterShowCommand(), a.replayCommand(), a.purgeCommand(), a.exportCommand(), a.importCommand(), a.redriveCommand())
	for _, sub := range c.Commands() {
		if name := sub.Name(); name != "redrive" && name != "import" {
			sub.Flags().IntVar(&a.hold, "hold", 0, "how many letters may be held at once while they are looked at (default 100,000; SQS allows 120,000)")
		}
	}
	return c
}
