package schedule

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/cputime"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/onceqtest"
)

func at(clock string) string { return "2000-01-01 " + clock }

// wants checks which instants of an entry were sent.
func (w *world) wants(name string, dues ...string) {
	w.Helper()
	if got := w.queue.dues(name); !slices.Equal(got, dues) {
		w.Errorf("%s: sent %q, want %q", name, got, dues)
	}
}

// TestMessage: what Run sets, and what it leaves to the user.
func TestMessage(t *testing.T) {
	inWorld(t, func(w *world) {
		shared := &broker.Meta{Key: "mine", Type: "bill"}
		e := w.entry("bills", Every(time.Hour))
		e.Message = func(time.Time) (broker.Outgoing, error) { return broker.Outgoing{Meta: shared, Group: "g"}, nil }
		stop := w.start(w.store, list(e))
		goOn(time.Hour)
		if err := stop(); err != nil {
			t.Error(err)
		}
		m := w.queue.sent[0].m
		if m.Meta.Key != "bills@2000-01-01T01:00:00Z" || m.Meta.ID != m.Meta.Key || m.Meta.Type != "bill" || m.Group != "g" {
			t.Errorf("sent %+v of %+v", m.Meta, m)
		}
		if due := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC); !m.Meta.Created.Equal(due) || shared.Key != "mine" {
			t.Errorf("created %v, want %v; the user's own is %+v", m.Meta.Created, due, shared)
		}
	})
}

// TestDown: all schedulers are down for 8 h. CatchUp decides, and one WARN has the count.
func TestDown(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*Entry)
		sent    []string
		missed  int
		restart int // schedulers that start again at once
	}{
		{"a minute", func(*Entry) {}, nil, 8, 1},
		{"a minute, five schedulers", func(*Entry) {}, nil, 8, 5},
		{"a day", func(e *Entry) { e.CatchUp = 24 * time.Hour }, []string{"03", "04", "05", "06", "07", "08", "09", "10"}, 0, 5},
		{"a day, the latest", func(e *Entry) { e.CatchUp, e.Latest = 24*time.Hour, true }, []string{"10"}, 0, 5},
		{"three hours", func(e *Entry) { e.CatchUp = 3 * time.Hour }, []string{"08", "09", "10"}, 5, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				e := w.entry("hourly", Every(time.Hour))
				c.change(&e)
				stop := w.start(w.store, list(e))
				goOn(2*time.Hour + 30*time.Minute)
				stop()
				goOn(8 * time.Hour)
				for range c.restart {
					stop := w.start(w.store, list(e))
					defer stop()
				}
				goOn(10 * time.Minute)
				want := []string{at("01:00:00"), at("02:00:00")}
				for _, hour := range c.sent {
					want = append(want, at(hour+":00:00"))
				}
				w.wants("hourly", want...)
				lines := w.log.Lines("level=WARN", "missed")
				if want := fmt.Sprintf("missed=%d entries=1 entry=hourly", c.missed); c.missed > 0 && (len(lines) != 1 || !strings.Contains(lines[0], want)) || c.missed == 0 && len(lines) > 0 {
					t.Errorf("logged %q, want one with %q", lines, want)
				}
			})
		})
	}
}

// TestStoreAway: a store that is away is not a reason to send blind. Afterwards the instants within
// CatchUp are sent, and the others are counted in one line; the outage is told of again while it
// lasts, and once when it is over.
func TestStoreAway(t *testing.T) {
	inWorld(t, func(w *world) {
		short, long := w.entry("short", Every(time.Hour)), w.entry("long", w.cron("30 * * * *", "UTC"))
		long.CatchUp = 4 * time.Hour
		stop := w.start(w.store, list(short, long))
		defer stop()
		goOn(45 * time.Minute)
		w.store.Fails(errors.New("away"))
		goOn(8 * time.Hour)
		w.wants("long", at("00:30:00"))
		w.wants("short")
		w.store.Heals()
		goOn(5 * time.Minute)
		w.wants("short")
		w.wants("long", at("00:30:00"), at("05:30:00"), at("06:30:00"), at("07:30:00"), at("08:30:00"))
		if lines := w.log.Lines("level=WARN", "missed=12 entries=2 entry=short"); len(lines) != 1 || w.log.Count("missed=") != 1 {
			t.Errorf("logged %q", w.log.Lines("missed="))
		}
		if n := w.log.Count("level=WARN", "the store does not answer the scheduler"); n < 8*10 || n > 8*13 {
			t.Errorf("%d lines told of the outage, want one each five minutes", n)
		}
		if n := w.log.Count("level=INFO", "the store answers the scheduler again"); n != 1 {
			t.Errorf("%d lines told of the end", n)
		}
	})
}

