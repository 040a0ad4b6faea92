// Package out prints what a command found: as a table, as Markdown, as JSON, as a JSON value a
// line, or the names alone.
//
// The package cli makes one Printer for each run of the command, whose goroutine has it. Nothing
// that comes from a message reaches a terminal without Text.
package out

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/onceq/onceq/dlq"
)

// This file owns the forms of the output. A Printer is one goroutine's.

// A Format is a form of the output.
type Format string

// The formats.
const (
	Table    Format = "table"
	JSON     Format = "json"
	NDJSON   Format = "ndjson"
	Markdown Format = "md"
)

// ParseFormat reads the value of -o.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case Table, JSON, NDJSON, Markdown:
		return f, nil
	}
	return "", fmt.Errorf("-o %s: want table, json, ndjson or md", s)
}

// A Column is a table's.
type Column struct {
	Name  string
	Right bool // numbers stand at the right
	Time  bool // it has times; Zoned puts the zone behind its name
}

// Columns are columns by their names; one that ends in '>' stands at the right, and one that ends
// in '@' has times.
func Columns(names ...string) []Column {
	cs := make([]Column, len(names))
	for i, n := range names {
		cs[i].Name, cs[i].Right = strings.CutSuffix(n, ">")
		cs[i].Name, cs[i].Time = strings.CutSuffix(cs[i].Name, "@")
	}
	return cs
}

// A Result is what one command has to say.
type Result struct {
	// Title is a line above the table. Lines are printed instead of a table, or below one.
	Title   string
	Columns []Column
	Rows    [][]string
	Lines   []string
	// Value is the whole as JSON, of a command about one thing. Items are what a list has; each is
	// a line of NDJSON.
	Value any
	Items []any
	// IDs are what -q prints.
	IDs []string
	// Empty is said where there is no row.
	Empty string
	// Next is the command that one mostly runs after this one.
	Next string
}

// Add adds one thing of a list: its id, its value as JSON, and its row.
func (r *Result) Add(id string, item any, cells ...string) {
	r.IDs, r.Items, r.Rows = append(r.IDs, id), append(r.Items, item), append(r.Rows, cells)
}

// A Printer writes results.
type Printer struct {
	Out, Err io.Writer
	Format   Format
	Quiet    bool
	UTC      bool
	Color    bool
	Now      func() time.Time
	// Closed is set by the first write to an output that nobody reads any longer.
	Closed bool

	wrote bool // something was printed
}

// Print writes a result.
func (p *Printer) Print(r Result) error {
	switch {
	case p.Quiet:
		return p.lines(r.IDs)
	case p.Format == JSON && r.Value == nil:
		if r.Items == nil {
			r.Items = []any{}
		}
		return p.json(r.Items, "  ")
	case p.Format == JSON:
		return p.json(r.Value, "  ")
	case p.Format == NDJSON && r.Value != nil:
		return p.json(r.Value, "")
	case p.Format == NDJSON:
		for _, v := range r.Items {
			if err := p.json(v, ""); err != nil {
				return err
			}
		}
		return nil
	case p.Format == Markdown:
		return p.markdown(r)
	}
	if r.Title != "" {
		if err := p.lines([]string{r.Title}); err != nil {
			return err
		}
	}
	if len(r.Rows) > 0 {
		if err := p.write(Grid(r.Columns, r.Rows)); err != nil {
			return err
		}
	} else if len(r.Lines) == 0 && r.Empty != "" {
		p.Say("%s", r.Empty)
	}
	if err := p.lines(r.Lines); err != nil {
		return err
	}
	if r.Next != "" {
		p.Say("next: %s", r.Next)
	}
	return nil
}

// Item writes one value of a list that has no end known.
func (p *Printer) Item(v any) error { return p.json(v, "") }

// Say writes a line of prose, which is never part of the output.
func (p *Printer) Say(format string, args ...any) {
	if p.Quiet {
		return
	}
	_, _ = fmt.Fprintf(p.Err, format+"\n", args...)
}

func (p *Printer) lines(ls []string) error {
	if len(ls) == 0 {
		return nil
	}
	return p.write(strings.Join(ls, "\n") + "\n")
}

func (p *Printer) json(v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	return p.write(escapeJSON(b.String()))
}

