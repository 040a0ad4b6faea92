package fan_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/fan"
	"github.com/onceq/onceq/internal/coretest/rig"
)

func queueOf(name string) membroker.Options { return membroker.Options{Name: name} }

// TestMisuse: what cannot go well is a permanent error at the first attempt, which names the field
// and its limit.
func TestMisuse(t *testing.T) {
	for name, c := range map[string]struct {
		change func(c *fan.Children)
		name   string
		class  string
		want   string
	}{
		"no queue":             {func(c *fan.Children) { c.To = nil }, "x", "config", "Children.To is nil"},
		"no scope":             {func(c *fan.Children) { c.Scope = "" }, "x", "config", "Children.Scope: dedupe: bad key: Scope is empty"},
		"our scope":            {func(c *fan.Children) { c.Scope = ":control" }, "x", "config", "onceq's own"},
		"too many":             {func(c *fan.Children) { c.N = fan.MaxChildren + 1 }, "x", "config", "Children.N is 1000001, want 0 to 1000000"},
		"less than none":       {func(c *fan.Children) { c.N = -1 }, "x", "config", "Children.N is -1"},
		"no message":           {func(c *fan.Children) { c.Message = nil }, "x", "config", "Children.Message is nil"},
		"no policy":            {func(c *fan.Children) { c.Failed = 2 }, "x", "config", "Children.Failed is 2"},
		"no name":              {func(*fan.Children) {}, "", "config", "the name is empty"},
		"a long name":          {func(*fan.Children) {}, strings.Repeat("n", fan.MaxName+1), "config", "101 bytes, the limit is 100"},
		"a name with NUL":      {func(*fan.Children) {}, "a\x00", "config", "without NUL"},
		"a letter as a child":  {func(c *fan.Children) { c.Message = ofLetter }, "x", "config", "child 0: the message is a dead letter"},
		"a child that is huge": {func(c *fan.Children) { c.Message = huge }, "x", "permanent", "child 1 was not sent"},
		"a message's error": {func(c *fan.Children) {
			c.Message = func(int) (broker.Outgoing, error) { return broker.Outgoing{}, onceq.Permanent(rig.ErrBoom) }
		}, "x", "permanent", "child 0: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			var children fan.Children
			rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
				return fan.Out(ctx, j, fromRig(t), c.name, children)
			}, func(r *rig.Rig) {
				current.Store(r)
				small := membroker.Options{Name: "children", Preset: membroker.SQSStandard}
				children = fan.Children{To: rig.NewBroker(t, small), Scope: childScope, N: 3, Message: number}
				c.change(&children)
				r.Send("p")
				r.RunFor(3 * time.Second)
				if l := r.Letter(c.class); !strings.Contains(l.Meta.Dead.LastErr, c.want) {
					t.Errorf("the error is %q, want one with %q", l.Meta.Dead.LastErr, c.want)
				}
				if got := r.Seen.Started("p"); got != 1 {
					t.Errorf("the parent ran %d times, want once", got)
				}
			})
		})
	}
}

// current is the rig of the test that runs; tests of this package do not run side by side.
var current atomic.Pointer[rig.Rig]

func fromRig(*testing.T) dedupe.Store { return current.Load().Store }

func ofLetter(i int) (broker.Outgoing, error) {
	m, err := number(i)
	m.Meta.Dead = &broker.Letter{Class: "error"}
	return m, err
}

func huge(i int) (broker.Outgoing, error) {
	m, err := number(i)
	if i == 1 {
		m.Body = make([]byte, 2<<20)
	}
	return m, err
}

// TestChanged: a parent that has begun with other children is refused, whether they are more, fewer
// or none.
func TestChanged(t *testing.T) {
	for name, c := range map[string]struct {
		before, after int
		scope, want   string
	}{
		"fewer":         {3, 2, childScope, `it has begun with 3 children in the scope "children", and Children says 2`},
		"more":          {3, 4, childScope, "begun with 3 children"},
		"from none":     {0, 3, childScope, "begun with 0 children"},
		"another scope": {3, 3, "others", `Children says 3 in "others"`},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, c.before, func(w *family) {
				first := true
				h := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
					if err := w.total(ctx, j); !first || err != nil && !errors.Is(err, rig.ErrBoom) && w.c.N == 0 {
						return err
					}
					first = false
					w.c.N, w.c.Scope = c.after, c.scope
					return rig.ErrBoom
				})
				stop := w.Beside(func(s *rig.Setup) { s.Handler = h })
				w.Send("p")
				rig.Pass(10 * time.Second)
				stop()
				if l := w.Letter("config"); !strings.Contains(l.Meta.Dead.LastErr, c.want) {
					t.Errorf("the error is %q, want one with %q", l.Meta.Dead.LastErr, c.want)
				}
			}, rig.Steady)
		})
	}
}

