package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/ops"
)

// This file owns the screen of top: when it looks, what keys do, and how lines get to the terminal.
// One goroutine has the screen. Two others bring it keys and what was looked up, over channels; the
// one that reads keys ends with the process, because a read of a terminal cannot be cut off.

// minEvery is the least pause between two looks: each costs requests.
const minEvery = time.Second

func (a *app) topCommand() *cobra.Command {
	every := 2 * time.Second
	c := &cobra.Command{
		Use: "top [QUEUE…]", Short: "Queues and workers, as they change", ValidArgsFunction: a.completeQueues,
		Long: "Looks every 2 s: two requests to each queue and its dead-letter queue, and reads of the store.\n" +
			"Into a pipe, and on a terminal that can do nothing (TERM=dumb), it prints one frame.",
		RunE: a.unbounded(func(ctx context.Context, args []string) error {
			if every < minEvery {
				return exit(exitUsage, "--every: %v is below %v", every, minEvery)
			}
			w, err := a.open(ctx, needParts, args...)
			if err != nil {
				return err
			}
			defer w.close()
			t := &top{app: a, w: w, keys: make(chan key), looked: make(chan look, 1), doing: make(chan []string, 1)}
			t.frame = frame{place: w.label(), every: every, history: map[string]*history{}}
			if kind, _ := a.io.Env("TERM"); !a.io.Screen || !a.io.Terminal || kind == "dumb" {
				return t.once(ctx)
			}
			return t.live(ctx)
		}),
	}
	c.Flags().Var(span{&every}, "every", "how often to look; at least 1s")
	return c
}

type top struct {
	*app
	w *world
	frame

	keys    chan key
	looked  chan look
	doing   chan []string // what an act, or a look at letters or a key, came to
	looking bool
	busy    bool

	cols, rows int
	drawn      []line
	ask        *ask
}

// look is what one look at the queues came to.
type look struct {
	states []ops.QueueState
	err    error
	at     time.Time
	took   time.Duration
}

func (t *top) look(ctx context.Context) look {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, max(5*time.Second, t.every))
	defer cancel()
	states, err := t.w.Overview(ctx)
	return look{states, err, t.io.Now(), time.Since(began)}
}

func (t *top) take(l look) {
	t.at, t.took = l.at, l.took
	if l.err != nil {
		t.message = out.Error(l.err)
		return
	}
	t.states = l.states
	for i := range t.states {
		q := &t.states[i]
		if t.history[q.Queue] == nil {
			t.history[q.Queue] = &history{}
		}
		t.history[q.Queue].add(q)
	}
}

// once prints one frame, with all workers.
func (t *top) once(ctx context.Context) error {
	t.take(t.look(ctx))
	t.selected = -1
	var lines, ids []string
	for _, l := range t.lines(t.app, 300, 10_000) {
		lines = append(lines, strings.TrimRight(l.text, " "))
	}
	items := []any{}
	failed := 0
	for i := range t.states {
		if t.states[i].Err() != nil {
			failed++
		}
		items = append(items, t.viewQueue(&t.states[i]))
		ids = append(ids, t.states[i].Queue)
	}
	if err := t.show(out.Result{Lines: lines, Items: items, IDs: ids}); err != nil {
		return err
	}
	return t.partErrors(t.states, failed)
}

// The sequences that the screen needs; every terminal of today has them.
const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[2J" // the other screen, without a cursor
	leave = "\x1b[?25h\x1b[?1049l"
)

// resizes is how often the terminal's size is looked at.
const resizes = 200 * time.Millisecond

func (t *top) live(ctx context.Context) error {
	restore, err := t.io.Raw()
	if err != nil {
		return fmt.Errorf("top: the terminal: %w", err)
	}
	defer restore()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := io.WriteString(t.io.Out, enter); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(t.io.Out, leave) }()
	go readKeys(ctx, t.io.In, t.keys)
	t.message = "looking …"
	tick, size := time.NewTicker(t.every), time.NewTicker(resizes)
	defer tick.Stop()
	defer size.Stop()
	t.lookAgain(ctx)
	for old := true; ; {
		if old {
			if err := t.paint(); err != nil {
				return err
			}
		}
		old = true
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.lookAgain(ctx)
		case <-size.C:
			// To make a frame of 200 workers five times a second would be most of the work.
			cols, rows := t.io.Size()
			old = cols != t.cols || rows != t.rows
		case l := <-t.looked:
			t.looking = false
			if t.message == "looking …" {
				t.message = ""
			}
			t.take(l)
		case pane := <-t.doing:
			t.busy, t.message = false, ""
			t.pane = append(pane, "", "any key goes back")
		case k, ok := <-t.keys:
			if !ok || t.press(ctx, k) {
				return nil
			}
		}
	}
}

