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

// A line is one of two texts, or of both.
type line struct{ Sign, Text string }

// maxDiff bounds how many lines of a text are compared.
const maxDiff = 300

// diff is what became of a text, line by line: - is gone, + is new. The texts are safe already.
func diff(before, after string) (ls []line) {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	if a, b = a[:min(len(a), maxDiff)], b[:min(len(b), maxDiff)]; before == after {
		return []line{{" ", "Nothing changes."}}
	}
	common := make([][]int, len(a)+1) // how many lines the rests have in common
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			ls = append(ls, line{" ", cut(a[i], 500)})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			ls = append(ls, line{"-", cut(a[i], 500)})
			i++
		default:
			ls = append(ls, line{"+", cut(b[j], 500)})
			j++
		}
	}
	return ls
}
