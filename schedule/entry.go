package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the entry: its defaults, what is refused in it, and what it is known by. Nothing
// is locked: an Entry is a value, and an entry is the loop's.

// DefaultCatchUp is Entry.CatchUp where nothing else is said.
const DefaultCatchUp = time.Minute

// Bounds of entries.
const (
	// MaxEntries bounds how many entries one list has.
	MaxEntries = 20_000
	// MaxName bounds Entry.Name, in bytes.
	MaxName = 255
	maxSpec = 512 // bytes of a schedule's text
)

// An Entry is a job that is sent again and again. Name, Schedule, To and Message are required.
type Entry struct {
	// Name is what the entry is known by, in all processes and for as long as it exists: UTF-8
	// without control characters, at most [MaxName] bytes. It is a part of each job's key.
	Name string
	// Schedule says when. One of your own making has a String method that says all that it depends
	// on: where the text has changed, it is another schedule. See [Run] for what follows.
	Schedule Schedule
	// To is the queue.
	To broker.Sender
	// Message makes the job of an instant. [Run] sets its Meta.Key to Key(Name, at) and its
	// Meta.Created to at, and Meta.ID to the key where it is empty. It may be called several times
	// for one instant, in several processes, and must make the same message each time. An error, or
	// a panic, is logged, and it is called again until CatchUp is over.
	Message func(at time.Time) (broker.Outgoing, error)
	// CatchUp is for how long after its time an instant is still sent, where nobody could send it
	// before: no process was up, the store or the queue was away. Default [DefaultCatchUp]; 1 s at
	// least, Retention at most, because a job whose key the workers have forgotten would run again.
	CatchUp time.Duration
	// Latest sends only the last one, where several instants were missed.
	Latest bool
	// Retention is for how long the queue's workers keep the key of a job that is done: their
	// ProcessorConfig.Retention. Default [dedupe.DefaultRetention], which is theirs.
	Retention time.Duration
	// Scope is that of the jobs' records: ProcessorConfig.Scope, under a Mux with ':' and the type.
	// It is for operators alone, who see the state of the last job by it. Default: they look in the
	// scopes of their queues.
	Scope string
}

// entry is an entry as the loop has it.
type entry struct {
	Entry
	spec  string
	own   bool
	known bool      // the store has it: done is set
	done  time.Time // no instant up to here is open, but for left
	left  []time.Time
	wake  time.Time // when to look again
	tries int
	gone  bool
	at    int // in the queue; -1 = not there
}

// Key is the idempotency key of an entry's instant: the name, '@' and the instant in UTC, such as
// "invoices@2026-11-26T02:30:00Z". A scheduler that is not [Run], such as EventBridge or Cloud
// Scheduler, delivers at least once; the key of its schedule's name and of the scheduled time makes
// that one job.
func Key(name string, at time.Time) string { return name + "@" + at.UTC().Format(time.RFC3339Nano) }

// Validate reports what [Run] would refuse in the entry, with the field and its limit. Who reads
// entries from a table leaves out by it what somebody has written wrongly: Run takes a list as a
// whole, or not at all.
func (e *Entry) Validate() error {
	_, err := e.complete()
	return err
}

