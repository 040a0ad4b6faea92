package webonceq

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/dlq"
)

// This file owns the words in which numbers and times are told. All are functions of their
// arguments and the clock.

// number is a count with its thousands apart.
func number(v any) string {
	s := fmt.Sprint(v)
	digits := strings.TrimPrefix(s, "-")
	if len(digits) < 4 || strings.ContainsFunc(digits, func(r rune) bool { return r < '0' || r > '9' }) {
		return s
	}
	var b strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return s[:len(s)-len(digits)] + b.String()
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// percent is a part of a whole.
func percent(part, whole uint64) string {
	if whole == 0 {
		return "–"
	}
	share := 100 * float64(part) / float64(whole)
	switch {
	case part > 0 && share < 0.1:
		return "< 0.1 %"
	case share < 10 && part > 0:
		return strconv.FormatFloat(math.Floor(share*10)/10, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(math.Floor(share), 'f', 0, 64) + " %"
}

// span is a duration in at most two units.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "–" + span(-d)
	case d == 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return pair(int(d/time.Minute), "min", int(d%time.Minute/time.Second), "s")
	case d < 24*time.Hour:
		return pair(int(d/time.Hour), "h", int(d%time.Hour/time.Minute), "min")
	}
	return pair(int(d/(24*time.Hour)), "d", int(d%(24*time.Hour)/time.Hour), "h")
}

func pair(a int, unit string, b int, lesser string) string {
	if b == 0 || a > 9 {
		return fmt.Sprintf("%d %s", a, unit)
	}
	return fmt.Sprintf("%d %s %d %s", a, unit, b, lesser)
}

// progress is how much of a whole was seen, in percent; 0 where nobody knows.
func progress(seen, about int) int {
	if about <= 0 {
		return 0
	}
	return min(99, 100*seen/about)
}

// lines is a text of several lines, each of them safe.
func lines(s string) string {
	ls := strings.Split(s, "\n")
	for i := range ls {
		ls[i] = dlq.Printable(ls[i])
	}
	return strings.Join(ls, "\n")
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	d := time.Since(t)
	if d < time.Second {
		return "just now"
	}
	return span(d) + " ago"
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	if now := time.Now().UTC(); t.YearDay() != now.YearDay() || t.Year() != now.Year() {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format("15:04:05")
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02") }
func iso(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// cut is a text of at most n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// offered are the names that a form offers, in their order: those that look like what they are.
func offered(m map[string]bool) (names []string) {
	for name := range m {
		if name != "" && dlq.Printable(name) == name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