// TestTwoFans: fans of two names are two, also with the same numbers. One name used twice in a run
// is refused: the second fan's children would be taken for the first's.
func TestTwoFans(t *testing.T) {
	for _, second := range []string{"others", "parts"} {
		t.Run(second, func(t *testing.T) {
			play(t, 3, func(w *family) {
				h := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
					if err := w.total(ctx, j); err != nil {
						return err
					}
					return fan.Out(ctx, j, w.Store, second, w.c)
				})
				stop := w.Beside(func(s *rig.Setup) { s.Handler = h })
				w.Send("p")
				rig.Pass(20 * time.Second)
				stop()
				if second == "parts" {
					if l := w.Letter("config"); !strings.Contains(l.Meta.Dead.LastErr, `"fan/parts": this run has had a step of that name`) {
						t.Errorf("the error is %q", l.Meta.Dead.LastErr)
					}
					return
				}
				w.WantStatus("p", dedupe.Done)
				for i := range 3 {
					if w.ran[i] != 2 {
						t.Errorf("child %d ran %d times, want twice: once for each fan", i, w.ran[i])
					}
				}
			})
		})
	}
}

// TestKeys: no two children have one key, whatever their parents and fans are called, and each is a
// key that every store takes.
func TestKeys(t *testing.T) {
	seen := map[string]string{}
	long := strings.Repeat("ü", dedupe.MaxKey/2)
	for _, scope := range []string{"a", "b"} {
		for _, parent := range []string{"p", "p/x", "p/x/y", long, long[:600]} {
			for _, name := range []string{"x", "y", "x/y", strings.Repeat("n", fan.MaxName)} {
				for _, i := range []int{0, 1, 11, fan.MaxChildren - 1} {
					k := fan.Key(dedupe.Key{Scope: scope, Key: parent}, name, i)
					what := fmt.Sprintf("%s %.10s %.10s %d", scope, parent, name, i)
					if other, twice := seen[k]; twice {
						t.Errorf("%s and %s share the key %s", what, other, k)
					}
					seen[k] = what
					if err := (dedupe.Key{Scope: scope, Key: k}).Validate(); err != nil {
						t.Errorf("%s: %v", what, err)
					}
				}
			}
		}
	}
	if got, want := fan.Key(dedupe.Key{Scope: "test", Key: "p"}, "parts", 7), "p/parts/f434a134ec22f085b823330aaf6bdaf7/7"; got != want {
		t.Errorf("Key is %q, want %q: children that are under way would be sent again", got, want)
	}
}

// TestOrderedGroup: a child in its parent's own ordered group would wait behind the parent. In the
// same group of another queue it does not.
func TestOrderedGroup(t *testing.T) {
	for name, same := range map[string]bool{"same queue": true, "another": false} {
		t.Run(name, func(t *testing.T) {
			var children fan.Children
			rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
				return fan.Out(ctx, j, fromRig(t), "x", children)
			}, func(r *rig.Rig) {
				current.Store(r)
				children = fan.Children{To: r.Q.Broker, Scope: childScope, N: 3, Message: func(i int) (broker.Outgoing, error) {
					m, err := number(i)
					m.Group = "g"
					return m, err
				}}
				if !same {
					children.To = rig.NewBroker(t, membroker.Options{Name: "children", Preset: membroker.SQSFIFO})
				}
				r.Send("g/p")
				r.RunFor(3 * time.Second)
				if !same {
					r.WantStatus("p", dedupe.Released)
					return
				}
				if l := r.Letter("config"); !strings.Contains(l.Meta.Dead.LastErr, `in its parent's ordered group "g"`) {
					t.Errorf("the error is %q", l.Meta.Dead.LastErr)
				}
			}, rig.Preset(membroker.SQSFIFO))
		})
	}
}
