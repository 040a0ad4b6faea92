package shop

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
)

// Screen shows a run while it goes on, in lines of at most 80 columns. On a terminal it rewrites
// one line; elsewhere, as in a CI log, it writes a line now and then.
type Screen struct {
	Out      io.Writer
	terminal bool
	said     time.Time // the last line, where there is no terminal
}

// columns is how wide a line may be; sayEvery how often a log gets one.
const (
	columns  = 80
	sayEvery = 4 * time.Second
)

// NewScreen shows a run on out.
func NewScreen(out io.Writer) *Screen {
	s := &Screen{Out: out}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		s.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// Start says what is going to happen. The lines, of a name and a text, stand before those that all
// demos have.
func (s *Screen) Start(set *Settings, orders, messages int, lines ...[2]string) {
	with := "with onceq"
	if set.Naive {
		with = "without onceq"
	}
	fmt.Fprintf(s.Out, "\nCharging %s orders %s\n\n", Group(orders), with)
	lines = append([][2]string{{"orders", fmt.Sprintf("%s, sent as %s messages", OrdersName(set.Orders), Group(messages))}}, lines...)
	lines = append(lines, [2]string{"timing", fmt.Sprintf("a message stays hidden for %v; a slow order takes %v", set.Visibility, set.Bank.Slow)})
	for _, l := range lines {
		hang(s.Out, fmt.Sprintf("  %-9s ", l[0]), l[1])
	}
	fmt.Fprintln(s.Out)
	s.said = time.Now()
}

// hang writes a text after its name, and under itself where it does not fit into one line.
func hang(w io.Writer, name, text string) {
	width := columns - utf8.RuneCountInString(name)
	for _, l := range wrap(text, width) {
		fmt.Fprintln(w, strings.TrimRight(name+l, " "))
		name = strings.Repeat(" ", columns-width)
	}
}

// paragraph writes a text as wide as the screen.
func paragraph(w io.Writer, text string) { hang(w, "", text) }

// wrap cuts a text between its words into lines of at most so many columns. A word that is longer
// has a line of its own.
func wrap(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

const eraseLine = "\r\x1b[K"

// Progress tells how far the work is, and what it waits for.
func (s *Screen) Progress(d broker.Depth, sent, crashes int, began time.Time) {
	left := int(d.Visible + d.InFlight + d.Delayed)
	text := fmt.Sprintf("%s messages left, %d crashes, %.0f s", Group(left), crashes, time.Since(began).Seconds())
	if left > 0 && d.Visible == 0 {
		text = fmt.Sprintf("%s messages left, in work or hidden for a while; %.0f s", Group(left), time.Since(began).Seconds())
	}
	if !s.terminal {
		if time.Since(s.said) >= sayEvery {
			s.said = time.Now()
			fmt.Fprintf(s.Out, "  %s\n", text)
		}
		return
	}
	const width = 20
	done := max(0, width-left*width/max(1, sent))
	fmt.Fprintf(s.Out, eraseLine+"  [%-*s] %s", width, strings.Repeat("=", done), text)
}

// Note shows what goes on, until Clear.
func (s *Screen) Note(what string) {
	if s.terminal {
		fmt.Fprintf(s.Out, eraseLine+"  %s", what)
		return
	}
	s.said = time.Now()
	fmt.Fprintf(s.Out, "  %s\n", what)
}

// Clear takes the progress line away.
func (s *Screen) Clear() {
	if s.terminal {
		fmt.Fprint(s.Out, eraseLine)
	}
}

// Group writes 1234567 as 1,234,567.
func Group(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
