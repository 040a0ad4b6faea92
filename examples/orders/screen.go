package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
)

// screen shows a run while it goes on.
type screen struct {
	out      io.Writer
	terminal bool // else there is no progress line
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// start says what is going to happen.
func (s *screen) start(d *demo) {
	o := d.o
	with := "with onceq"
	if o.naive {
		with = "without onceq"
	}
	fmt.Fprintf(s.out, "\nCharging %s orders %s\n\n", group(len(d.rows)), with)
	fmt.Fprintf(s.out, "  orders    %s, sent as %s messages\n", ordersName(o.orders), group(int(d.counts.sent.Load())))
	fmt.Fprintf(s.out, "  ledger    %s\n", o.ledger)
	fmt.Fprintf(s.out, "  workers   %d, of which %d will be killed while they work (-seed %d)\n", o.workers, o.crashes, o.seed)
	fmt.Fprintf(s.out, "  timing    a message stays hidden for %v; a slow order takes %v\n\n", o.visibility, o.slowBank)
}

const eraseLine = "\r\x1b[K"

// progress rewrites one line, which clear removes.
func (s *screen) progress(d *demo, depth broker.Depth) {
	if !s.terminal {
		return
	}
	const width = 30
	left := depth.Visible + depth.InFlight + depth.Delayed
	done := width - int(left*width/max(1, d.counts.sent.Load()))
	fmt.Fprintf(s.out, eraseLine+"  [%-*s] %s messages left, %d crashes, %.0f s", width, strings.Repeat("=", done),
		group(int(left)), len(d.plan.crashes()), time.Since(d.began).Seconds())
}

// note shows what goes on, until clear.
func (s *screen) note(what string) {
	if s.terminal {
		fmt.Fprintf(s.out, eraseLine+"  %s", what)
	}
}

func (s *screen) clear() {
	if s.terminal {
		fmt.Fprint(s.out, eraseLine)
	}
}

// group writes 1234567 as 1,234,567.
func group(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
