package out

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/dlq"
)

// This file owns how numbers, times and texts of strangers are written for people. The commands
// call it, each in the goroutine of Main, and nothing is locked.

// None stands where nothing is known. 0 is a number, and says something.
const None = "–"

// Text is a text of a message or a record as a terminal may show it, in one line.
func Text(s string) string { return dlq.Printable(s) }

// Error is the text of an error as a terminal may show it, in one line. Drivers write theirs in
// several, with tabs.
func Error(err error) string { return Text(strings.Join(strings.Fields(err.Error()), " ")) }

// Or is the text, or None.
func Or(s string) string {
	if s == "" {
		return None
	}
	return Text(s)
}

// Int writes a number with commas: 51,330.
func Int[N int | int64 | uint64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// IntOr writes a number that may not be known.
func IntOr(n *int64) string {
	if n == nil {
		return None
	}
	return Int(*n)
}

// Span writes a duration in two parts at most: 38.2s, 4m12s, 2h14m, 3d4h. A negative one, of two
// clocks that differ, is 0s.
func Span(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 100*time.Second:
		s := strconv.FormatFloat(d.Seconds(), 'f', 1, 64)
		return strings.TrimSuffix(s, ".0") + "s"
	case d < time.Hour:
		return parts(d, time.Minute, "m", time.Second, "s")
	case d < 48*time.Hour:
		return parts(d, time.Hour, "h", time.Minute, "m")
	}
	return parts(d, 24*time.Hour, "d", time.Hour, "h")
}

func parts(d, big time.Duration, b string, small time.Duration, s string) string {
	d = d.Round(small)
	out := fmt.Sprintf("%d%s", d/big, b)
	if n := d % big / small; n > 0 {
		out += fmt.Sprintf("%d%s", n, s)
	}
	return out
}

// Bytes writes a size.
func Bytes(n int) string {
	switch {
	case n == 1:
		return "1 byte"
	case n < 10_000:
		return Int(n) + " bytes"
	case n < 10<<20:
		return Int(n>>10) + " KiB"
	}
	return Int(n>>20) + " MiB"
}

// Plural is "1 letter", "2,107 letters".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Int(n) + " " + many
}

// zone is where times are shown.
func (p *Printer) zone() *time.Location {
	if p.UTC {
		return time.UTC
	}
	return time.Local
}

// Zone is the name of the zone in which a time is shown, or how far it is ahead of UTC: CET, +03.
func (p *Printer) Zone(t time.Time) string { return t.In(p.zone()).Format("MST") }

// Zoned are columns in which those of times name their zone.
func (p *Printer) Zoned(cs []Column) []Column {
	cs = slices.Clone(cs)
	for i := range cs {
		if c := &cs[i]; c.Time {
			c.Name, c.Time = c.Name+" "+p.Zone(p.Now()), false
		}
	}
	return cs
}

// Time writes a time for a table: today's without the date.
func (p *Printer) Time(t time.Time) string { return p.stamp(t, "15:04:05") }

// Milli is Time with milliseconds.
func (p *Printer) Milli(t time.Time) string { return p.stamp(t, "15:04:05.000") }

func (p *Printer) stamp(t time.Time, clock string) string {
	if t.IsZero() {
		return None
	}
	t = t.In(p.zone())
	now := p.Now().In(p.zone())
	if y, m, d := t.Date(); func() bool { a, b, c := now.Date(); return a == y && b == m && c == d }() {
		return t.Format(clock)
	}
	return t.Format("2006-01-02 " + clock)
}

// Date writes a day.
func (p *Printer) Date(t time.Time) string {
	if t.IsZero() {
		return None
	}
	return t.In(p.zone()).Format("2006-01-02")
}

// Stamp is a time in JSON: RFC 3339 in UTC; nil where there is none.
func Stamp(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format("2006-01-02T15:04:05.000Z")
	return &s
}
