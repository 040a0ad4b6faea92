package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

//go:embed corrections.csv
var correctionsCSV []byte

var correctionColumns = []string{"id", "cents", "currency"}

// correction is what the shop's people have found out about an order that was mistyped.
type correction struct{ cents, currency string }

// loadCorrections reads the file at path; with an empty path, the one that belongs to the built-in orders, or none.
func loadCorrections(path string, builtin bool) (map[string]correction, error) {
	b := correctionsCSV
	switch {
	case path != "":
		var err error
		if b, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	case !builtin:
		return nil, nil
	}
	cs, err := readCorrections(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("reading the corrections: %w", err)
	}
	return cs, nil
}

func readCorrections(r io.Reader) (map[string]correction, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = len(correctionColumns)
	lines, err := c.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 || !slices.Equal(lines[0], correctionColumns) {
		return nil, fmt.Errorf("line 1: want %v", correctionColumns)
	}
	cs := make(map[string]correction)
	for _, l := range lines[1:] {
		cs[l[0]] = correction{l[1], l[2]}
	}
	return cs, nil
}

var errNoCorrection = errors.New("nobody knows what the customer has ordered")

// correct is the Edit of the replay. What killed an order with a panic was the handler, which has been mended meanwhile: such
// a letter goes back as it is. The others were mistyped.
func (d *demo) correct(o *broker.Outgoing) error {
	if o.Meta.Dead.Class == "panic" {
		return nil
	}
	c, ok := d.corrections[o.Meta.Key]
	if !ok {
		return errNoCorrection
	}
	fields := make(map[string]json.RawMessage)
	if err := json.Unmarshal(o.Body, &fields); err != nil {
		return err
	}
	for name, value := range map[string]any{"cents": number(c.cents), "currency": c.currency} {
		b, err := json.Marshal(value)
		if err != nil {
			return err
		}
		fields[name] = b
	}
	var err error
	o.Body, err = json.Marshal(fields)
	return err
}

// mending is what was done about the dead letters.
type mending struct {
	groups       groups
	first, again dlq.Report // of the replay that was killed, and of the one after it
	killed       bool
	sent         int    // how many letters were sent, each counted once
	why          string // those that are left are
}

// mend looks at what has died, replays it with corrections to workers whose handler is mended, and kills that replay half-way:
// after a send, before it hears that the queue has taken it. The second one sends these letters once more.
func (d *demo) mend(ctx context.Context, s *screen) (*mending, error) {
	letters, err := d.open(d.dead)
	if err != nil {
		return nil, err
	}
	m := &mending{}
	found, err := letters.Group(ctx, dlq.Filter{})
	if m.groups = groups(found); err != nil || len(found) == 0 {
		return m, err
	}
	s.note("mending what is in the dead-letter queue")

	p := newProcess("replay", &plan{left: []crash{{afterLetter, m.groups.letters() / 3}}})
	living, cancel := p.alive(ctx)
	defer cancel()
	n := new(counts)
	mortal, err := d.open(mortalQueue{d.dead, p, n})
	if err != nil {
		return nil, err
	}
	m.first, err = mortal.Replay(living, d.replay(mortalQueue{d.queue, p, n}))
	if m.killed = p.isDead(); !m.killed && err != nil {
		return nil, err
	}
	if m.killed {
		// What the dead one held is hidden for a while.
		if err := rest(ctx, letterVisibility+letterVisibility/5); err != nil {
			return nil, err
		}
		if m.again, err = letters.Replay(ctx, d.replay(d.queue)); err != nil {
			return nil, err
		}
	}
	last := &m.first
	if m.killed {
		last = &m.again
	}
	m.sent = m.groups.letters() - len(last.Skipped)
	for _, l := range last.Skipped {
		m.why = l.Reason
	}
	d.mended.Store(true)
	return m, d.work(ctx, s)
}

// letterVisibility is how long letters stay hidden when their reader dies.
const letterVisibility = time.Second

func (d *demo) open(b broker.Receiver) (*dlq.Queue, error) {
	return dlq.New(b, &dlq.Options{Visibility: letterVisibility, Wait: 100 * time.Millisecond})
}

// replay is a slow one, so that it can be killed in its middle.
func (d *demo) replay(to broker.Sender) dlq.ReplayOptions {
	return dlq.ReplayOptions{To: to, PerSecond: 20, Edit: d.correct}
}

// groups are the classes of dead letters.
type groups dlq.Groups

func (gs groups) letters() (n int) {
	for _, g := range gs {
		n += g.Count
	}
	return n
}

// expected is what must be charged in the end: the rows, and of those that were poison the ones that can be mended.
func expected(rows []row, corrections map[string]correction) []row {
	all := slices.Clone(rows)
	for i := range all {
		r := &all[i]
		if r.kind != poison {
			continue
		}
		if c, ok := corrections[r.id]; ok {
			r.cents, r.currency = c.cents, c.currency
		}
		var o order
		if body, err := r.body(); err == nil && json.Unmarshal(body, &o) == nil && o.check() == nil {
			r.kind = mended
		}
	}
	return all
}

// list is what is in the dead-letter queue: the class by which each order died, and how many letters there are. An order
// that was sent twice may have two letters, of one failure.
func (d *demo) list(ctx context.Context) (classes map[string]string, n int, err error) {
	letters, err := d.open(d.dead)
	if err != nil {
		return nil, 0, err
	}
	classes = make(map[string]string)
	for e, err := range letters.List(ctx, dlq.Filter{Max: len(d.rows) + 1}) {
		if err != nil {
			return nil, 0, err
		}
		classes[e.Ref().Key] = e.Class()
		n += 1 + e.Copies
	}
	return classes, n, nil
}