// complete is the entry with its defaults.
func (e *Entry) complete() (c *entry, err error) {
	c = &entry{Entry: *e, at: -1}
	bad := func(format string, args ...any) (*entry, error) {
		return nil, fmt.Errorf("schedule: the entry %q: %s", clip(c.Name), fmt.Sprintf(format, args...))
	}
	if c.CatchUp == 0 {
		c.CatchUp = DefaultCatchUp
	}
	if c.Retention == 0 {
		c.Retention = dedupe.DefaultRetention
	}
	if c.Name == "" {
		return bad("Name is empty")
	}
	if err := (dedupe.Key{Scope: "s", Key: c.Name}).Validate(); err != nil {
		return bad("Name: %v", err)
	}
	interval, isEvery := c.Schedule.(every)
	switch {
	case len(c.Name) > MaxName:
		return bad("Name has %d bytes, the limit is %d", len(c.Name), MaxName)
	case strings.ContainsFunc(c.Name, unicode.IsControl):
		return bad("Name holds a control character")
	case values.IsNil(c.Schedule):
		return bad("Schedule is nil")
	case isEvery && interval.check() != nil:
		return bad("Schedule: %v", interval.check())
	case values.IsNil(c.To):
		return bad("To is nil")
	case c.Message == nil:
		return bad("Message is nil")
	case durations.IsBare(c.Retention):
		return bad("Retention: %s", durations.AskUnit(c.Retention))
	case c.Retention < 0:
		return bad("Retention is %v, want 0 or more", c.Retention)
	case c.CatchUp < time.Second:
		return bad("CatchUp: %s", durations.Below(c.CatchUp, time.Second))
	case c.CatchUp > c.Retention:
		return bad("CatchUp is %v, the limit is Retention, %v: a later message would find no key, and run again", c.CatchUp, c.Retention)
	case len(c.Scope) > dedupe.MaxScope:
		return bad("Scope has %d bytes, the limit is %d", len(c.Scope), dedupe.MaxScope)
	}
	if c.spec, c.own, err = specOf(c.Schedule); err != nil {
		return bad("Schedule.String: %v", err)
	}
	if len(c.spec) > maxSpec {
		return bad("Schedule.String has %d bytes, the limit is %d", len(c.spec), maxSpec)
	}
	return c, nil
}

// specOf is the text that a schedule is known by; own says that it is of the user's making.
func specOf(s Schedule) (text string, own bool, err error) {
	switch s := s.(type) {
	case *cron:
		return s.text, false, nil
	case every:
		return s.String(), false, nil
	case fmt.Stringer:
		text, err = engine.Guard(func() (string, error) { return s.String(), nil })
		return strings.ToValidUTF8(text, "?"), true, err
	}
	return fmt.Sprintf("%T", s), true, nil
}

// Parse is the schedule whose text it is, as the String method of those of [Cron] and [Every]
// writes it: "30 3 * * * Europe/Berlin", "every 1h0m0s". A program that keeps its entries in a
// table may keep this text.
func Parse(text string) (Schedule, error) {
	if interval, ok := strings.CutPrefix(text, "every "); ok {
		d, err := time.ParseDuration(interval)
		if err == nil {
			err = every(d).check()
		}
		if err != nil {
			return nil, fmt.Errorf("schedule: Parse: %w", err)
		}
		return every(d), nil
	}
	i := strings.LastIndexByte(text, ' ')
	if i < 0 {
		return nil, fmt.Errorf(`schedule: Parse: %q is neither five fields and a zone, nor "every" and a time`, clip(text))
	}
	return Cron(text[:i], text[i+1:])
}

// after is the schedule's next instant. One of the user's own making may panic, or stand still.
func (e *Entry) after(t time.Time) (next time.Time, err error) {
	next, err = engine.Guard(func() (time.Time, error) { return e.Schedule.Next(t), nil })
	if err == nil && !next.IsZero() && !next.After(t) {
		err = errors.New("schedule: Schedule.Next answers an instant that is not after the one that it is asked for")
	}
	return next, err
}

// message makes the job of an instant.
func (e *Entry) message(at time.Time) (m broker.Outgoing, err error) {
	m, err = engine.Guard(func() (broker.Outgoing, error) { return e.Message(at) })
	if err != nil {
		return m, fmt.Errorf("schedule: Entry.Message: %w", err)
	}
	if m.Meta = m.Meta.Clone(); m.Meta == nil {
		m.Meta = new(broker.Meta)
	}
	m.Meta.Key, m.Meta.Created = Key(e.Name, at), at
	if m.Meta.ID == "" {
		m.Meta.ID = m.Meta.Key // so that two messages of one instant are alike
	}
	return m, nil
}
