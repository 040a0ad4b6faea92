package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/onceqtest"
)

// A letter goes back as it is, with the fence that lets it reopen its failure; its copies go with
// it.
func TestReplay(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		l := letterOf("a", 7, func(o *broker.Outgoing) {
			o.Attributes = map[string]string{"traceparent": "00-1-2-01"}
			o.Meta.Version, o.Meta.Extra, o.Meta.Dead.Extra = 3, `"new":true`, `"newer":1`
			o.Meta.MaxAttempts, o.Meta.CorrelationID, o.Meta.Timeout = 4, "c-1", time.Minute
		})
		r.put(l, l, letterOf("b", 8))
		pass(time.Second)
		r.put(l) // a copy that is met later
		r.report(r.mustReplay(dlq.ReplayOptions{}), 4, 2, 2)
		r.depths(0, 2)
		ms := r.drain(r.queue)
		equal(t, "keys", keys(ms), []string{"a", "b"})
		i := slices.IndexFunc(ms, func(m *broker.Message) bool { return m.Meta.Key == "a" })
		if got, want := broker.EncodeMeta(ms[i].Meta), broker.EncodeMeta(l.Meta); got != want {
			t.Errorf("metadata %s, want %s", got, want)
		}
		if string(ms[i].Body) != string(l.Body) || ms[i].Group != l.Group || !maps.Equal(ms[i].Attributes, l.Attributes) {
			t.Errorf("%+v", ms[i])
		}
	})
}

// Letters of one key and fence whose bodies differ are all sent: the claim tells what they are, and
// a letter that is taken for a copy would be lost.
func TestReplayOfDifferentBodies(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		other := letterOf("a", 7, func(o *broker.Outgoing) { o.Body = []byte("other"); o.Group = "g2" })
		r.put(letterOf("a", 7), other)
		r.report(r.mustReplay(dlq.ReplayOptions{}), 2, 2)
		r.depths(0, 2)
	})
}

// What fails after the replay has begun is not in its set, nor is a job that it has sent, whatever
// the worker's clock says.
func TestReplayFreezesItsSet(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(25)
		n := 0
		// A worker with a clock that is an hour behind dead-letters each message at once.
		rep := r.mustReplay(dlq.ReplayOptions{PerSecond: 10, Each: func(s dlq.Step) {
			if s.Result != dlq.Replayed {
				return
			}
			n++
			key := s.Entry.Ref().Key
			behind := func(o *broker.Outgoing) { o.Meta.Dead.At = time.Now().Add(-time.Hour) }
			if n%2 == 0 {
				behind = func(*broker.Outgoing) {}
			}
			r.put(letterOf(key, uint64(1000+n), behind))
		}})
		if n != 25 || rep.Replayed != 25 || rep.Newer+len(rep.Skipped) != 25 || len(rep.Skipped) != 13 {
			t.Errorf("%d sent; %v", n, rep)
		}
		for _, s := range rep.Skipped {
			if !strings.Contains(s.Reason, "has sent the job already") || s.Ref.Key == "" {
				t.Errorf("%+v", s)
			}
		}
		r.depths(25, 25)
		r.drain(r.queue)
		// They are the next run's.
		r.report(r.mustReplay(dlq.ReplayOptions{}), 25, 25)
	})
}

// Letters that are not chosen are held until the end, each received once, and handed back.
func TestReplayFilter(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		for i := range 40 {
			c := "timeout"
			if i%4 == 0 {
				c = "permanent"
			}
			r.put(letterOf(fmt.Sprint("k-", i), uint64(i+1), class(c)))
		}
		rep := r.mustReplay(dlq.ReplayOptions{Filter: dlq.Filter{Class: "permanent"}, PerSecond: 0.1})
		r.report(rep, 40, 10, 0, 0, 0, 30)
		r.depths(30, 10)
		for _, m := range r.drain(r.dead) {
			if m.Meta.Dead.Class != "timeout" || m.Attempt > 2 {
				t.Errorf("%s, received %d times", m.Meta.Dead.Class, m.Attempt)
			}
		}
	})
}