func (p *Printer) markdown(r Result) error {
	var b strings.Builder
	if p.wrote {
		b.WriteString("\n") // else a title would be a row of the table above
	}
	if r.Title != "" {
		b.WriteString("**" + cell(r.Title) + "**\n\n")
	}
	if len(r.Rows) > 0 {
		for _, c := range r.Columns {
			b.WriteString("| " + cell(c.Name) + " ")
		}
		b.WriteString("|\n")
		for _, c := range r.Columns {
			if c.Right {
				b.WriteString("|---:")
			} else {
				b.WriteString("|---")
			}
		}
		b.WriteString("|\n")
		for _, row := range r.Rows {
			for _, c := range row {
				b.WriteString("| " + cell(c) + " ")
			}
			b.WriteString("|\n")
		}
	}
	if len(r.Lines) > 0 {
		b.WriteString("```\n" + strings.Join(r.Lines, "\n") + "\n```\n")
	}
	return p.write(b.String())
}

func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "`", "\\`", "*", `\*`).Replace(s)
}

// ErrClosed says that nobody reads the output any longer, as behind head. It is no failure.
var ErrClosed = errors.New("the output is closed")

func (p *Printer) write(s string) error {
	if p.Closed {
		return ErrClosed
	}
	p.wrote = true
	_, err := io.WriteString(p.Out, s)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		p.Closed = true
		return ErrClosed
	}
	return err
}

// Grid aligns the columns below their names. No line ends in blanks.
func Grid(cols []Column, rows [][]string) string {
	width := make([]int, len(cols))
	for i, c := range cols {
		width[i] = Width(c.Name)
	}
	for _, r := range rows {
		for i, s := range r {
			width[i] = max(width[i], Width(s))
		}
	}
	var b strings.Builder
	line := func(cells []string) {
		var l strings.Builder
		for i, s := range cells {
			if i > 0 {
				l.WriteString("  ")
			}
			pad := strings.Repeat(" ", width[i]-Width(s))
			if cols[i].Right {
				l.WriteString(pad + s)
			} else {
				l.WriteString(s + pad)
			}
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	head := make([]string, len(cols))
	for i, c := range cols {
		head[i] = c.Name
	}
	line(head)
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

// Width is how many columns of a terminal a text takes: East Asian wide characters and most
// pictures take two, marks that combine none.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case 0x300 <= r && r <= 0x36f, r == 0x200d, 0xfe00 <= r && r <= 0xfe0f:
		return 0
	case 0x1100 <= r && r <= 0x115f, 0x2e80 <= r && r <= 0xa4cf, 0xac00 <= r && r <= 0xd7a3, 0xf900 <= r && r <= 0xfaff,
		0xfe30 <= r && r <= 0xfe6f, 0xff00 <= r && r <= 0xff60, 0xffe0 <= r && r <= 0xffe6, 0x1f300 <= r && r <= 0x1faff,
		0x20000 <= r && r <= 0x3fffd:
		return 2
	}
	return 1
}

// Cut is a text of at most n columns; what was cut shows as '…'.
func Cut(s string, n int) string {
	if Width(s) <= n {
		return s
	}
	if n < 1 {
		return ""
	}
	w := 0
	for i, r := range s {
		if w+runeWidth(r) > n-1 {
			return s[:i] + "…"
		}
		w += runeWidth(r)
	}
	return s
}

// escapeJSON writes what steers a terminal as \uNNNN. Beside what encoding/json escapes these are
// DEL, the C1 controls, and what changes the direction of a text.
func escapeJSON(s string) string {
	var b strings.Builder
	clean := 0
	for i, r := range s {
		if r >= 0x7f && steers(r) {
			b.WriteString(s[clean:i])
			if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
				fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
			clean = i + utf8.RuneLen(r)
		}
	}
	if clean == 0 {
		return s
	}
	return b.String() + s[clean:]
}

func steers(r rune) bool {
	s := string(r)
	return r != utf8.RuneError && dlq.Printable(s) != s
}

// A JSONWriter writes lines of JSON as a terminal may show them.
type JSONWriter struct{ W io.Writer }

// Write writes whole characters, so b must not end amid one.
func (w JSONWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(w.W, escapeJSON(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}
