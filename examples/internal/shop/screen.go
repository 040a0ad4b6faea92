package shop

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// Screen shows a run while it goes on.
type Screen struct {
	Out      io.Writer
	terminal bool // else there is no progress line
}

// NewScreen shows a run on out.
func NewScreen(out io.Writer) *Screen {
	s := &Screen{Out: out}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		s.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// Start says what is going to happen. The lines, of a name and a text, stand before those that all demos have.
func (s *Screen) Start(set *Settings, orders, messages int, lines ...[2]string) {
	with := "with onceq"
	if set.Naive {
		with = "without onceq"
	}
	fmt.Fprintf(s.Out, "\nCharging %s orders %s\n\n", Group(orders), with)
	lines = append([][2]string{{"orders", fmt.Sprintf("%s, sent as %s messages", OrdersName(set.Orders), Group(messages))}}, lines...)
	lines = append(lines, [2]string{"timing", fmt.Sprintf("a message stays hidden for %v; a slow order takes %v", set.Visibility, set.Bank.Slow)})
	for _, l := range lines {
		fmt.Fprintf(s.Out, "  %-9s %s\n", l[0], l[1])
	}
	fmt.Fprintln(s.Out)
}

const eraseLine = "\r\x1b[K"

// Progress rewrites one line, which Clear removes.
func (s *Screen) Progress(left, sent, crashes int, began time.Time) {
	if !s.terminal {
		return
	}
	const width = 30
	done := max(0, width-left*width/max(1, sent))
	fmt.Fprintf(s.Out, eraseLine+"  [%-*s] %s messages left, %d crashes, %.0f s", width, strings.Repeat("=", done),
		Group(left), crashes, time.Since(began).Seconds())
}

// Note shows what goes on, until Clear.
func (s *Screen) Note(what string) {
	if s.terminal {
		fmt.Fprintf(s.Out, eraseLine+"  %s", what)
	}
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