// TestFirstDeployment: instants before an entry was known, or before its schedule was changed, are
// not sent, whatever CatchUp says; nor where the change is taken back.
func TestFirstDeployment(t *testing.T) {
	inWorld(t, func(w *world) {
		e := w.entry("report", nil)
		e.CatchUp = 24 * time.Hour
		run := func(expr string, d time.Duration) {
			e.Schedule = w.cron(expr, "UTC")
			stop := w.start(w.store, list(e))
			goOn(d)
			stop()
		}
		goOn(10 * time.Hour)
		run("0 3,11 * * *", 2*time.Hour)    // until 12:00
		run("0 5,13 * * *", 2*time.Hour)    // until 14:00
		run("0 3,12,15 * * *", 2*time.Hour) // until 16:00
		goOn(2 * time.Hour)
		run("0 5,17 * * *", time.Hour)         // the changed one is born now
		goOn(30 * time.Minute)                 // 19:30
		run("0 5,17,19 * * *", 10*time.Minute) // 19:40
		run("0 5,17 * * *", 10*time.Minute)
		w.wants("report", at("11:00:00"), at("13:00:00"), at("15:00:00"))
	})
}

// TestListChanges: entries come, change and go while Run runs.
func TestListChanges(t *testing.T) {
	inWorld(t, func(w *world) {
		var now atomic.Pointer[[]Entry]
		set := func(es ...Entry) { now.Store(&es) }
		set()
		stop := w.start(w.store, func(context.Context) ([]Entry, error) { return slices.Clone(*now.Load()), nil })
		defer stop()
		a, b := w.entry("a", Every(time.Hour)), w.entry("b", Every(time.Hour))
		goOn(30 * time.Minute)
		set(a, b)
		goOn(20 * time.Minute) // 00:50: what was told to the store is told again after 54 minutes or more
		set(a, b, w.entry("c", Every(20*time.Minute)))
		goOn(40 * time.Minute) // 01:30
		b.Schedule = w.cron("45 * * * *", "UTC")
		set(a, b)
		goOn(time.Hour) // 02:30
		set(b)
		goOn(time.Hour) // 03:30
		set(b, a)
		goOn(time.Hour) // 04:30
		w.wants("a", at("01:00:00"), at("02:00:00"), at("04:00:00"))
		w.wants("b", at("01:00:00"), at("01:45:00"), at("02:45:00"), at("03:45:00"))
		w.wants("c", at("01:00:00"), at("01:20:00"))
	})
}

// TestListFails: where es fails, panics, hangs or answers nonsense, the last list goes on, and the
// log says so, again while it lasts, and when it is over.
func TestListFails(t *testing.T) {
	inWorld(t, func(w *world) {
		good := w.entry("hourly", Every(time.Hour))
		bad := w.entry("hourly", Every(time.Hour))
		var es atomic.Pointer[func(context.Context) ([]Entry, error)]
		set := func(f func(context.Context) ([]Entry, error)) { es.Store(&f) }
		set(list(good))
		var calls atomic.Int64
		hung := make(chan struct{})
		stop := w.start(w.store, func(ctx context.Context) ([]Entry, error) {
			calls.Add(1)
			return (*es.Load())(ctx)
		})
		defer stop()
		goOn(30 * time.Minute)
		for _, f := range []func(context.Context) ([]Entry, error){
			func(context.Context) ([]Entry, error) { return nil, errors.New("the table is locked") },
			func(context.Context) ([]Entry, error) { panic("es") },
			list(good, bad), // one name
			list(Entry{Name: "no message"}),
			func(ctx context.Context) ([]Entry, error) { <-ctx.Done(); return nil, ctx.Err() },
			func(context.Context) ([]Entry, error) { <-hung; return nil, errors.New("late") },
		} {
			before := w.log.Count("level=WARN", "cannot be taken")
			was := calls.Load()
			set(f)
			goOn(time.Hour)
			if n := w.log.Count("level=WARN", "cannot be taken") - before; n < 10 || n > 13 {
				t.Errorf("%d lines in an hour, want one each five minutes", n)
			}
			if calls.Load() == was {
				t.Error("es was not asked")
			}
		}
		was := calls.Load()
		goOn(time.Hour)
		if calls.Load() != was {
			t.Error("es was asked while a call of it hung")
		}
		set(list(good))
		close(hung)
		goOn(30 * time.Minute)
		if n := w.log.Count("level=INFO", "taken again"); n != 1 {
			t.Errorf("%d lines told of the end, want 1", n)
		}
		w.wants("hourly", at("01:00:00"), at("02:00:00"), at("03:00:00"), at("04:00:00"), at("05:00:00"), at("06:00:00"), at("07:00:00"), at("08:00:00"))
	})
}

