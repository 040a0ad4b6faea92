package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

func entryKeys(es []dlq.Entry) (ks []string) {
	for _, e := range es {
		ks = append(ks, e.Ref().Key)
	}
	return ks
}

// A listing shows each failure once, the oldest first, with its copies, and leaves every letter
// visible.
func TestList(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		other := letterOf("b", 2)
		other.Body = []byte("another body of the same key and fence")
		// FIFO deduplication is not at work: letters without a DedupID are taken as new.
		r.put(letterOf("b", 2), letterOf("b", 2))
		pass(time.Minute)
		r.put(letterOf("a", 1), letterOf("b", 2, func(o *broker.Outgoing) { o.Meta.Dead.At = time.Now().Add(-time.Minute) }), letterOf("a", 9), other)
		es, err := r.list(dlq.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "keys", entryKeys(es), []string{"b", "b", "a", "a"})
		var copies []int
		for _, e := range es {
			copies = append(copies, e.Copies)
			if e.Message.Receipt != "" {
				t.Error("an entry has a receipt, which is spent")
			}
		}
		equal(t, "copies", copies, []int{2, 0, 0, 0})
		r.depths(6, 0)
	})
}

// However long a listing takes, each letter is received once: what has been met is held.
func TestListHoldsWhatItHasMet(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		const n = 25
		r.putN(n)
		// Each receive takes longer than a letter stays hidden.
		r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive {
				return faulty.Slow(45 * time.Second)
			}
			return nil
		})
		r.dlq = open(t, r.dead, &dlq.Options{Visibility: 20 * time.Second, CallTimeout: 50 * time.Second})
		// Not all at once, even where a batch is large.
		es, err := r.list(dlq.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		if len(es) != n {
			t.Errorf("%d entries, want %d", len(es), n)
		}
		r.dead.SetFault(nil)
		for _, m := range r.drain(r.dead) {
			if m.Attempt > 2 { // once by the listing, once just now
				t.Errorf("letter %s was received %d times", m.Meta.Key, m.Attempt)
			}
		}
	})
}

// Whatever the loop does, the letters are visible at once.
func TestListHandsBack(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(3)
		for range r.dlq.List(context.Background(), dlq.Filter{}) {
			r.depths(3, 0)
			break
		}
		r.depths(3, 0)
		func() {
			defer func() { _ = recover() }()
			for range r.dlq.List(context.Background(), dlq.Filter{}) {
				panic("the loop's own")
			}
		}()
		r.depths(3, 0)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic of Match was swallowed")
				}
			}()
			_, _ = r.list(dlq.Filter{Match: func(*broker.Message) bool { panic("Match's own") }})
		}()
		r.depths(3, 0)
		// The context ends while the listing waits for more.
		receives := 0
		r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive {
				if receives++; receives > 1 {
					return faulty.Slow(2 * time.Second)
				}
			}
			return nil
		})
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(why) })
		n, last := 0, error(nil)
		for _, err := range r.dlq.List(ctx, dlq.Filter{}) {
			if last = err; err == nil {
				n++
			}
		}
		if n != 3 || !errors.Is(last, why) {
			t.Errorf("%d entries and %v", n, last)
		}
		r.depths(3, 0)
	})
}

func TestListFaults(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(5)
		for _, f := range []faulty.Faults{faulty.Fail(errFault), faulty.Lose(errFault)} {
			for _, op := range []onceqtest.Op{onceqtest.Receive, onceqtest.Nack} {
				r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
					if c.Op == op && c.N <= 2 {
						return f
					}
					return nil
				})
				es, err := r.list(dlq.Filter{})
				r.dead.SetFault(nil)
				if err != nil || len(es) != 5 {
					t.Errorf("%v %+v: %d entries, %v", op, f, len(es), err)
				}
				r.depths(5, 0)
			}
		}
	})
}

