// Package scene is what examples with many processes are made of: the program starts itself in
// several roles, kills them with kill -9, and counts when its queues are empty.
package scene

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/sqsfake"
)

// This file owns processes, the wait for empty queues, and what a scene is given for itself: a
// server of SQS, a schema. An example's run calls it from one goroutine. The lines of a process
// come in a goroutine of its own, which only adds to a channel.

// Main is an example's main. A process that Killed starts plays the role that A says, the first one
// directs, until an interrupt. It exits with 1 after an error.
func Main[A any](name string, play func(context.Context, A) error, direct func(context.Context) error) {
	var err error
	if len(os.Args) == 2 && strings.HasPrefix(os.Args[1], "{") {
		var a A
		if err = json.Unmarshal([]byte(os.Args[1]), &a); err == nil {
			err = play(child.Follow(context.Background()), a)
		}
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = direct(ctx)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// Killed starts a process for each role, and kills each so many times, in turn; another one takes
// its place. Then it kills the first role for good, lets the others go on until end returns, and
// kills them.
func Killed[A any](ctx context.Context, errs io.Writer, kills int, roles []A, end func() error) error {
	crew := make([]*child.Child, len(roles))
	kill := func(i int) {
		if c := crew[i]; c != nil {
			c.Kill()
			<-c.Done()
		}
	}
	defer func() {
		for i := range crew {
			kill(i)
		}
	}()
	for n := range len(roles) * (1 + kills) {
		i := n % len(roles)
		if crew[i] != nil {
			<-time.After(50*time.Millisecond + mathrand.N(100*time.Millisecond))
			kill(i)
		}
		var err error
		if crew[i], err = start(ctx, roles[i], errs); err != nil {
			return err
		}
	}
	kill(0)
	return end()
}

// start runs this program in a role, and waits until it has begun with something.
func start(ctx context.Context, role any, errs io.Writer) (*child.Child, error) {
	text, err := json.Marshal(role)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, string(text)) //nolint:gosec,noctx // this program; how it ends is told by child
	cmd.Stderr = errs
	begun := make(chan struct{}, 1)
	c, err := child.Start(cmd, func(string) {
		select {
		case begun <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-begun:
		return c, nil
	case <-c.Done():
		return nil, fmt.Errorf("a process has ended: %w", c.Err())
	case <-ctx.Done():
		c.Kill()
		<-c.Done()
		return nil, ctx.Err()
	}
}

// Quiet waits until the queues are empty.
func Quiet(ctx context.Context, queues ...broker.Broker) error {
	for {
		left := int64(0)
		for _, q := range queues {
			counted, ok := broker.As[broker.Depther](q)
			if !ok {
				return errors.New("a queue does not tell its depth")
			}
			d, err := counted.Depth(ctx)
			if err != nil {
				return err
			}
			left += d.Visible + d.InFlight + d.Delayed
		}
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d messages are left: %w", left, ctx.Err())
		}
	}
}

// Tally is what came of the orders.
type Tally struct{ Orders, Lost, Ghosts, Twice int }

// Holds reports whether each order was served once, and nothing else.
func (t Tally) Holds() bool { return t.Lost+t.Ghosts+t.Twice == 0 }

// SQS has a queue in a server of SQS in this process, until stop.
func SQS(ctx context.Context, queue string) (server, queueURL string, stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", nil, err
	}
	s := sqsfake.New(nil)
	s.URL = "http://" + l.Addr().String()
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = h.Serve(l) }()
	stop = func() {
		s.Close()
		_ = h.Close()
	}
	if queueURL, err = s.CreateQueue(queue, nil); err != nil {
		stop()
	}
	return s.URL, queueURL, stop, err
}

// Schema makes a schema of the run's own in a database of PostgreSQL, until drop. Its name begins
// with prefix.
func Schema(ctx context.Context, database, prefix string) (name string, drop func() error, err error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return "", nil, err
	}
	name = prefix + strings.ToLower(rand.Text()[:8])
	if _, err := conn.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		_ = conn.Close(ctx)
		return "", nil, err
	}
	return name, func() error {
		ctx := context.WithoutCancel(ctx)
		defer conn.Close(ctx) //nolint:errcheck // nothing depends on it
		_, err := conn.Exec(ctx, "DROP SCHEMA "+name+" CASCADE")
		return err
	}, nil
}
