package dlq

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// counts lists what was counted, the most first.
func counts(n map[string]int) (parts []string) {
	names := slices.SortedFunc(maps.Keys(n), func(a, b string) int { return cmp.Or(n[b]-n[a], strings.Compare(a, b)) })
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", Printable(cmp.Or(name, "-")), n[name]))
	}
	return parts
}

// counted is counts in one line.
func counted(n map[string]int) string { return strings.Join(counts(n), ", ") }

// columns is how wide a terminal is at least.
const columns = 80

// filled writes the head and the parts, with commas between them. No part is torn, and a line is
// longer than a terminal only where one part alone is.
func filled(head string, parts []string) string {
	const indent = "  "
	var b strings.Builder
	b.WriteString(head)
	at := utf8.RuneCountInString(head)
	for i, p := range parts {
		if i < len(parts)-1 {
			p += ","
		}
		n := utf8.RuneCountInString(p)
		if at+1+n > columns {
			b.WriteString("\n" + indent)
			at = len(indent)
		} else {
			b.WriteByte(' ')
			at++
		}
		b.WriteString(p)
		at += n
	}
	b.WriteByte('\n')
	return b.String()
}

// table aligns the columns. No line ends in blanks.
func table(rows [][]string) string {
	var width []int
	for _, r := range rows {
		for i, cell := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		var l strings.Builder
		for i, cell := range r {
			l.WriteString(cell)
			l.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(l.String(), " "))
		b.WriteByte('\n')
	}
	return b.String()
}
