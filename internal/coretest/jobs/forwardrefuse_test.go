package jobs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// A redrive of the outbox's own would take away what was not sent.
func TestForwardTellsOfARedrive(t *testing.T) {
	inOffice(t, func(o *office) {
		other := rig.NewBroker(o.T, membroker.Options{})
		box := rig.NewBroker(o.T, membroker.Options{Redrive: &membroker.Redrive{MaxReceives: 5, To: other.Broker}})
		o.relay(func(c *rig.Setup) { c.Broker = box })
		rig.Pass(time.Second)
		if n := o.log.Count("level=WARN", "redrive policy", "max_receives=5"); n != 1 {
			t.Errorf("the log told %d times, want once", n)
		}
	})
}

func TestForwardRefuses(t *testing.T) {
	box, dest := rig.NewBroker(t, membroker.Options{}), rig.NewBroker(t, membroker.Options{})
	own := must.Get(memstore.New(nil))
	good := func() rig.Setup {
		return rig.Setup{
			ProcessorConfig: onceq.ProcessorConfig{Handler: onceq.Forward(dest), Store: onceq.NoStore, Scope: "outbox"},
			WorkerConfig:    onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 1},
			Broker:          box,
		}
	}
	for name, c := range map[string]struct {
		set  func(c *rig.Setup)
		text string
	}{
		"nothing":         {func(*rig.Setup) {}, ""},
		"unlimited":       {func(c *rig.Setup) { c.Defaults.MaxAttempts = -1 }, ""},
		"in a Chain":      {func(c *rig.Setup) { c.Handler = onceq.Chain(c.Handler, hide) }, ""},
		"nil":             {func(c *rig.Setup) { c.Handler = onceq.Forward(nil) }, "Forward: the destination is nil"},
		"a nil pointer":   {func(c *rig.Setup) { c.Handler = onceq.Forward((*membroker.Broker)(nil)) }, "Forward: the destination is nil"},
		"KeepInQueue":     {func(c *rig.Setup) { c.Handler = onceq.Forward(onceq.KeepInQueue) }, "Forward: KeepInQueue is no destination"},
		"itself":          {func(c *rig.Setup) { c.Handler = onceq.Forward(box) }, "Forward: the destination is the queue itself"},
		"a store":         {func(c *rig.Setup) { c.Store = own }, "ProcessorConfig.Store: a Forward needs NoStore"},
		"a store, Chain":  {func(c *rig.Setup) { c.Store, c.Handler = own, onceq.Chain(c.Handler, hide) }, "ProcessorConfig.Store: a Forward needs NoStore"},
		"a bound":         {func(c *rig.Setup) { c.Defaults.MaxAttempts = 10 }, "ProcessorConfig.Defaults.MaxAttempts: 10"},
		"a letter queue":  {func(c *rig.Setup) { c.DeadLetter = rig.NewBroker(t, membroker.Options{}) }, "WorkerConfig.DeadLetter: a Forward needs KeepInQueue"},
		"under a Mux":     {func(c *rig.Setup) { c.Handler = underMux(onceq.Forward(dest)) }, `Mux.On: the handler of type "mail" is a Forward`},
		"chained, in Mux": {func(c *rig.Setup) { c.Handler = underMux(onceq.Chain(onceq.Forward(dest), hide)) }, `Mux.On: the handler of type "mail" is a Forward`},
	} {
		s := good()
		c.set(&s)
		_, err := rig.NewWorker(s)
		var mistake *onceq.ConfigError
		switch {
		case c.text == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.text != "" && (!errors.As(err, &mistake) || !strings.Contains(err.Error(), c.text)):
			t.Errorf("%s: %v, want %q", name, err, c.text)
		}
	}
	s := good()
	p := must.Get(onceq.NewProcessor(s.ProcessorConfig))
	if _, err := p.Batches(onceq.BatchConfig{DeadLetter: dest}); err == nil || !strings.Contains(err.Error(), "BatchConfig.DeadLetter: a Forward needs KeepInQueue") {
		t.Errorf("Batches: %v", err)
	}
}

func hide(h onceq.Handler) onceq.Handler { return onceq.HandlerFunc(h.Handle) }

func underMux(h onceq.Handler) onceq.Handler {
	var m onceq.Mux
	m.On("mail", h, nil)
	return &m
}

// Hidden in a wrapper that nobody can look into, a Forward sends nothing, and says what to do.
func TestForwardThatIsHidden(t *testing.T) {
	inOffice(t, func(o *office) {
		h := onceq.Forward(o.dest)
		r := rig.New(o.T, h.Handle, rig.Steady, rig.With(func(c *rig.Setup) { c.Defaults.MaxAttempts = 2 }))
		r.Send("a")
		r.RunFor(time.Minute)
		if n := rig.Depth(o.T, o.dest); n != 0 {
			t.Errorf("%d messages were sent", n)
		}
		if l := r.Letter(onceq.ClassConfig); !strings.Contains(l.Meta.Dead.LastErr, "wrap it with Chain") {
			t.Errorf("the letter says %q", l.Meta.Dead.LastErr)
		}
	})
}
