package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/child"
)

// This file owns the scene: processes of the shop that are killed with kill -9, and the count at
// the end. run calls scene, from one goroutine. The lines of a process come in a goroutine of its
// own, which only adds to a channel.

// assignment is what a process of the shop is told.
type assignment struct {
	Database, Queue string // URLs
	Role            string // sell or work
}

const (
	sellers = 4 // goroutines of a process that sells
	kills   = 3 // of each role
)

// play is a process of the shop, until ctx ends.
func play(ctx context.Context, a assignment) error {
	s, err := open(ctx, a.Database, a.Queue)
	if err != nil {
		return err
	}
	defer s.close()
	if a.Role == "work" {
		child.Tell("working")
		return s.work(ctx)
	}
	var all sync.WaitGroup
	for range sellers {
		all.Go(func() {
			for ctx.Err() == nil {
				id := rand.Text()
				child.Tell("placing %s", id)
				if s.place(ctx, id) != nil { // a customer would be told to try again
					<-time.After(mathrand.N(10 * time.Millisecond))
				}
			}
		})
	}
	all.Wait()
	return nil
}

// start runs a process of the shop, and waits until it has begun with something.
func start(ctx context.Context, a assignment, errs io.Writer) (*child.Child, error) {
	text, err := json.Marshal(a)
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

// tally is what came of the orders.
type tally struct {
	where                       string
	orders, lost, ghosts, twice int
}

func (t tally) holds() bool { return t.lost+t.ghosts+t.twice == 0 }

// scene lets processes sell and work, kills them in turn, and counts when all is quiet.
func scene(ctx context.Context, a assignment, errs io.Writer) (t tally, err error) {
	s, err := open(ctx, a.Database, a.Queue)
	if err != nil {
		return t, err
	}
	defer s.close()
	crew := make([]*child.Child, 2)
	defer func() {
		for _, c := range crew {
			if c != nil {
				c.Kill()
				<-c.Done()
			}
		}
	}()
	roles := []string{"sell", "work"}
	for n := range len(roles) + 2*kills {
		i := n % len(roles)
		if c := crew[i]; c != nil {
			<-time.After(50*time.Millisecond + mathrand.N(100*time.Millisecond))
			c.Kill()
			<-c.Done()
		}
		a.Role = roles[i]
		if crew[i], err = start(ctx, a, errs); err != nil {
			return t, err
		}
	}
	crew[0].Kill()
	<-crew[0].Done()
	if err := s.quiet(ctx); err != nil {
		return t, err
	}
	if d, ok := broker.As[broker.Describer](s.jobs); ok {
		t.where = d.Describe().System
	}
	err = s.db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM orders),
		(SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT 1 FROM invoices i WHERE i.order_id = o.id)),
		(SELECT count(*) FROM invoices i WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = i.order_id)),
		(SELECT count(*) FROM (SELECT 1 FROM invoices GROUP BY order_id HAVING count(*) > 1) AS x)`).
		Scan(&t.orders, &t.lost, &t.ghosts, &t.twice)
	return t, err
}

// quiet waits until both queues are empty.
func (s *shop) quiet(ctx context.Context) error {
	for {
		left := int64(0)
		for _, q := range []broker.Broker{s.queue, s.jobs} {
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