// TestMessageFails: a Message that fails or panics is called again until CatchUp is over, and holds
// up nobody else. So is a queue that fails.
func TestMessageFails(t *testing.T) {
	inWorld(t, func(w *world) {
		fails := w.entry("fails", Every(time.Hour))
		fails.CatchUp = 10 * time.Minute
		fine := fails.Message
		fails.Message = func(due time.Time) (broker.Outgoing, error) {
			switch now := time.Now(); {
			case now.Hour() == 1 && now.Minute() < 5:
				return broker.Outgoing{}, errors.New("no template")
			case now.Hour() == 2 && now.Minute() < 5:
				panic("no template")
			case due.Hour() == 3:
				return broker.Outgoing{}, errors.New("never")
			}
			return fine(due)
		}
		stop := w.start(w.store, list(fails, w.entry("other", Every(time.Hour))))
		defer stop()
		goOn(4*time.Hour + 30*time.Minute)
		w.wants("fails", at("01:00:00"), at("02:00:00"), at("04:00:00"))
		w.wants("other", at("01:00:00"), at("02:00:00"), at("03:00:00"), at("04:00:00"))
		if n := w.log.Count("level=WARN", "cannot be sent", "entry=fails"); n < 4 || n > 7 {
			t.Errorf("%d lines told of the failures", n)
		}
		if n := w.log.Count("level=INFO", "are sent again"); n != 3 {
			t.Errorf("%d lines told of the ends", n)
		}
		if n := w.log.Count("missed=1 entries=1 entry=fails"); n != 1 {
			t.Errorf("%d lines told of what was missed", n)
		}
		w.queue.fails(errors.New("the queue is away"))
		goOn(time.Hour) // 05:30
		w.queue.fails(nil)
		goOn(time.Hour) // 06:30
		w.wants("other", at("01:00:00"), at("02:00:00"), at("03:00:00"), at("04:00:00"), at("06:00:00"))
	})
}

// TestHungQueue: a queue that hangs, and does not obey its context, holds up neither another queue
// nor the end of Run for more than 11 s.
func TestHungQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		var es []Entry
		for i := range 3 * sendsAtOnce { // due at 00:59:54, so all of them hang when the other is due
			e := w.entry(fmt.Sprint("hung", i), Every(5801*time.Second))
			e.To = faultySender{w.queue, faulty.Hang()}
			es = append(es, e)
		}
		stop := w.start(w.store, list(append(es, w.entry("fine", Every(time.Hour)))...))
		goOn(time.Hour + time.Second)
		w.wants("fine", at("01:00:00"))
		began := time.Now()
		stop()
		if d := time.Since(began); d > endFor+2*time.Second {
			t.Errorf("Run ended after %v", d)
		}
	})
}

// faultySender is a queue of which each call goes wrong.
type faultySender struct {
	broker.Sender
	faults faulty.Faults
}

func (s faultySender) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	return s.faults.Sender(s.Sender).Send(ctx, ms)
}