// When a receive loses its answer in every minute, nothing shows that all has been seen.
func TestListWhereAnswersAreLostAllTheTime(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(5)
		r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive && c.N%2 == 0 {
				return faulty.Lose(errFault)
			}
			return nil
		})
		began := time.Now()
		es, err := r.list(dlq.Filter{})
		if took := time.Since(began); !errors.Is(err, dlq.ErrIncomplete) || took > 10*time.Minute {
			t.Errorf("%d entries and %v after %v", len(es), err, took)
		}
		r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive && c.N%2 == 1 {
				return faulty.Fail(broker.ErrThrottled)
			}
			return nil
		})
		pass(time.Minute)
		began = time.Now()
		es, err = r.list(dlq.Filter{})
		if took := time.Since(began); err != nil || len(es) != 5 || took > 30*time.Second {
			t.Errorf("throttled: %d entries and %v after %v", len(es), err, took)
		}
	})
}

// A broker that is gone is not asked for ever, and one that fails only for as long as patience
// lasts.
func TestListGivesUp(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.putN(1)
		calls := 0
		r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			calls++
			return faulty.Fail(errFault)
		})
		began := time.Now()
		if _, err := r.list(dlq.Filter{}); !errors.Is(err, errFault) {
			t.Error(err)
		}
		if took := time.Since(began); took < dlq.DefaultRetryFor-time.Second || took > dlq.DefaultRetryFor+5*time.Second || calls < 10 {
			t.Errorf("%d calls in %v", calls, took)
		}
		r.dlq = open(t, r.dead, &dlq.Options{RetryFor: -1})
		calls = 0
		if _, err := r.list(dlq.Filter{}); !errors.Is(err, errFault) || calls != 1 {
			t.Error(calls, err)
		}
		r.dead.SetFault(nil)
		r.dead.Close()
		began = time.Now()
		if _, err := r.list(dlq.Filter{}); !errors.Is(err, broker.ErrClosed) || time.Since(began) != 0 {
			t.Error(err, time.Since(began))
		}
	})
}

// The errors name the bounds, so that nobody takes a part for the whole.
func TestListBounds(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(30)
		es, err := r.list(dlq.Filter{Max: 12})
		if err != nil || len(es) != 12 {
			t.Errorf("%d entries, %v", len(es), err)
		}
		r.dlq = open(t, r.dead, &dlq.Options{MaxHeld: 15})
		es, err = r.list(dlq.Filter{})
		if !errors.Is(err, dlq.ErrIncomplete) || len(es) != 15 || !strings.Contains(err.Error(), "15 letters are held, which is Options.MaxHeld") {
			t.Errorf("%d entries, %v", len(es), err)
		}
		r.depths(30, 0)
	})
}

func TestListDefaultMax(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		for i := range dlq.DefaultMaxListed {
			r.put(letterOf(fmt.Sprint(i), uint64(i+1)))
		}
		if es, err := r.list(dlq.Filter{}); err != nil || len(es) != dlq.DefaultMaxListed {
			t.Errorf("%d entries, %v", len(es), err)
		}
		r.put(letterOf("one more", 99999))
		es, err := r.list(dlq.Filter{})
		if !errors.Is(err, dlq.ErrIncomplete) || len(es) != dlq.DefaultMaxListed {
			t.Errorf("%d entries, %v", len(es), err)
		}
	})
}

// In a group a letter waits for those before it; a listing that cannot reach it says so.
func TestListOfOneGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, membroker.SQSFIFO, nil)
		for i := range 10 {
			r.put(letterOf(fmt.Sprint(i), uint64(i+1), func(o *broker.Outgoing) { o.Group = "one" }))
		}
		if es, err := r.list(dlq.Filter{}); err != nil || len(es) != 10 {
			t.Errorf("%d entries, %v", len(es), err)
		}
		r.put(letterOf("behind", 11, func(o *broker.Outgoing) { o.Group = "one" }))
		if es, err := r.list(dlq.Filter{}); !errors.Is(err, dlq.ErrIncomplete) || len(es) != 10 {
			t.Errorf("%d entries, %v", len(es), err)
		}
		// A replay takes them out, and so reaches all.
		r.report(r.mustReplay(dlq.ReplayOptions{}), 11, 11)
		r.depths(0, 11)
	})
}

