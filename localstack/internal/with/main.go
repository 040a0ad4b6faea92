// Command with runs a command while a back end is there, whose address it finds in the environment:
//
//	go run ./localstack/internal/with dynamodb go run ./examples/fleet -store dynamodb
//
// What is started for it ends with it. Where no back end can be had, it says why, and its
// status is 1, as it is when the command fails. Without a command, within a run (make test), it
// starts the back end for that: tests that cannot start one ask for it so.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/onceq/onceq/internal/rundir"
	"github.com/onceq/onceq/internal/testserver"
	"github.com/onceq/onceq/localstack"
)

func main() {
	if len(os.Args) < 3 && (len(os.Args) < 2 || os.Getenv(rundir.Env) == "") {
		fmt.Fprintln(os.Stderr, "with: want a back end and a command")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "with:", err)
		os.Exit(1)
	}
}

func run(name string, command []string) error {
	// ctrl-C is for the command, which the terminal tells as well; we wait for its end.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	url, version, err := localstack.Address(name)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	fmt.Fprintf(os.Stderr, "backend %s: %s\n", name, version)
	if len(command) == 0 {
		return nil
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), testserver.Env(name, "")+"="+url)
	return cmd.Run()
}