// TestCrashAfterSend: the process dies after the send and before its record. Another one sends the
// instant again, when the dead one's claim is over, and the job runs once.
func TestCrashAfterSend(t *testing.T) {
	inWorld(t, func(w *world) {
		p := new(onceqtest.Process)
		p.At(onceqtest.Fault{Op: onceqtest.Send, Kind: onceqtest.CrashAfter})
		e := w.entry("hourly", Every(time.Hour))
		mine := e
		mine.To = p.Producer(w.queue)
		stop := w.start(p.Store(w.store), list(mine))
		goOn(time.Hour)
		w.wants("hourly", at("01:00:00"))
		stop()
		defer w.start(w.store, list(e))()
		goOn(45 * time.Second)
		w.wants("hourly", at("01:00:00"), at("01:00:00"))
		if n := w.queue.runs[w.queue.sent[0].key]; n != 1 {
			t.Errorf("the job ran %d times", n)
		}
		if a, b := w.queue.sent[0].m, w.queue.sent[1].m; string(a.Body) != string(b.Body) || a.Meta.ID != b.Meta.ID {
			t.Errorf("two messages of one instant: %+v and %+v", a.Meta, b.Meta)
		}
	})
}

// TestShutdownAmidASend: what has begun may end, so nobody needs to catch up.
func TestShutdownAmidASend(t *testing.T) {
	inWorld(t, func(w *world) {
		e := w.entry("hourly", Every(time.Hour))
		e.To = faultySender{w.queue, faulty.Slow(5 * time.Second)}
		stop := w.start(w.store, list(e))
		goOn(time.Hour + time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.wants("hourly", at("01:00:00"))
		defer w.start(w.store, list(e))()
		goOn(50 * time.Second)
		w.wants("hourly", at("01:00:00")) // it is recorded, too
	})
}

// TestGoneWhileSending: an entry that is taken out of the list while it is sent ends with that.
func TestGoneWhileSending(t *testing.T) {
	inWorld(t, func(w *world) {
		e := w.entry("hourly", Every(time.Hour))
		e.To = faultySender{w.queue, faulty.Slow(10 * time.Second)}
		var now atomic.Pointer[[]Entry]
		now.Store(&[]Entry{e})
		goOn(55 * time.Second) // so the list is asked for in the middle of the send
		defer w.start(w.store, func(context.Context) ([]Entry, error) { return *now.Load(), nil }, func(r *runner) { r.every = 10 * time.Second })()
		goOn(59*time.Minute + 6*time.Second)
		now.Store(new([]Entry))
		goOn(3 * time.Hour)
		w.wants("hourly", at("01:00:00"))
	})
}

// TestShortOutageIsToldOnce: schedulers that start again after a short time tell once of what was
// missed meanwhile.
func TestShortOutageIsToldOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		e := w.entry("often", Every(5*time.Minute))
		stop := w.start(w.store, list(e))
		goOn(6 * time.Minute)
		stop()
		goOn(21 * time.Minute) // 10, 15, 20 and 25
		for range 5 {
			defer w.start(w.store, list(e))()
			goOn(5 * time.Second)
		}
		if lines := w.log.Lines("missed="); len(lines) != 1 || !strings.Contains(lines[0], "missed=4 ") {
			t.Errorf("logged %q, want one line with 4", lines)
		}
	})
}

// TestClocksApart: clocks are a minute apart, and each instant is sent once, by the first of them.
func TestClocksApart(t *testing.T) {
	inWorld(t, func(w *world) {
		e := w.entry("hourly", Every(time.Hour))
		goOn(5 * time.Minute) // or midnight is due to the last clock alone
		for _, ahead := range []time.Duration{-30 * time.Second, 0, 30 * time.Second} {
			defer w.start(w.store, list(e), func(r *runner) { r.ahead = ahead })()
		}
		goOn(3 * time.Hour)
		w.wants("hourly", at("01:00:00"), at("02:00:00"), at("03:00:00"))
		if d := w.queue.sent[2].at.Sub(w.queue.sent[2].due); d != -30*time.Second {
			t.Errorf("sent %v after its time, want 30s before it", d)
		}
	})
}