// static is a queue that cannot extend.
type static struct{ broker.Broker }

func (s static) Limits() broker.Limits {
	l := s.Broker.Limits()
	l.Extends = false
	return l
}

func (s static) Extend(context.Context, []broker.Hold) error { return broker.ErrUnsupported }

// Where letters cannot be held, a listing ends all the same, shows each once, and says that it may
// have missed some.
func TestListOfAQueueThatCannotHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, membroker.SQSStandard, nil)
		r.putN(30)
		r.dlq = open(t, static{r.dead}, &dlq.Options{Visibility: time.Second})
		r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			return faulty.Slow(600 * time.Millisecond)
		})
		es, err := r.list(dlq.Filter{})
		if !errors.Is(err, dlq.ErrIncomplete) {
			t.Error(err)
		}
		ks := entryKeys(es)
		if slices.Sort(ks); len(slices.Compact(ks)) != len(es) || len(es) < 20 {
			t.Errorf("%d entries: %v", len(es), ks)
		}
	})
}

// hasty is a queue whose receives do not wait.
type hasty struct {
	broker.Broker
	receives *int
}

func (h hasty) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	*h.receives++
	o.Wait = 0
	return h.Broker.Receive(ctx, o)
}

// One empty answer is not an empty queue, and a broker that does not wait is not asked without a
// pause.
func TestListOfAHastyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, membroker.Memory, nil)
		n := 0
		r.dlq = open(t, hasty{r.dead, &n}, nil)
		r.put(letterOf("a", 1), letterOf("b", 2, func(o *broker.Outgoing) { o.Delay = 2 * time.Second }))
		began := time.Now()
		es, err := r.list(dlq.Filter{})
		if took := time.Since(began); err != nil || len(es) != 2 || took < 5*time.Second || took > 6*time.Second || n > 50 {
			t.Errorf("%d entries, %v, after %v and %d receives", len(es), err, took, n)
		}
	})
}

func TestGet(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(15)
		again := letterOf("k-3", 44)
		r.put(again, again)
		for _, name := range []string{"k-3", "j-k-3"} {
			es, err := r.dlq.Get(context.Background(), name)
			if err != nil || len(es) != 2 || es[0].Ref().Fence != 44 || es[0].Copies != 1 || es[1].Ref().Fence != 4 || es[1].Copies != 0 {
				t.Errorf("%s: %v, %v", name, es, err)
			}
			if len(es) > 0 {
				if by, err := r.dlq.Get(context.Background(), es[1].Message.ID); err != nil || len(by) != 1 || by[0].Ref().Fence != 4 {
					t.Errorf("by message: %v, %v", by, err)
				}
			}
		}
		if _, err := r.dlq.Get(context.Background(), "nobody"); !errors.Is(err, dlq.ErrNoLetter) {
			t.Error(err)
		}
		if _, err := r.dlq.Get(context.Background(), ""); err == nil {
			t.Error("no error for an empty name")
		}
		r.depths(17, 0)
	})
}