func TestReplayMax(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.put(letterOf("a", 1), letterOf("b", 2), letterOf("c", 3), letterOf("a", 1), letterOf("c", 3))
		r.report(r.mustReplay(dlq.ReplayOptions{Filter: dlq.Filter{Max: 2}}), 5, 2, 1, 0, 0, 2)
		r.depths(2, 2)
		r.report(r.mustReplay(dlq.ReplayOptions{Filter: dlq.Filter{Max: 2}}), 2, 1, 1)
	})
}

// The rate is kept, from the first letter on, and what waits is held.
func TestReplayRate(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(20)
		for _, c := range []struct {
			rate float64
			n    int
			took time.Duration
		}{{0.02, 3, 100 * time.Second}, {2, 5, 2 * time.Second}, {100, 12, 20 * time.Millisecond}} {
			began, last := time.Now(), time.Time{}
			rep := r.mustReplay(dlq.ReplayOptions{PerSecond: c.rate, Filter: dlq.Filter{Max: c.n}, Each: func(s dlq.Step) {
				if s.Result == dlq.Replayed {
					last = time.Now()
				}
			}})
			if took := last.Sub(began); rep.Replayed != c.n || took < c.took || took > c.took+c.took/2+100*time.Millisecond {
				t.Errorf("%v a second: %d in %v, want %v", c.rate, rep.Replayed, took, c.took)
			}
		}
		r.depths(0, 20)
	})
}

// Under a slow rate the held letters are extended: none is received twice.
func TestReplayHoldsWhileItWaits(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(12)
		receives := 0
		r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive {
				receives++
			}
			return nil
		})
		attempts := 0
		rep := r.mustReplay(dlq.ReplayOptions{PerSecond: 0.05, Each: func(s dlq.Step) { attempts = max(attempts, s.Entry.Message.Attempt) }})
		r.report(rep, 12, 12)
		if attempts > 1 {
			t.Errorf("a letter was received %d times", attempts)
		}
		r.depths(0, 12)
	})
}

func TestReplayDryRun(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.put(letterOf("a", 1), letterOf("a", 1), letterOf("b", 2), letterOf("none", 0), letterOf("other", 3, class("timeout")))
		var steps []string
		r.queue.SetFault(func(context.Context, onceqtest.Call) faulty.Faults {
			t.Error("a dry run called the queue")
			return nil
		})
		rep := r.mustReplay(dlq.ReplayOptions{
			DryRun: true, Canary: 1, PerSecond: 0.001, Filter: dlq.Filter{Match: func(m *broker.Message) bool { return m.Meta.Dead.Class != "timeout" }},
			Each: func(s dlq.Step) {
				steps = append(steps, s.Entry.Ref().Key+" "+s.Result.String())
				if s.Entry.Message.Body[0] != 'b' || len(s.Entry.Message.Attributes) > 0 {
					t.Errorf("Edit changed the letter itself: %s %v", s.Entry.Message.Body, s.Entry.Message.Attributes)
				}
			},
			Edit: func(o *broker.Outgoing) error {
				o.Body[0], o.Attributes["x"] = 'X', "y"
				o.Meta.Type = o.Meta.Type + ""
				return nil
			},
		})
		r.queue.SetFault(nil)
		r.report(rep, 5, 2, 1, 1, 0, 1)
		slices.Sort(steps)
		equal(t, "steps", steps, []string{"a copy", "a replayed", "b replayed", "none skipped", "other unchosen"})
		r.depths(5, 0)
		for _, m := range r.drain(r.dead) {
			if m.Body[0] != 'b' || len(m.Attributes) > 0 {
				t.Errorf("the letter was changed: %s %v", m.Body, m.Attributes)
			}
		}
	})
}

