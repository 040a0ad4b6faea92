package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/ops"
)

// This file owns what a frame of top shows: lines for a terminal of a given size. It does no I/O.
// top.go calls it from one goroutine.

// frame is what there is to show.
type frame struct {
	place    string // the profile
	at       time.Time
	every    time.Duration
	states   []ops.QueueState
	took     time.Duration // by the last look
	history  map[string]*history
	filter   string
	selected int
	message  string   // the last line
	pane     []string // over everything else, when it is not nil
}

// A line and what it is, for its colour.
type line struct {
	text string
	kind kind
}

type kind uint8

const (
	plain kind = iota
	heading
	chosen
	bad
	held
	faint
)

// colours are SGR parameters by kind.
var colours = map[kind]string{heading: "1", chosen: "7", bad: "31", held: "33", faint: "2"}

// history is what a queue was like at the last looks.
type history struct {
	rates   []float64
	letters []int64
	runs    [2]uint64 // runs and errors, at the last look
	failed  *float64  // of the runs between the last two looks that had some
}

// looks is how many rates the sparkline has.
const looks = 8

func (h *history) add(q *ops.QueueState) {
	w := q.Totals()
	rate := 0.0
	if w.PerMinute != nil {
		rate = *w.PerMinute
	}
	h.rates = append(h.rates, rate)
	h.rates = h.rates[max(0, len(h.rates)-looks):]
	if q.Letters != nil {
		h.letters = append(h.letters, *q.Letters)
		h.letters = h.letters[max(0, len(h.letters)-looks):]
	}
	if runs, errs := w.Runs-h.runs[0], w.Errors-h.runs[1]; h.runs[0] > 0 && w.Runs > h.runs[0] && errs <= runs {
		h.failed = new(float64(errs) / float64(runs))
	}
	h.runs = [2]uint64{w.Runs, w.Errors}
}

var bars = []rune("▁▂▃▄▅▆▇█")

func (h *history) spark() string {
	most := 0.0
	for _, r := range h.rates {
		most = max(most, r)
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", looks-len(h.rates)))
	for _, r := range h.rates {
		if most == 0 {
			b.WriteRune('─')
			continue
		}
		b.WriteRune(bars[max(0, min(len(bars)-1, int(r/most*float64(len(bars)-1)+0.5)))])
	}
	return b.String()
}

// trend is where the letters go.
func (h *history) trend() string {
	n := len(h.letters)
	switch {
	case n < 2 || h.letters[0] == h.letters[n-1]:
		return ""
	case h.letters[0] < h.letters[n-1]:
		return " ↑"
	}
	return " ↓"
}

// lines are the frame's, at most rows of them, each at most cols wide.
func (f *frame) lines(a *app, cols, rows int) []line {
	var ls []line
	add := func(k kind, format string, args ...any) {
		ls = append(ls, line{out.Cut(fmt.Sprintf(format, args...), cols), k})
	}
	add(heading, "onceq top · %s · %s · every %s · q quit, p pause, r resume, / filter, enter details, d letters, k key", out.Text(f.place), a.until(f.at), out.Span(f.every))
	if f.pane != nil {
		for _, text := range f.pane {
			add(plain, "%s", text)
		}
		return f.fit(ls, cols, rows)
	}
	shown := f.shown()
	for i, q := range shown {
		text, k := f.queueLine(a, q)
		if i == f.selected {
			k = chosen
		}
		add(k, "%s", text)
	}
	if len(shown) == 0 {
		add(faint, "no queue fits %q", f.filter)
	}
	var table [][]string
	var kinds []kind
	for _, q := range shown {
		for i := range q.Workers {
			s := &q.Workers[i]
			if s.State == ops.StateLeft {
				continue
			}
			row := a.workerRow(s)
			table = append(table, append([]string{row[0], out.Text(q.Queue)}, row[2:]...))
			kinds = append(kinds, workerKind(s))
		}
	}
	if len(table) > 0 {
		order := make([]int, len(table))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(weight(kinds[y]), weight(kinds[x])) })
		room := max(0, rows-len(ls)-3)
		order = halfDead(order, kinds, room)
		some := make([][]string, 0, min(room, len(table)))
		for _, i := range order[:min(room, len(order))] {
			some = append(some, table[i])
		}
		grid := strings.Split(strings.TrimSuffix(out.Grid(out.Columns("WORKER", "QUEUE", "BUSY>", "DONE/MIN>", "FAIL%>", "P95>", "STATE", "SKEW>", "SEEN>", "RULES>", "OLDEST JOB"), some), "\n"), "\n")
		add(plain, "")
		add(heading, "%s", grid[0])
		for i, text := range grid[1:] {
			add(kinds[order[i]], "%s", text)
		}
		if more := len(table) - len(some); more > 0 && room > 0 {
			ls[len(ls)-1] = line{out.Cut(fmt.Sprintf("… and %s", out.Plural(more+1, "more worker", "more workers")), cols), faint}
		}
	}
	return f.fit(ls, cols, rows)
}

