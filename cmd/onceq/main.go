// Onceq is the operator's command: what waits in the queues, who works on it, what has died and
// why, what became of a key; and pausing, replaying, resolving.
//
//	go install github.com/onceq/onceq/cmd/onceq@latest
//	onceq --help
//
// docs/command.md has the whole of it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/onceq/onceq/cmd/onceq/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)   // a second ctrl-C ends the process at once
	signal.Ignore(syscall.SIGPIPE) // a write then answers EPIPE, and the command ends quietly
	code := cli.Main(ctx, os.Args[1:], cli.Process())
	stop()
	os.Exit(code)
}