func TestReplayEdit(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.put(letterOf("a", 7), letterOf("bad", 8), letterOf("nometa", 9), letterOf("nokey", 10), letterOf("none", 0), letterOf("fresh", 0), letterOf("typed", 0))
		rep := r.mustReplay(dlq.ReplayOptions{Edit: func(o *broker.Outgoing) error {
			switch o.Meta.Key {
			case "a":
				o.Body, o.Attributes["edited"] = []byte("mended"), "yes"
				o.Meta.MaxAttempts = 1
				o.Meta.Dead = nil // it stays all the same
			case "bad":
				return errors.New("nobody can mend it")
			case "nometa":
				o.Meta = nil
			case "nokey":
				o.Meta.Key, o.Meta.ID = "", ""
			case "none":
				o.Meta.ID = "another id is no other key"
			case "fresh":
				o.Meta.Key = "fresh-2"
			case "typed":
				o.Meta.Type = "refund"
			}
			return nil
		}})
		r.report(rep, 7, 3, 0, 4)
		reasons := make(map[string]string)
		for _, s := range rep.Skipped {
			reasons[s.Ref.Key] = s.Reason
		}
		for key, want := range map[string]string{"bad": "nobody can mend it", "nometa": "metadata was taken away", "nokey": "neither Key nor ID", "none": "another payload"} {
			if !strings.Contains(reasons[key], want) {
				t.Errorf("%s: %q, want %q", key, reasons[key], want)
			}
		}
		ms := r.drain(r.queue)
		equal(t, "keys", keys(ms), []string{"a", "fresh-2", "typed"})
		for _, m := range ms {
			if m.Meta.Key == "a" {
				if string(m.Body) != "mended" || m.Attributes["edited"] != "yes" || m.Meta.MaxAttempts != 1 || m.Meta.Dead == nil || m.Meta.Dead.Fence != 7 {
					t.Errorf("%+v %+v", m, m.Meta.Dead)
				}
			}
		}
		r.depths(4, 0)
	})
}

// Under NoStore every letter has fence 0, and nothing is recorded that could refuse it.
func TestReplayOfLettersWithoutAStore(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.put(letterOf("a", 0, func(o *broker.Outgoing) { o.Meta.Dead.Class, o.Meta.Dead.Attempts = "permanent", 10 }))
		r.report(r.mustReplay(dlq.ReplayOptions{}), 1, 1)
	})
}

// Two refused messages without an id may be two jobs, however alike they are; two letters of one
// job are copies.
func TestReplayOfRefusedLetters(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		nobody := func(o *broker.Outgoing) { o.Meta.ID, o.Meta.Key = "", "" }
		r.put(letterOf("a", 0, nobody), letterOf("a", 0, nobody), letterOf("b", 0), letterOf("b", 0))
		r.report(r.mustReplay(dlq.ReplayOptions{}), 4, 0, 0, 4)
		r.depths(4, 0)
		n := 0
		rep := r.mustReplay(dlq.ReplayOptions{Edit: func(o *broker.Outgoing) error {
			n++
			o.Meta.Key = fmt.Sprint("new-", n)
			return nil
		}})
		r.report(rep, 4, 3, 1)
		r.depths(0, 3)
	})
}

// Letters without our metadata go back as they are, each for itself, however alike they look.
func TestReplayOfForeignLetters(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.put(letterOf("a", 0, noMeta), letterOf("a", 0, noMeta), letterOf("b", 1, func(o *broker.Outgoing) { o.Meta.Dead = nil }))
		r.report(r.mustReplay(dlq.ReplayOptions{}), 3, 3)
		ms := r.drain(r.queue)
		equal(t, "keys", keys(ms), []string{"b", "body body of a", "body body of a"})
		for _, m := range ms {
			if m.Meta != nil && m.Meta.Dead != nil {
				t.Errorf("%+v", m.Meta.Dead)
			}
		}
		r.depths(0, 0)
	})
}

// What the worker could not read goes back as it had come: the next one may be newer.
func TestReplayRestoresUnreadableMetadata(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		const raw = `{"v":1,"id":"j-1","k":"order-7","to":-1}`
		if err := r.queue.SendRaw(context.Background(), []byte("body"), map[string]string{"onceq": raw, "tenant": "acme"}); err != nil {
			t.Fatal(err)
		}
		m := r.drain(r.queue)[0]
		if m.MetaErr == nil {
			t.Fatal("the metadata was readable")
		}
		for _, fit := range []letter.Fit{letter.Whole, letter.Folded, letter.Bare} {
			l := letter.Make(m, letter.Key{}, broker.Letter{Class: "bad-meta", At: time.Now()}, fit)
			l.Group, l.DedupID = "g", ""
			r.put(l)
			r.report(r.mustReplay(dlq.ReplayOptions{}), 1, 1)
			back := r.drain(r.queue)
			if len(back) != 1 || back[0].MetaErr == nil || back[0].Meta != nil ||
				!maps.Equal(back[0].Attributes, map[string]string{"onceq": raw, "tenant": "acme"}) || string(back[0].Body) != "body" {
				t.Errorf("fit %d: %+v", fit, back[0])
			}
		}
		// The queue's own redrive keeps the attribute where it is; Edit may replace it.
		if err := r.dead.SendRaw(context.Background(), []byte("body"), map[string]string{"onceq": raw}); err != nil {
			t.Fatal(err)
		}
		pass(time.Millisecond)
		r.report(r.mustReplay(dlq.ReplayOptions{Edit: func(o *broker.Outgoing) error {
			if o.Meta != nil || o.Attributes["onceq"] != raw {
				t.Errorf("%+v", o)
			}
			o.Meta = &broker.Meta{ID: "j-1", Key: "order-7"}
			return nil
		}}), 1, 1)
		if back := r.drain(r.queue); len(back) != 1 || back[0].Meta == nil || back[0].Meta.Key != "order-7" || len(back[0].Attributes) != 0 {
			t.Errorf("%+v", back)
		}
	})
}