func TestGroup(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		says := func(text string) func(*broker.Outgoing) {
			return func(o *broker.Outgoing) { o.Meta.Dead.LastErr = text }
		}
		a := letterOf("a", 1, says("no such account 17"))
		r.put(a, a, letterOf("x", 7, class("timeout"), says("no such account 17"), func(o *broker.Outgoing) { o.Meta.Type = "mail" }))
		pass(time.Hour)
		r.put(letterOf("b", 2, says("no such account 90\nand more")), letterOf("raw", 0, noMeta))
		gs, err := r.dlq.Group(context.Background(), dlq.Filter{})
		if err != nil || len(gs) != 3 {
			t.Fatal(gs, err)
		}
		g := gs[0]
		if g.Class != "permanent" || g.Count != 2 || g.Copies != 1 || g.Types["charge"] != 2 || g.Sources["payments"] != 2 ||
			g.Newest.Sub(g.Oldest).Round(time.Minute) != time.Hour || g.Sample != "no such account 90\nand more" || g.Key != "b" ||
			g.Error != "no such account #" || g.Group != dlq.Fingerprint("permanent", "no such account 1") {
			t.Errorf("%+v", g)
		}
		if gs[1].Class != "timeout" || gs[1].Types["mail"] != 1 || gs[2].Class != dlq.Unexplained || gs[2].Count != 1 {
			t.Errorf("%+v", gs)
		}
		text := gs.String()
		if !strings.Contains(text, "charge 2") || !strings.Contains(text, "no such account 90 …") || strings.Count(text, "\n") != 4 {
			t.Errorf("%s", text)
		}
		r.depths(5, 0)
		// A filter that names a group chooses its letters, and no others.
		for _, g := range gs {
			es, err := r.list(dlq.Filter{Group: g.Group})
			if err != nil || len(es) != g.Count || es[0].Fingerprint() != g.Group || es[len(es)-1].Ref().Key != g.Key {
				t.Errorf("group %s: %v, %v", g.Group, es, err)
			}
		}
		if gs, err = r.dlq.Group(context.Background(), dlq.Filter{Max: 1}); err != nil || len(gs) != 1 || gs[0].Count != 1 {
			t.Error(gs, err)
		}
	})
}

// The sources are shown where a reader has to choose between them, in lines that a terminal holds.
func TestGroupsShowTheirSources(t *testing.T) {
	long := "orders:" + strings.Repeat("n", 30)
	gs := dlq.Groups{
		{Class: "timeout", Count: 8, Sources: map[string]int{"s:slow": 2, "s:fast": 1, long + "1": 2, long + "2": 2, "": 1}},
		{Class: "permanent", Count: 1, Sources: map[string]int{strings.Repeat("x", 90): 1}},
	}
	want := "sources of timeout: " + long + "1 2,\n  " + long + "2 2, s:slow 2, - 1, s:fast 1\n" +
		"sources of permanent:\n  " + strings.Repeat("x", 90) + " 1\n"
	if got := gs.String(); !strings.HasSuffix(got, "\n"+want) {
		t.Errorf("%s\nwant it to end in\n%s", got, want)
	}
	for _, one := range []dlq.Groups{nil, {{Class: "timeout", Sources: map[string]int{"s": 2, "": 1}}, {Class: "panic", Sources: map[string]int{"s": 1}}}} {
		if got := one.String(); strings.Contains(got, "sources") {
			t.Errorf("there is nothing to choose between:\n%s", got)
		}
	}
}

