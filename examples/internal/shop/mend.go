package shop

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

// This file owns what is done about dead letters: the corrections, the replay's options, and the
// lists of what is there. The demo's process calls it, and so does the process of a replay, each
// from one goroutine. So nothing is locked.

//go:embed corrections.csv
var correctionsCSV []byte

var correctionColumns = []string{"id", "cents", "currency"}

// Correction is what the shop's people have found out about an order that was mistyped.
type Correction struct{ Cents, Currency string }

// Corrections are those that are known, by order.
type Corrections map[string]Correction

// LoadCorrections reads the file at path. With an empty path it reads the one that belongs to the
// built-in orders, or none if the orders are others.
func LoadCorrections(path string, builtin bool) (Corrections, error) {
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

func readCorrections(r io.Reader) (Corrections, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = len(correctionColumns)
	lines, err := c.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 || !slices.Equal(lines[0], correctionColumns) {
		return nil, fmt.Errorf("line 1: want %v", correctionColumns)
	}
	cs := make(Corrections)
	for _, l := range lines[1:] {
		cs[l[0]] = Correction{l[1], l[2]}
	}
	return cs, nil
}

var errNoCorrection = errors.New("nobody knows what the customer has ordered")

// Correct is the Edit of the replay. What killed an order with a panic was the handler, which has
// been mended meanwhile: such a letter goes back as it is. The others were mistyped.
func (cs Corrections) Correct(o *broker.Outgoing) error {
	if o.Meta.Dead.Class == "panic" {
		return nil
	}
	c, ok := cs[o.Meta.Key]
	if !ok {
		return errNoCorrection
	}
	fields := make(map[string]json.RawMessage)
	if err := json.Unmarshal(o.Body, &fields); err != nil {
		return err
	}
	for name, value := range map[string]any{"cents": number(c.Cents), "currency": c.Currency} {
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

// LetterVisibility is how long letters stay hidden when their reader dies: a demo has no time.
func LetterVisibility(b broker.Receiver) time.Duration { return max(2*time.Second, b.Limits().MinHold) }

// OpenLetters reads the dead-letter queue b.
func OpenLetters(b broker.Receiver) (*dlq.Queue, error) {
	return dlq.New(b, &dlq.Options{Visibility: LetterVisibility(b), Wait: letterWait(b)})
}

// letterWait is how long a receive of letters waits. On SQS a shorter wait than a second is a short
// poll, which may bring nothing though letters are there.
func letterWait(b broker.Receiver) time.Duration {
	if b.Limits().PerRequestCost {
		return time.Second
	}
	return 100 * time.Millisecond
}

// ReplayOptions are those of a slow replay, so that it can be killed in its middle.
func ReplayOptions(to broker.Sender, edit func(*broker.Outgoing) error) dlq.ReplayOptions {
	return dlq.ReplayOptions{To: to, PerSecond: 20, Edit: edit}
}

// Mending is what was done about the dead letters.
type Mending struct {
	Groups       Groups
	Killed       bool
	First, Again int    // how many letters the replay that was killed has sent, and the one after it
	InDoubt      int    // of those of the first one, how many it did not know of
	Sent         int    // how many letters were sent, each counted once
	Copies       int    // further letters of a failure that was sent
	Why          string // those that are left are
}

// ListLetters is what is in the dead-letter queue: the class by which each order died, and how many
// letters there are. An order that was sent twice may have two letters, of one failure. Letters
// that others hold, or that came in an answer that was lost, are hidden for a while. ListLetters
// looks again until they are back, for five times that while at most.
func ListLetters(ctx context.Context, dead broker.Broker, most int) (classes map[string]string, n int, err error) {
	letters, err := OpenLetters(dead)
	if err != nil {
		return nil, 0, err
	}
	for end := time.Now().Add(5 * LetterVisibility(dead)); ; {
		classes, n = make(map[string]string), 0
		for e, err := range letters.List(ctx, dlq.Filter{Max: most}) {
			if err != nil {
				return nil, 0, err
			}
			classes[e.Ref().Key] = e.Class()
			n += 1 + e.Copies
		}
		d, ok := broker.As[broker.Depther](dead)
		if !ok {
			return classes, n, nil
		}
		depth, err := d.Depth(ctx)
		if err != nil || int64(n) >= depth.Visible+depth.InFlight+depth.Delayed || time.Now().After(end) {
			return classes, n, err
		}
		if err := Rest(ctx, LetterVisibility(dead)/4); err != nil {
			return nil, 0, err
		}
	}
}

// EmptyLetters empties the dead-letter queue of a run without the library, where no letter says why
// it is one.
func EmptyLetters(ctx context.Context, dead broker.Broker) (classes map[string]string, n int, err error) {
	classes = make(map[string]string)
	for {
		ms, err := dead.Receive(ctx, broker.ReceiveOptions{Max: dead.Limits().ReceiveBatch, Wait: letterWait(dead)})
		if err != nil || len(ms) == 0 {
			return classes, n, err
		}
		n += len(ms)
		for _, m := range ms {
			class := "unknown"
			if m.Meta.Dead != nil {
				class = m.Meta.Dead.Class
			}
			classes[m.Meta.Key] = class
		}
	}
}

// Groups are the classes of dead letters.
type Groups dlq.Groups

// Letters counts them.
func (gs Groups) Letters() (n int) {
	for _, g := range gs {
		n += g.Count
	}
	return n
}

// Expected is what must be charged in the end: the rows, and of those that were poison the ones
// that can be mended.
func Expected(rows []Row, corrections Corrections) []Row {
	all := slices.Clone(rows)
	for i := range all {
		r := &all[i]
		if r.Kind != Poison {
			continue
		}
		if c, ok := corrections[r.ID]; ok {
			r.Cents, r.Currency = c.Cents, c.Currency
		}
		var o Order
		if body, err := r.Body(); err == nil && json.Unmarshal(body, &o) == nil && o.Check() == nil {
			r.Kind = Mended
		}
	}
	return all
}