// Folded attributes get their places back, where there is room for all of them.
func TestReplayUnfolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, membroker.SQSStandard, nil)
		fold := func(key string, n int) (broker.Outgoing, map[string]string) {
			inside := make(map[string]string)
			for i := range n {
				inside[fmt.Sprint("a", i)] = "v"
			}
			return letterOf(key, uint64(n), func(o *broker.Outgoing) { o.Meta.Dead.Attributes = inside }), inside
		}
		fits, nine := fold("fits", 9)
		tooMany, ten := fold("too many", 10)
		r.put(fits, tooMany)
		r.report(r.mustReplay(dlq.ReplayOptions{}), 2, 2)
		for _, m := range r.drain(r.queue) {
			switch m.Meta.Key {
			case "fits":
				if !maps.Equal(m.Attributes, nine) || m.Meta.Dead.Attributes != nil {
					t.Errorf("%v, folded %v", m.Attributes, m.Meta.Dead.Attributes)
				}
			default:
				if len(m.Attributes) != 0 || !maps.Equal(m.Meta.Dead.Attributes, ten) {
					t.Errorf("%v, folded %v", m.Attributes, m.Meta.Dead.Attributes)
				}
			}
		}
	})
}

// A letter that is larger than the queue takes is cut down; where that does not help it stays, and
// the others go on. A batch that is too large together is sent in parts.
func TestReplayTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, membroker.Memory, nil)
		r.queue = newRig(t, membroker.SQSStandard, nil).queue
		big := func(key string, body, text int) broker.Outgoing {
			return letterOf(key, uint64(body+text), func(o *broker.Outgoing) {
				o.Body = make([]byte, body)
				o.Meta.Dead.LastErr = strings.Repeat("x", text)
			})
		}
		r.put(big("small", 10, 10), big("texts", 1<<20-500, 2000), big("half", 600_000, 10), big("huge", 1<<20+1, 10), big("half again", 600_001, 10))
		rep := r.mustReplay(dlq.ReplayOptions{})
		r.report(rep, 5, 4, 0, 0, 1)
		if rep.Failed[0].Ref.Key != "huge" || !strings.Contains(rep.Failed[0].Reason, "too large") {
			t.Errorf("%+v", rep.Failed)
		}
		ms := r.drain(r.queue)
		equal(t, "keys", keys(ms), []string{"half", "half again", "small", "texts"})
		for _, m := range ms {
			if m.Meta.Key == "texts" && (len(m.Meta.Dead.LastErr) > 200 || m.Meta.Dead.Fence == 0) {
				t.Errorf("%+v", m.Meta.Dead)
			}
		}
		r.depths(1, 0)
	})
}

// A queue that needs a group gives one to letters that have none.
func TestReplayToAQueueThatNeedsGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, membroker.SQSStandard, nil)
		r.queue = newRig(t, membroker.SQSFIFO, nil).queue
		no := func(o *broker.Outgoing) { o.Group = "" }
		r.put(letterOf("a", 1, no), letterOf("b", 2, no), letterOf("c", 0, no, noMeta))
		r.report(r.mustReplay(dlq.ReplayOptions{}), 3, 3)
		groups := make(map[string]bool)
		for _, m := range r.drain(r.queue) {
			groups[m.Group] = true
		}
		if len(groups) != 3 || groups[""] {
			t.Errorf("%v", groups)
		}
	})
}

