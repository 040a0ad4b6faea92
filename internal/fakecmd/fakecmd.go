// Package fakecmd is what the commands of the fake servers have in common: how they begin and end,
// their flags, and the address that they tell.
package fakecmd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Main is a command's main: run gets the arguments, and a context that ends by an interrupt or
// SIGTERM. The process exits with 2 after a request for help, with 1 after any other error.
func Main(name string, run func(ctx context.Context, args []string, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// Names is a flag that may be given many times.
type Names []string

func (n *Names) String() string { return strings.Join(*n, ",") }

// Set takes one more.
func (n *Names) Set(s string) error {
	*n = append(*n, s)
	return nil
}

// Flags is an empty set of flags, which explains itself on out.
func Flags(name string, out io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(out)
	return flags
}

// Parse reads args, which must be flags alone. hint tells who names something without a flag what
// to do.
func Parse(flags *flag.FlagSet, args []string, hint string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: %s", flags.Arg(0), hint)
	}
	return nil
}

// Reachable is an address that this machine can call: who listens on all of them, as in a
// container, listens on localhost too.
func Reachable(listening string) string {
	host, port, err := net.SplitHostPort(listening)
	if err == nil && net.ParseIP(host).IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return listening
}