// halfDead puts the dead behind the others beyond half of the room, where not all find room: who
// lives is worth a line, too.
func halfDead(order []int, kinds []kind, room int) []int {
	if len(order) <= room {
		return order
	}
	var first, later []int
	for n, i := range order {
		if kinds[i] == bad && n >= (room+1)/2 {
			later = append(later, i)
		} else {
			first = append(first, i)
		}
	}
	return append(first, later...)
}

func weight(k kind) int {
	switch k {
	case bad:
		return 2
	case held:
		return 1
	}
	return 0
}

func workerKind(s *ops.WorkerState) kind {
	switch {
	case s.State == ops.StateDead, s.Status != nil && s.Status.Outage != "":
		return bad
	case s.State == "paused" || s.State == "draining":
		return held
	}
	return plain
}

// fit cuts the lines to the screen, and puts the message at its foot.
func (f *frame) fit(ls []line, cols, rows int) []line {
	if f.message == "" {
		return ls[:min(len(ls), max(rows, 1))]
	}
	ls = ls[:min(len(ls), max(0, rows-1))]
	for len(ls) < rows-1 {
		ls = append(ls, line{})
	}
	return append(ls, line{out.Cut(f.message, cols), heading})
}

// shown are the queues that fit the filter.
func (f *frame) shown() (qs []*ops.QueueState) {
	for i := range f.states {
		if f.filter == "" || strings.Contains(f.states[i].Queue, f.filter) {
			qs = append(qs, &f.states[i])
		}
	}
	return qs
}

// current is the selected queue.
func (f *frame) current() *ops.QueueState {
	qs := f.shown()
	if len(qs) == 0 {
		return nil
	}
	f.selected = min(max(0, f.selected), len(qs)-1)
	return qs[f.selected]
}

// nameWidth is how much room the queue's name has.
const nameWidth = 14

func (f *frame) queueLine(a *app, q *ops.QueueState) (string, kind) {
	h := f.history[q.Queue]
	if h == nil {
		h = &history{}
	}
	w := q.Totals()
	name := out.Cut(out.Text(q.Queue), nameWidth)
	name += strings.Repeat(" ", nameWidth-out.Width(name))
	rate := out.None
	if w.PerMinute != nil {
		rate = out.Int(int64(*w.PerMinute + 0.5))
	}
	head := fmt.Sprintf("%s %s %7s/min", name, h.spark(), rate)
	letters := fmt.Sprintf("letters %s%s", out.IntOr(q.Letters), h.trend())
	switch {
	case q.Err() != nil:
		return fmt.Sprintf("%s   NOT REACHED: %s", head, strings.Join(partNames(q), ", ")), bad
	case q.Paused != nil:
		v := q.Paused
		return fmt.Sprintf("%s   PAUSED until %s by %s: %q   %s", head, a.until(v.Until), out.Text(v.By), v.Reason, letters), held
	case len(w.Outages) > 0:
		return fmt.Sprintf("%s   %s   %s", head, a.stateOf(q), letters), bad
	}
	parts := []string{head}
	if w.HeadWait != nil {
		parts = append(parts, "wait "+headWait(&w))
	}
	if w.Slots > 0 {
		parts = append(parts, fmt.Sprintf("busy %d/%d %s", w.Busy, w.Slots, bar(w.Busy, w.Slots)))
	}
	switch {
	case w.Minute != nil && w.Minute.Runs > 0:
		parts = append(parts, "fail "+percent(*w.Minute))
	case w.Minute == nil && h.failed != nil:
		parts = append(parts, fmt.Sprintf("fail %.1f%%", 100**h.failed))
	}
	if q.Depth != nil {
		parts = append(parts, fmt.Sprintf("waiting %s", out.Int(q.Depth.Visible)))
	}
	parts = append(parts, letters)
	if w.Oldest != nil {
		parts = append(parts, oldest(w.Oldest, w.On))
	}
	state, k := a.stateOf(q), plain
	if state != "ok" {
		parts = append(parts, state)
	}
	switch {
	case standing(&w) != "" || len(differences(&w)) > 0 || w.Dead > 0:
		k = bad
	case q.Limited != nil || q.PausedPart() != nil || len(w.Paused) > 0:
		k = held
	case w.Live == 0:
		k = faint
	}
	return strings.Join(parts, "   "), k
}

func oldest(j *control.RunningJob, on *ops.WorkerState) string {
	s := fmt.Sprintf("oldest %s %s (%s", out.Span(on.Running(j)), out.Text(jobName(j)), out.Text(on.Owner))
	if j.Attempt > 1 {
		s += fmt.Sprintf(", attempt %d", j.Attempt)
	}
	return s + ")"
}

// bar is a share in ten blocks. A card may say anything.
func bar(n, of int) string {
	full := max(0, min(10, int(10*float64(n)/float64(of)+0.5)))
	return strings.Repeat("█", full) + strings.Repeat("░", 10-full)
}
