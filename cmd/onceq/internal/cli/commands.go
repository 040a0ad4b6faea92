package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
)

// group makes a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short}
	c.AddCommand(subs...)
	return c
}

// span is a flag's value: a time with its unit, days among them.
type span struct{ d *time.Duration }

func (s span) String() string {
	if s.d == nil || *s.d == 0 {
		return ""
	}
	return s.d.String()
}

func (s span) Set(text string) error {
	d, err := settings.ParseDuration(text)
	if err == nil {
		*s.d = d
	}
	return err
}

func (s span) Type() string { return "duration" }

// quote is a word as a shell takes it. What a terminal must not see is written as bash, zsh and
// others read it, $'…', so that the word is still the one that is meant.
func quote(s string) string {
	switch {
	case out.Text(s) != s:
		var b strings.Builder
		b.WriteString("$'")
		for i := range len(s) {
			switch c := s[i]; {
			case c == '\'' || c == '\\':
				b.WriteString(`\` + string(rune(c)))
			case c < ' ' || c > '~':
				fmt.Fprintf(&b, `\x%02x`, c)
			default:
				b.WriteByte(c)
			}
		}
		return b.String() + "'"
	case s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/@%+=,") == "":
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// suggest is a command that somebody may paste: its words, and its flags behind them. Where a word
// begins with a '-' the flags go first, and "--" says that no more come: a message's key may be
// named like one.
func suggest(command, flags string, words ...string) string {
	parts := []string{"onceq " + command}
	quoted := make([]string, len(words))
	dashed := false
	for i, w := range words {
		quoted[i] = quote(w)
		dashed = dashed || strings.HasPrefix(w, "-")
	}
	if dashed {
		quoted = append([]string{"--"}, quoted...)
		if flags != "" {
			parts = append(parts, flags)
		}
		return strings.Join(append(parts, quoted...), " ")
	}
	parts = append(parts, quoted...)
	if flags != "" {
		parts = append(parts, flags)
	}
	return strings.Join(parts, " ")
}

// flagged is a flag with its value, which may begin with a '-' itself.
func flagged(name, value string) string {
	if strings.HasPrefix(value, "-") {
		return "--" + name + "=" + quote(value)
	}
	return "--" + name + " " + quote(value)
}

// What a column shows of a key, and of a type or class. All of it is in the JSON, and in dlq show.
const (
	shownKey  = 48
	shownName = 24
)

// cutKey and cutName are what a column shows of a text, or None.
func cutKey(s string) string  { return out.Cut(out.Or(s), shownKey) }
func cutName(s string) string { return out.Cut(out.Or(s), shownName) }