// TestWrongClock: a process whose clock is two days ahead tells the store of an entry, and ends.
// The entry is sent by the others all the same, and they mark it as seen by their clocks.
func TestWrongClock(t *testing.T) {
	inWorld(t, func(w *world) {
		e := w.entry("hourly", Every(time.Hour))
		stop := w.start(w.store, list(e), func(r *runner) { r.ahead = 48 * time.Hour })
		goOn(5 * time.Minute)
		stop()
		defer w.start(w.store, list(e))()
		goOn(2 * time.Hour)
		w.wants("hourly", at("01:00:00"), at("02:00:00"))
		all, err := controlstore.AllSchedules(w.Context(), w.store)
		if err != nil || len(all) != 1 || all[0].Seen.After(time.Now()) {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestFromDueToSent: three schedulers share 200 entries that are due at one time, with a store and
// a queue that take 20 ms for a call. The 99th of a hundred is sent within 1.5 s.
func TestFromDueToSent(t *testing.T) {
	inWorld(t, func(w *world) {
		var es []Entry
		for i := range 200 {
			e := w.entry(fmt.Sprint("e", i), w.cron("*/10 * * * *", "UTC"))
			e.To = faultySender{w.queue, faulty.Slow(20 * time.Millisecond)}
			es = append(es, e)
		}
		w.store.Befalls(faulty.Slow(20 * time.Millisecond))
		for range 3 {
			defer w.start(w.store, list(es...))()
		}
		goOn(31 * time.Minute)
		var took []time.Duration
		for _, s := range w.queue.sent {
			took = append(took, s.at.Sub(s.due))
		}
		slices.Sort(took)
		if n := len(took); n != 3*len(es) {
			t.Fatalf("%d were sent, want %d", n, 3*len(es))
		}
		p99 := took[len(took)*99/100]
		t.Logf("half within %v, 99 of 100 within %v, all within %v", took[len(took)/2], p99, took[len(took)-1])
		if p99 > 1500*time.Millisecond {
			t.Errorf("99 of 100 within %v, want 1.5s", p99)
		}
	})
}

// own is a schedule of a user's making.
type own struct{ next func(time.Time) time.Time }

func (o own) Next(t time.Time) time.Time { return o.next(t) }
func (own) String() string               { return "own" }

// TestOwnSchedule: one that panics, or stands still, or ends, holds up nobody.
func TestOwnSchedule(t *testing.T) {
	inWorld(t, func(w *world) {
		es := list(
			w.entry("panics", own{func(time.Time) time.Time { panic("next") }}),
			w.entry("stands", own{func(t time.Time) time.Time { return t }}),
			w.entry("ends", own{func(t time.Time) time.Time {
				if end := time.Date(2000, 1, 1, 1, 0, 0, 5, time.UTC); t.Before(end) {
					return end
				}
				return time.Time{}
			}}),
			w.entry("fine", Every(time.Hour)),
		)
		defer w.start(w.store, es)()
		goOn(2*time.Hour + time.Minute)
		w.wants("panics")
		w.wants("stands")
		w.wants("ends", at("01:00:00"))
		w.wants("fine", at("01:00:00"), at("02:00:00"))
		if n := w.log.Count("level=WARN", "cannot be sent"); n < 20 {
			t.Errorf("%d lines told of the failures", n)
		}
	})
}

// TestBadEntries: a refusal names the field and its limit, before anything is sent.
func TestBadEntries(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		for want, change := range map[string]func(*Entry){
			"Name is empty":                        func(e *Entry) { e.Name = "" },
			"Name has 256 bytes, the limit is 255": func(e *Entry) { e.Name = strings.Repeat("n", 256) },
			"Name holds a control character":       func(e *Entry) { e.Name = "a\nb" },
			"is not valid UTF-8":                   func(e *Entry) { e.Name = "\xff" },
			"Schedule is nil":                      func(e *Entry) { e.Schedule = nil },
			"Schedule: every 1ms is not a whole number of seconds, 1s at least; is its unit missing?": func(e *Entry) { e.Schedule = Every(time.Millisecond) },
			"Schedule.String has 513 bytes, the limit is 512":                                         func(e *Entry) { e.Schedule = long{} },
			"To is nil":      func(e *Entry) { e.To = (*outbox)(nil) },
			"Message is nil": func(e *Entry) { e.Message = nil },
			"CatchUp: 5ns is below 1s; is its unit missing?":    func(e *Entry) { e.CatchUp = 5 },
			"CatchUp: -1h0m0s is below 1s":                      func(e *Entry) { e.CatchUp = -time.Hour },
			"CatchUp is 745h0m0s, the limit is Retention, 744h": func(e *Entry) { e.CatchUp = 745 * time.Hour },
			"CatchUp is 2h0m0s, the limit is Retention, 1h":     func(e *Entry) { e.CatchUp, e.Retention = 2*time.Hour, time.Hour },
			"Retention is -1h0m0s, want 0 or more":              func(e *Entry) { e.Retention = -time.Hour },
			"Retention: 5ns is below 1ms":                       func(e *Entry) { e.Retention = 5 },
			"Scope has 256 bytes, the limit is 255":             func(e *Entry) { e.Scope = strings.Repeat("s", 256) },
		} {
			e := w.entry("hourly", Every(time.Hour))
			change(&e)
			if err := e.Validate(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Validate: %v, want %q", err, want)
			}
			if err := Run(ctx, w.store, list(w.entry("fine", Every(time.Second)), e), nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Run: %v, want %q", err, want)
			}
		}
		twice := list(w.entry("a", Every(time.Hour)), w.entry("a", Every(time.Minute)))
		if err := Run(ctx, w.store, twice, nil); err == nil || !strings.Contains(err.Error(), `"a": Name stands twice`) {
			t.Error(err)
		}
		many := list(make([]Entry, MaxEntries+1)...)
		if err := Run(ctx, w.store, many, nil); err == nil || !strings.Contains(err.Error(), "the limit is 20000") {
			t.Error(err)
		}
		if Run(ctx, nil, many, nil) == nil || Run(ctx, w.store, nil, nil) == nil {
			t.Error("a store or a list that is nil was taken")
		}
		if len(w.queue.sent) > 0 {
			t.Errorf("%d messages were sent", len(w.queue.sent))
		}
	})
}

type long struct{}

func (long) Next(t time.Time) time.Time { return t.Add(time.Hour) }
func (long) String() string             { return strings.Repeat("x", 513) }

// TestTheList: what operators read is written once per change, and marked as seen each hour.
func TestTheList(t *testing.T) {
	inWorld(t, func(w *world) {
		e := w.entry("hourly", Every(time.Hour))
		e.Scope = "jobs"
		for range 5 {
			defer w.start(w.store, list(e))()
		}
		goOn(30 * time.Minute)
		read := func() controlstore.Scheduled {
			t.Helper()
			all, err := controlstore.ReadSchedules(w.Context(), w.store, []int{controlstore.SchedulePart("hourly")})
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v, %v", all, err)
			}
			return all[0]
		}
		first := read()
		if first.Spec != "every 1h0m0s" || first.Own || first.Scope != "jobs" || !first.Born.Equal(first.Seen) || first.Born.Format(time.DateTime) != at("00:00:00") {
			t.Errorf("%+v", first)
		}
		renews := w.store.Renews.Load()
		if renews != 1 {
			t.Errorf("five schedulers wrote the list %d times, want once", renews)
		}
		goOn(24 * time.Hour)
		if d := time.Since(read().Seen); d > 2*time.Hour || !read().Born.Equal(first.Born) {
			t.Errorf("seen %v ago; %+v", d, read())
		}
		if claims := w.store.Claims.Load(); claims > 24*5+90 || w.log.Count("missed=") > 0 {
			t.Errorf("five schedulers claimed 24 instants %d times, and logged %q", claims, w.log.Lines("missed="))
		}
		if n := w.store.Renews.Load() - renews; n < 12 || n > 30 {
			t.Errorf("five schedulers marked the entry %d times in a day", n)
		}
	})
}

// TestTenThousandEntries: 10,000 entries that are due once an hour each take at most a hundredth of
// a core, with the work of the store and the queue, both in memory.
func TestTenThousandEntries(t *testing.T) {
	proof.Only(t, "schedule: the processor time of 10,000 entries")
	inWorld(t, func(w *world) {
		var es []Entry
		for i := range 10_000 {
			e := w.entry(fmt.Sprintf("tenant-%d/report", i), w.cron(fmt.Sprintf("%d * * * *", i%60), "Europe/Berlin"))
			e.To = w.queue.Sender
			es = append(es, e)
		}
		defer w.start(w.store.Store, list(es...))()
		goOn(time.Hour) // the first hour tells the store of them
		before := cputime.Used()
		goOn(3 * time.Hour)
		share := float64(cputime.Used()-before) / float64(3*time.Hour)
		t.Logf("%.2f %% of a core", 100*share)
		if share > 0.01 && !raceDetector() {
			t.Errorf("%.2f %% of a core, want at most 1 %%", 100*share)
		}
	})
}

// raceDetector reports whether it watches, which takes ten times as long.
func raceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}