// In a group the letters keep their order, although sends fail.
func TestReplayKeepsTheOrderOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, membroker.SQSFIFO, nil)
		var want []string
		for i := range 24 {
			key := fmt.Sprint(i/2, "-", i%2)
			r.put(letterOf(key, uint64(i+1), func(o *broker.Outgoing) { o.Group = fmt.Sprint(i % 2) }))
			if i%2 == 0 {
				want = append(want, key)
			}
		}
		r.queue.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			return faulty.Fail(errFault).Only((c.N * 7) % 3)
		})
		r.report(r.mustReplay(dlq.ReplayOptions{}), 24, 24)
		r.queue.SetFault(nil)
		var got []string
		for _, m := range r.drain(r.queue) {
			if m.Group == "0" {
				got = append(got, m.Meta.Key)
			}
		}
		equal(t, "order", got, want)
	})
}

func TestReplayOptions(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			o    dlq.ReplayOptions
			want string
		}{
			{dlq.ReplayOptions{To: r.dead}, "ReplayOptions.To: is the dead-letter queue itself"},
			{dlq.ReplayOptions{To: (*membroker.Broker)(nil)}, "ReplayOptions.To: is nil"},
			{dlq.ReplayOptions{PerSecond: -1}, "ReplayOptions.PerSecond: -1"},
			{dlq.ReplayOptions{PerSecond: 1e-9}, "ReplayOptions.PerSecond: 1e-09 is below"},
			{dlq.ReplayOptions{Canary: -1}, "ReplayOptions.Canary: -1"},
			{dlq.ReplayOptions{Canary: 1, CanaryWait: -1}, "ReplayOptions.CanaryWait: -1ns"},
			{dlq.ReplayOptions{CanaryWait: 1}, "ReplayOptions.CanaryWait: is 1ns, but"},
			{dlq.ReplayOptions{CanaryWait: 3, Canary: 1}, "ReplayOptions.CanaryWait: 3ns is below 1ms; is its unit missing?"},
			{dlq.ReplayOptions{Canary: 5, Filter: dlq.Filter{Max: 5}}, "ReplayOptions.Canary: 5 leaves nothing"},
			{dlq.ReplayOptions{Filter: dlq.Filter{Max: -5}}, "ReplayOptions.Max: -5"},
		} {
			if _, err := r.replay(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		}
		if _, err := r.dlq.Replay(context.Background(), dlq.ReplayOptions{}); err == nil || !strings.Contains(err.Error(), "To: is nil") {
			t.Error(err)
		}
	})
}

func TestReportForPeople(t *testing.T) {
	r := dlq.Report{
		Seen: 9, Replayed: 3, Purged: 1, Copies: 1, Unchosen: 2, Newer: 1, Unacked: 1, Elsewhere: 4,
		Skipped: []dlq.Left{{Reason: "why"}, {Reason: "because"}, {Reason: "why"}}, Failed: []dlq.Left{{Reason: "down"}},
	}
	const want = `9 seen, 3 replayed, 1 purged, 1 copy dropped, 3 skipped, 1 failed, 2 not chosen, 1 newer, 1 perhaps still there, 4 in other hands
2 skipped: why
1 skipped: because
1 failed: down`
	if got := r.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// A dry run has done nothing, and its report must not say that it has.
func TestDryRunReportForPeople(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.put(letterOf("a", 1), letterOf("a", 1), letterOf("b", 2), letterOf("none", 0))
		const would = "4 seen, 2 would be replayed, 1 copy would be dropped, 1 would be skipped\n1 would be skipped: "
		rep := r.mustReplay(dlq.ReplayOptions{DryRun: true})
		if got := rep.String(); !rep.DryRun || !strings.HasPrefix(got, would) {
			t.Errorf("the report is %q, want %q", got, would)
		}
		const purged = "4 seen, 4 would be purged"
		if rep, err := r.purge(dlq.PurgeOptions{All: true, NoExport: true, DryRun: true}); err != nil || !rep.DryRun || rep.String() != purged {
			t.Errorf("the report is %q (%v), want %q", rep, err, purged)
		}
		if rep := r.mustReplay(dlq.ReplayOptions{}); rep.DryRun || strings.Contains(rep.String(), "would be replayed") {
			t.Errorf("the report of what was done is %q", rep)
		}
	})
}