// lookAgain looks, unless a look is under way.
func (t *top) lookAgain(ctx context.Context) {
	if t.looking {
		return
	}
	t.looking = true
	go func() {
		l := t.look(ctx)
		select {
		case t.looked <- l:
		case <-ctx.Done():
		}
	}()
}

// paint writes the lines that have changed.
func (t *top) paint() error {
	cols, rows := t.io.Size()
	var b strings.Builder
	if cols != t.cols || rows != t.rows {
		t.cols, t.rows, t.drawn = cols, rows, nil
		b.WriteString("\x1b[2J")
	}
	if t.ask != nil {
		t.message = t.ask.prompt()
	}
	ls := t.lines(t.app, cols, rows)
	for i := range max(len(ls), len(t.drawn)) {
		var l line
		if i < len(ls) {
			l = ls[i]
		}
		if i < len(t.drawn) && t.drawn[i] == l {
			continue
		}
		fmt.Fprintf(&b, "\x1b[%d;1H", i+1)
		if sgr := colours[l.kind]; t.out.Color && sgr != "" || l.kind == chosen {
			fmt.Fprintf(&b, "\x1b[%sm%s\x1b[m", sgr, l.text)
		} else {
			b.WriteString(l.text)
		}
		b.WriteString("\x1b[K")
	}
	t.drawn = ls
	if b.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(t.io.Out, b.String())
	return err
}

// An ask is a row of questions at the foot of the screen, and what is done with the answers.
type ask struct {
	labels  []string
	answers []string
	text    string
	then    func(answers []string)
}

func (k *ask) prompt() string { return k.labels[len(k.answers)] + k.text + "▏" }

// press does what a key says, and reports whether to end.
func (t *top) press(ctx context.Context, k key) bool {
	if k.name == "ctrl-c" {
		return true
	}
	if t.ask != nil {
		t.edit(k)
		return false
	}
	if t.pane != nil {
		t.pane = nil
		return k.r == 'q'
	}
	t.message = ""
	q := t.current()
	switch {
	case k.r == 'q':
		return true
	case k.name == "up":
		t.selected = max(0, t.selected-1)
	case k.name == "down":
		t.selected++
		t.current()
	case k.r == '/':
		t.questions(func(as []string) { t.filter, t.selected = as[0], 0 }, "filter: ")
	case q == nil || t.busy:
	case k.name == "enter":
		t.pane = append(t.queueLines(q), "", "any key goes back")
	case k.r == 'p':
		t.pauseKey(ctx, q.Queue)
	case k.r == 'r':
		t.resumeKey(ctx, q)
	case k.r == 'd':
		t.questions(func(as []string) {
			if as[0] == "y" {
				t.do(ctx, func(ctx context.Context) []string { return t.letters(ctx, q.Queue) })
			}
		}, "looking at the letters of "+q.Queue+" gives each one receive more; y goes on: ")
	case k.r == 'k':
		t.questions(func(as []string) {
			t.do(ctx, func(ctx context.Context) []string { return t.keyPane(ctx, q.Queue, as[0]) })
		}, "key, or scope and key: ")
	}
	return false
}

func (t *top) questions(then func([]string), labels ...string) {
	t.ask = &ask{labels: labels, then: then}
}

// edit is a key while something is asked.
func (t *top) edit(k key) {
	switch {
	case k.name == "esc":
		t.ask, t.pane, t.message = nil, nil, ""
	case k.name == "enter":
		t.ask.answers, t.ask.text = append(t.ask.answers, strings.TrimSpace(t.ask.text)), ""
		if done := t.ask; len(done.answers) == len(done.labels) {
			t.ask, t.message = nil, ""
			done.then(done.answers)
		}
	case k.name == "backspace":
		_, n := utf8.DecodeLastRuneInString(t.ask.text)
		t.ask.text = t.ask.text[:len(t.ask.text)-n]
	case k.r != 0 && len(t.ask.text) < maxReason:
		t.ask.text += string(k.r)
	}
}

// do runs what takes a moment beside the screen.
func (t *top) do(ctx context.Context, f func(context.Context) []string) {
	t.busy, t.message = true, "asking …"
	go func() {
		ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
		t.doing <- f(ctx)
	}()
}

// protection is what a protected profile asks beside.
func (t *top) protection() []string {
	if p := t.w.profile; p != nil && p.Protect {
		return []string{"type " + p.Name + " to go on in the protected profile: "}
	}
	return nil
}

func (t *top) protected(answers []string) bool {
	return len(t.protection()) == 0 || answers[len(answers)-1] == t.w.profile.Name
}

