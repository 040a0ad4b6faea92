// Package runbook reads the nights of docs/runbook.md, and plays their commands. The page is for
// people, who type what stands there; the tests do the same, so a command that no longer works, or
// prints something else, is noticed.
//
// This file owns the form of the page: a night is a section, its parts are paragraphs that begin
// with a bold word, and commands are the console blocks beneath.
package runbook

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Parts are what each night has, in this order.
var Parts = []string{"Signature", "Before", "Act", "After"}

// Night is a section of the page.
type Night struct {
	Title string
	Steps []Step
}

// Step is a command, or what a person does outside of the terminal.
type Step struct {
	Part string
	// Line is the command as it stands in the page; or "# …", what a person does.
	Line string
	// Want are lines of its output; … stands for anything.
	Want []string
	// Exit is the exit code, by a line "exit 1" beneath the command.
	Exit int
}

// Read reads the page.
func Read(path string) (nights []Night, err error) {
	text, err := os.ReadFile(path) //nolint:gosec // a page of the tree
	if err != nil {
		return nil, err
	}
	var n *Night
	part, inBlock := "", false
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inBlock = line == "```console"
		case !inBlock:
			if title, ok := strings.CutPrefix(line, "## "); ok {
				nights = append(nights, Night{Title: title})
				n, part = &nights[len(nights)-1], ""
			} else if rest, ok := strings.CutPrefix(line, "**"); ok {
				if word, _, ok := strings.Cut(rest, ".**"); ok && slices.Contains(Parts, word) {
					part = word
				}
			}
		case n == nil || part == "":
			return nil, fmt.Errorf("%s:%d: a command outside of a night's parts", path, i+1)
		default:
			if err := n.read(part, line); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
			}
		}
	}
	return slices.DeleteFunc(nights, func(n Night) bool { return len(n.Steps) == 0 }), nil
}

func (n *Night) read(part, line string) error {
	if command, ok := strings.CutPrefix(line, "$ "); ok {
		n.Steps = append(n.Steps, Step{Part: part, Line: command})
		return nil
	}
	if strings.HasPrefix(line, "# ") {
		n.Steps = append(n.Steps, Step{Part: part, Line: line})
		return nil
	}
	if len(n.Steps) == 0 {
		return fmt.Errorf("output without a command: %q", line)
	}
	s := &n.Steps[len(n.Steps)-1]
	if code, ok := strings.CutPrefix(line, "exit "); ok {
		var err error
		s.Exit, err = strconv.Atoi(code)
		return err
	}
	if strings.TrimSpace(line) != "" {
		s.Want = append(s.Want, line)
	}
	return nil
}

// Player plays steps.
type Player struct {
	// Run runs a command, whose first word is the program's name. Both outputs are wanted for Want,
	// the first one for files and variables.
	Run func(words []string) (code int, out, errs string)
	// Do does what a person does outside of the terminal, by the text of the "# …".
	Do map[string]func()
	// Dir is where files are written.
	Dir string
	// Vars are what $NAME stands for; a line NAME=… sets one.
	Vars map[string]string
	// Said is told of each step with what it printed.
	Said func(s *Step, output string)
}

// Play plays a step. The error says what the page has, and what came.
func (p *Player) Play(s *Step) error {
	if what, ok := strings.CutPrefix(s.Line, "# "); ok {
		do := p.Do[what]
		if do == nil {
			return fmt.Errorf("nobody knows how to %q", what)
		}
		do()
		return nil
	}
	line, file, _ := strings.Cut(s.Line, " > ")
	variable := ""
	if m := assignment.FindStringSubmatch(line); m != nil {
		variable, line = m[1], m[2]
	} else if m := literal.FindStringSubmatch(line); m != nil {
		p.set(m[1], m[2])
		return nil
	}
	words, err := p.divide(line)
	if err != nil {
		return err
	}
	code, out, errs := p.Run(words)
	if p.Said != nil {
		p.Said(s, out+errs)
	}
	if code != s.Exit {
		return fmt.Errorf("%s: exit %d, the page has %d\n%s%s", s.Line, code, s.Exit, out, errs)
	}
	for _, want := range s.Want {
		if !matches(want, out+errs) {
			return fmt.Errorf("%s: the page has\n%s\nand it prints\n%s%s", s.Line, want, out, errs)
		}
	}
	if file != "" {
		return os.WriteFile(filepath.Join(p.Dir, file), []byte(out), 0o600)
	}
	if variable != "" {
		first, _, _ := strings.Cut(out, "\n")
		if first == "" {
			return fmt.Errorf("%s: it prints nothing\n%s", s.Line, errs)
		}
		p.set(variable, first)
	}
	return nil
}

func (p *Player) set(name, value string) {
	if p.Vars == nil {
		p.Vars = make(map[string]string)
	}
	p.Vars[name] = value
}

// The forms of a line beside a plain command: NAME=$(COMMAND | head -1) and NAME=VALUE.
var (
	assignment = regexp.MustCompile(`^([A-Z_]+)=\$\((.*) \| head -1\)$`)
	literal    = regexp.MustCompile(`^([A-Z_]+)=([\w.-]+)$`)
	word       = regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)
	blanks     = regexp.MustCompile(` ?… ?`)
	named      = regexp.MustCompile(`\$[A-Z_]+`)
)

// divide divides a line as a shell does.
func (p *Player) divide(line string) (words []string, err error) {
	for _, w := range word.FindAllString(line, -1) {
		if w[0] == '\'' {
			words = append(words, strings.Trim(w, "'"))
			continue
		}
		words = append(words, named.ReplaceAllStringFunc(strings.Trim(w, `"`), func(v string) string {
			value, ok := p.Vars[v[1:]]
			if !ok {
				err = fmt.Errorf("%s: %s has no value", line, v)
			}
			return value
		}))
	}
	return words, err
}

// matches reports whether a line of the output is as the page has it, but for blanks and what …
// stands for.
func matches(want, output string) bool {
	parts := strings.Split(blanks.ReplaceAllString(strings.Join(strings.Fields(want), " "), "…"), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	re := regexp.MustCompile(`^ ?` + strings.Join(parts, ".*") + ` ?$`)
	return slices.ContainsFunc(strings.Split(output, "\n"), func(line string) bool {
		return re.MatchString(strings.Join(strings.Fields(line), " "))
	})
}
