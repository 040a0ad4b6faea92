package worlds

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns a world's book: what happened to each key, and what the hosts logged, so that a
// seed that fails can be read. Everything that runs in the world writes to it, under its lock. A
// nil book notes nothing.

type book struct {
	mu    sync.Mutex
	of    map[string][]note // by key
	keys  map[broker.Receipt]string
	lines []line
}

type note struct {
	at   time.Time
	text string
}

// line is one of a log, which is written out only when somebody reads it.
type line struct {
	at    time.Time
	host  string
	level slog.Level
	text  string
	attrs []slog.Attr
}

func newBook() *book {
	return &book{of: make(map[string][]note), keys: make(map[broker.Receipt]string)}
}

func (b *book) note(key string, texts ...string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of[key] = append(b.of[key], note{time.Now(), strings.Join(texts, "")})
}

func (b *book) received(m *Machine, x *broker.Message) {
	if b == nil || x.Meta == nil {
		return
	}
	b.mu.Lock()
	b.keys[x.Receipt] = x.Meta.Key
	b.mu.Unlock()
	what := " receives it, "
	if x.Meta.Dead != nil {
		what = " receives its letter, "
	}
	b.note(x.Meta.Key, m.name, what, x.ID)
}

func (b *book) settled(m *Machine, r broker.Receipt, what string, err error) {
	if b == nil {
		return
	}
	b.mu.Lock()
	k := b.keys[r]
	b.mu.Unlock()
	b.note(k, m.name, " ", what, because(err))
}

func (b *book) sent(m *Machine, o *broker.Outgoing, to string, err error) {
	if b == nil || o.Meta == nil {
		return
	}
	b.note(o.Meta.Key, m.name, " sends it to ", to, because(err))
}

func (b *book) claimed(m *Machine, q *dedupe.ClaimRequest, c *dedupe.Claim) {
	b.note(q.Key.Key, m.name, " claims it: ", c.Outcome.String(), fence(c.Lease.Fence), because(c.Err))
}

func (b *book) renewed(m *Machine, n *dedupe.Renewal, err error) {
	if err != nil || n.Started || n.State != nil {
		b.note(n.Key.Key, m.name, " renews its claim", because(err))
	}
}

func (b *book) ended(m *Machine, s *dedupe.Settlement, a *dedupe.Settled) {
	b.note(s.Key.Key, m.name, " settles it as ", s.To.String(), " ", s.ErrClass, ", the store has ", a.Status.String(), because(a.Err))
}

func fence(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(", fence ", n)
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// logger is a host's.
func (b *book) logger(host string) *slog.Logger { return slog.New(&logs{b: b, host: host}) }

type logs struct {
	b     *book
	host  string
	attrs []slog.Attr
}

func (l *logs) Enabled(_ context.Context, at slog.Level) bool { return at >= slog.LevelInfo }
func (l *logs) WithGroup(string) slog.Handler                 { return l }

func (l *logs) WithAttrs(as []slog.Attr) slog.Handler {
	return &logs{l.b, l.host, append(slices.Clip(l.attrs), as...)}
}

func (l *logs) Handle(_ context.Context, r slog.Record) error {
	n := line{at: r.Time, host: l.host, level: r.Level, text: r.Message, attrs: slices.Clip(l.attrs)}
	r.Attrs(func(a slog.Attr) bool { n.attrs = append(n.attrs, a); return true })
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.b.lines = append(l.b.lines, n)
	return nil
}

// timeLine tells what became of a key, for the one that reads a seed that failed: the notes, the
// lines of the logs that name it, and what its record says.
func (b *book) timeLine(k dedupe.Key, r *dedupe.Record) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Clone(b.of[k.Key])
	for _, n := range b.lines {
		var text strings.Builder
		fmt.Fprintf(&text, "%s logs %v %s", n.host, n.level, n.text)
		ours := false
		for _, a := range n.attrs {
			v := a.Value.String()
			ours = ours || v == k.Key || v == k.String()
			fmt.Fprintf(&text, " %s=%s", a.Key, v)
		}
		if ours {
			all = append(all, note{n.at, text.String()})
		}
	}
	slices.SortStableFunc(all, func(a, b note) int { return a.at.Compare(b.at) })
	var text strings.Builder
	for _, n := range all {
		fmt.Fprintf(&text, "\n\t%s %s", clock(n.at), n.text)
	}
	if r == nil {
		return text.String() + "\n\tno record"
	}
	for _, a := range r.Past {
		fmt.Fprintf(&text, "\n\trecord: attempt %d, fence %d, by %s, %s to %s: %v %s %s", a.Number, a.Fence, a.Owner, clock(a.Claimed), clock(a.Ended), a.End, a.Class, a.Err)
		if a.Reopened {
			text.WriteString(", then replayed")
		}
	}
	fmt.Fprintf(&text, "\n\trecord: attempt %d, fence %d, by %s, %s to %s: %v %s %s", r.Attempt, r.Fence, r.Owner, clock(r.ClaimedAt), clock(r.Updated), r.Status, r.ErrClass, r.LastErr)
	return text.String()
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
