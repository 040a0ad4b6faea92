package onceqtest_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/onceqtest"
)

// TestOnDeath: what ends with a process ends in order, before it counts as dead, once; and at once
// where it is dead.
func TestOnDeath(t *testing.T) {
	var p onceqtest.Process
	said := ""
	p.OnDeath(func() {
		said += "a"
		if isDead(&p) {
			t.Error("it counts as dead too early")
		}
	})
	p.OnDeath(func() { said += "b" })()
	p.OnDeath(func() { said += "c" })
	p.Kill()
	p.Kill()
	if said != "ac" || !isDead(&p) {
		t.Errorf("called %q", said)
	}
	p.OnDeath(func() { said += "d" })
	if said != "acd" {
		t.Errorf("called %q", said)
	}
}

func TestContextEndsWithTheProcess(t *testing.T) {
	var p onceqtest.Process
	parent, cancel := context.WithCancel(t.Context())
	first, second := p.Context(parent), p.Context(t.Context())
	cancel()
	<-first.Done()
	if first.Err() == nil || errors.Is(context.Cause(first), onceqtest.ErrDead) || second.Err() != nil {
		t.Errorf("%v, %v", context.Cause(first), second.Err())
	}
	p.Kill()
	if !errors.Is(context.Cause(second), onceqtest.ErrDead) {
		t.Error(context.Cause(second))
	}
	if third := p.Context(t.Context()); !errors.Is(context.Cause(third), onceqtest.ErrDead) {
		t.Error("a dead process has a live context")
	}
}

// TestDialedConnectionsAreCut: the other side sees that its client is gone.
func TestDialedConnectionsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p onceqtest.Process
		var others []net.Conn
		fail := false
		dial := p.Dial(func(context.Context, string, string) (net.Conn, error) {
			if fail {
				return nil, errOwn
			}
			mine, other := net.Pipe()
			others = append(others, other)
			return mine, nil
		})
		var mine []net.Conn
		for range 2 {
			c, err := dial(t.Context(), "tcp", "there")
			if err != nil {
				t.Fatal(err)
			}
			mine = append(mine, c)
		}
		fail = true
		if _, err := dial(t.Context(), "tcp", "there"); !errors.Is(err, errOwn) {
			t.Error(err)
		}
		fail = false
		if err := mine[0].Close(); err != nil {
			t.Error(err)
		}
		go p.Kill()
		if _, err := others[1].Read(make([]byte, 1)); err == nil {
			t.Error("the connection was not cut")
		}
		if c, err := dial(t.Context(), "tcp", "there"); err == nil {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("a dead process has a connection")
			}
		}
	})
	if _, err := new(onceqtest.Process).Dial(nil)(t.Context(), "no such network", ""); err == nil {
		t.Error("the default dialer was not used")
	}
}

// TestHandlersContextEndsWithTheProcess: of a rig's handler, under a Mux too, and of one that
// Process.Handler wraps.
func TestHandlersContextEndsWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rig *onceqtest.Rig
		var cause error
		mux := new(onceq.Mux)
		mux.On("pay", onceq.HandlerFunc(func(ctx context.Context, _ *onceq.Job) error {
			if ctx.Err() != nil {
				t.Error("the context has ended already")
			}
			rig.Kill()
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		}), nil)
		rig = onceqtest.New(t, onceq.ProcessorConfig{Handler: mux}, nil)
		if rig.Process() != nil {
			t.Error("there is a process before the first delivery")
		}
		rig.Send(broker.Outgoing{Body: []byte("a"), Meta: &broker.Meta{Type: "pay"}})
		if got := rig.Deliver(); !got.Crashed {
			t.Errorf("%+v", got)
		}
		synctest.Wait()
		if !errors.Is(cause, onceqtest.ErrDead) {
			t.Errorf("the cause is %v", cause)
		}

		var p onceqtest.Process
		time.AfterFunc(time.Minute, p.Kill)
		err := p.Handler(onceq.HandlerFunc(func(ctx context.Context, _ *onceq.Job) error { <-ctx.Done(); return context.Cause(ctx) })).Handle(t.Context(), nil)
		if !errors.Is(err, onceqtest.ErrDead) {
			t.Errorf("the cause is %v", err)
		}
	})
}