func (t *top) pauseKey(ctx context.Context, queue string) {
	labels := append([]string{"pause " + queue + " for (30m, 2h): ", "why: ", "type " + queue + " to pause it: "}, t.protection()...)
	t.questions(func(as []string) {
		d, err := controlstore.ParseFor(as[0])
		switch {
		case err != nil:
			t.message = out.Error(bare(err))
		case as[1] == "":
			t.message = "nothing was done: a pause wants a reason"
		case as[2] != queue || !t.protected(as):
			t.message = "not confirmed; nothing was done"
		default:
			t.do(ctx, func(ctx context.Context) []string {
				r := control.Rule{Queue: queue, Until: t.io.Now().Add(d), Reason: as[1]}
				f, err := t.w.Pause(ctx, r, nil)
				return followedLines(f, err, queue+" paused")
			})
		}
	}, labels...)
}

func (t *top) resumeKey(ctx context.Context, q *ops.QueueState) {
	queue, known := q.Queue, q.Queue
	if x, err := t.w.Target(queue); err == nil {
		known = x.Known
	}
	t.pane, _ = t.ending(q.Rules, known, "") // beside the question, because others may have made them
	labels := append([]string{"why does " + queue + " go on: ", "type " + queue + " to resume it: "}, t.protection()...)
	t.questions(func(as []string) {
		t.pane = nil
		if as[0] == "" || as[1] != queue || !t.protected(as) {
			t.message = "not confirmed; nothing was done"
			return
		}
		t.do(ctx, func(ctx context.Context) []string {
			f, err := t.w.Resume(ctx, ops.ResumeSpec{Queue: queue, Reason: as[0]}, nil)
			if err != nil {
				return followedLines(f, err, "")
			}
			return followedLines(f, nil, t.resumed(ctx, t.w, queue, &f))
		})
	}, labels...)
}

func followedLines(f ops.Followed, err error, what string) []string {
	if err != nil {
		return []string{out.Error(err)}
	}
	return []string{fmt.Sprintf("%s; %d of %d workers follow after %s; audit %s", what, f.Live-len(f.Behind), f.Live, out.Span(f.Took), f.Audit)}
}

// letters groups the dead letters of a queue.
func (t *top) letters(ctx context.Context, queue string) []string {
	x, err := t.w.Target(queue)
	if err == nil && x.Letters == nil {
		err = errors.New(queue + " has no dead-letter queue")
	}
	var groups dlq.Groups
	if err == nil {
		groups, err = x.Letters.Group(ctx, dlq.Filter{})
	}
	var ls []string
	if err != nil {
		ls = append(ls, out.Error(err))
	}
	if len(groups) == 0 {
		return append(ls, "no letters")
	}
	ls = append(ls, strings.Split(strings.TrimRight(groups.String(), "\n"), "\n")...)
	return append(ls, "", "next: onceq dlq group "+queue)
}

// keyPane is a key's time line.
func (t *top) keyPane(ctx context.Context, queue, text string) []string {
	words := strings.Fields(text)
	if len(words) == 0 || len(words) > 2 {
		return []string{"want a key, or a scope and a key"}
	}
	k, err := t.where(ctx, t.w, queue, words)
	if err != nil {
		return []string{out.Error(err)}
	}
	l, err := t.w.Key(ctx, queue, k, ops.KeyOptions{})
	if l == nil || l.Record == nil {
		return []string{out.Error(err)}
	}
	return append([]string{t.keyHead(out.Text(k.Scope)+" "+out.Text(k.Key), l)}, t.stepLines(l, true)...)
}

// A key is a character, or one that has a name.
type key struct {
	r    rune
	name string
}

// readKeys reads keys until the input or ctx ends.
func readKeys(ctx context.Context, in io.Reader, keys chan<- key) {
	defer close(keys)
	r := bufio.NewReader(in)
	for {
		k, err := readKey(r)
		if err != nil {
			return
		}
		if k == (key{}) {
			continue
		}
		select {
		case keys <- k:
		case <-ctx.Done():
			return
		}
	}
}

// readKey reads one key. An escape sequence comes in one piece, and a lone escape has nothing
// behind it.
func readKey(r *bufio.Reader) (key, error) {
	c, _, err := r.ReadRune()
	if err != nil {
		return key{}, err
	}
	switch c {
	case 3:
		return key{name: "ctrl-c"}, nil
	case '\r', '\n':
		return key{name: "enter"}, nil
	case 8, 127:
		return key{name: "backspace"}, nil
	case 27:
		if r.Buffered() == 0 {
			return key{name: "esc"}, nil
		}
		next, _, err := r.ReadRune()
		if err != nil || next != '[' && next != 'O' {
			return key{}, err
		}
		for {
			c, _, err := r.ReadRune()
			switch {
			case err != nil:
				return key{}, err
			case c == 'A':
				return key{name: "up"}, nil
			case c == 'B':
				return key{name: "down"}, nil
			case c >= '@' && c <= '~':
				return key{}, nil // one that has no meaning here
			}
		}
	}
	if c < ' ' || c == utf8.RuneError {
		return key{}, nil
	}
	return key{r: c}, nil
}
