package cli

import "github.com/spf13/cobra"

// keyCommand holds the commands on keys.
func (a *app) keyCommand() *cobra.Command {
	return group("key", "Keys: what became of a job; list, resolve, cancel, forget",
		a.keyShowCommand(), a.keyListCommand(), a.resolveCommand(), a.cancelCommand(), a.forgetCommand())
}