func TestFilter(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		start := time.Now()
		r.putN(5)
		r.put(letterOf("other", 77, class("timeout"), func(o *broker.Outgoing) { o.Meta.Type, o.Meta.Dead.Source = "mail", "mails" }))
		r.put(letterOf("no key", 78, func(o *broker.Outgoing) { o.Meta.Key = "" }))
		r.put(letterOf("native", 0, noMeta))
		at := func(i int) time.Time { return start.Add(time.Duration(i) * (time.Second + time.Millisecond)) }
		for _, c := range []struct {
			name string
			f    dlq.Filter
			want []string
		}{
			{"all", dlq.Filter{}, []string{"k-0", "k-1", "k-2", "k-3", "k-4", "other", "j-no key", ""}},
			{"class", dlq.Filter{Class: "timeout"}, []string{"other"}},
			{"unexplained", dlq.Filter{Class: dlq.Unexplained}, []string{""}},
			{"type", dlq.Filter{Type: "mail"}, []string{"other"}},
			{"source", dlq.Filter{Source: "mails"}, []string{"other"}},
			{"key", dlq.Filter{Key: "k-2"}, []string{"k-2"}},
			{"id for a key", dlq.Filter{Key: "j-no key"}, []string{"j-no key"}},
			{"since", dlq.Filter{Since: at(4)}, []string{"k-4", "other", "j-no key", ""}},
			{"until", dlq.Filter{Until: at(2)}, []string{"k-0", "k-1"}},
			{"between", dlq.Filter{Since: at(1), Until: at(3)}, []string{"k-1", "k-2"}},
			{"match", dlq.Filter{Match: func(m *broker.Message) bool { return string(m.Body) == "body of k-1" }}, []string{"k-1"}},
			{"two", dlq.Filter{Type: "charge", Key: "other"}, nil},
		} {
			es, err := r.list(c.f)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, c.name, entryKeys(es), c.want)
		}
		for _, c := range []struct {
			f    dlq.Filter
			want string
		}{
			{dlq.Filter{Max: -1}, "Filter.Max: -1"},
			{dlq.Filter{Group: "timeout"}, `Filter.Group: "timeout" is not a group, which is 8 hex digits`},
			{dlq.Filter{Group: "A41F09C2"}, `Filter.Group: "A41F09C2" is not`},
			{dlq.Filter{Group: "a41f09c"}, "Filter.Group"},
			{dlq.Filter{Group: "a41f09cg"}, "Filter.Group"},
			{dlq.Filter{Group: strings.Repeat("a", 1<<20)}, "a… (1048576 bytes)"},
			{dlq.Filter{Since: at(1), Until: at(1)}, "Filter.Since"},
		} {
			if _, err := r.list(c.f); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if _, err := r.dlq.Group(context.Background(), c.f); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		}
	})
}

func TestNew(t *testing.T) {
	sqs, err := membroker.New(&membroker.Options{Preset: membroker.SQSStandard})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		b    broker.Receiver
		o    dlq.Options
		want string
	}{
		{nil, dlq.Options{}, "the broker is nil"},
		{(*membroker.Broker)(nil), dlq.Options{}, "the broker is nil"},
		{sqs, dlq.Options{Visibility: time.Millisecond}, "Options.Visibility: 1ms is below 1s"},
		{sqs, dlq.Options{Visibility: 13 * time.Hour}, "Options.Visibility: 13h0m0s is above the broker's longest extension, 12h0m0s"},
		{sqs, dlq.Options{Wait: -1}, "Options.Wait"},
		{sqs, dlq.Options{MaxHeld: -1}, "Options.MaxHeld"},
		{sqs, dlq.Options{CallTimeout: -1}, "Options.CallTimeout"},
		{sqs, dlq.Options{Visibility: 30}, "Options.Visibility: 30ns is below 1ms; is its unit missing?"},
		{sqs, dlq.Options{Wait: 3}, "Options.Wait: 3ns is below 1ms; is its unit missing?"},
		{sqs, dlq.Options{CallTimeout: 5}, "Options.CallTimeout: 5ns is below 1ms; is its unit missing?"},
		{sqs, dlq.Options{RetryFor: 60}, "Options.RetryFor: 60ns is below 1ms; is its unit missing?"},
	} {
		if _, err := dlq.New(c.b, &c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestEntryForPeople(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		l := letterOf("order-7", 41, func(o *broker.Outgoing) { o.Attributes = map[string]string{"tenant": "acme"} })
		r.put(l, l)
		es, err := r.list(dlq.Filter{})
		if err != nil || len(es) != 1 {
			t.Fatal(es, err)
		}
		if got, want := es[0].String(), "2000-01-01 00:00:00Z  charge order-7 [permanent]: no such account (and 1 more of it)"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		var b strings.Builder
		if err := es[0].Show(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"key          order-7\n", "class        permanent\n", "attempts     2\n", "first error  first\n", "last error   no such account\n",
			"fence        41\n", "attribute    tenant = acme\n", "copies       1 more\n", "body         body of order-7\n",
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s", want, b.String())
			}
		}
	})
}
