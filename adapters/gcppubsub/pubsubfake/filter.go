package pubsubfake

import (
	"errors"
	"fmt"
	"strings"
)

// This file owns filters: Pub/Sub's language over attributes. settings.go calls parseFilter.
//
//	filter     = term { ("AND" | "OR") term }   the two are not mixed without parentheses
//	term       = [ "NOT" | "-" ] ( comparison | "(" filter ")" )
//	comparison = "attributes" ":" key | "attributes" "." key ("=" | "!=") value
//	           | "hasPrefix" "(" "attributes" "." key "," value ")"

// filter reports whether a message with these attributes is for the subscription.
type filter func(attributes map[string]string) bool

func parseFilter(text string) (filter, error) {
	words, err := filterWords(text)
	if err != nil {
		return nil, err
	}
	p := &filterParser{words: words}
	f, err := p.filter()
	if err == nil && len(p.words) > 0 {
		err = fmt.Errorf("unexpected %q", p.words[0].text)
	}
	return f, err
}

// word is a name, a sign, or a text in quotes.
type word struct {
	text   string
	quoted bool
}

func filterWords(text string) (words []word, err error) {
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case c == '"':
			quoted, n, err := filterText(text[i:])
			if err != nil {
				return nil, err
			}
			words = append(words, word{quoted, true})
			i += n
		case strings.HasPrefix(text[i:], "!="):
			words = append(words, word{text: "!="})
			i += 2
		case nameByte(c) && c != '-':
			n := i
			for n < len(text) && nameByte(text[n]) {
				n++
			}
			words = append(words, word{text: text[i:n]})
			i = n
		default:
			words = append(words, word{text: string(c)})
			i++
		}
	}
	return words, nil
}

// filterText reads a text in quotes, with backslashes before quotes and backslashes.
func filterText(s string) (text string, n int, err error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), i + 1, nil
		case '\\':
			if i++; i == len(s) {
				return "", 0, errors.New("a text does not end")
			}
			fallthrough
		default:
			b.WriteByte(s[i])
		}
	}
	return "", 0, errors.New("a text does not end")
}

func nameByte(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c >= 0x80
}

type filterParser struct{ words []word }

func (p *filterParser) sign(text string) bool {
	if len(p.words) > 0 && !p.words[0].quoted && p.words[0].text == text {
		p.words = p.words[1:]
		return true
	}
	return false
}

func (p *filterParser) want(text string) error {
	if p.sign(text) {
		return nil
	}
	return fmt.Errorf("%q is missing%s", text, p.where())
}

func (p *filterParser) where() string {
	if len(p.words) == 0 {
		return " at the end"
	}
	return fmt.Sprintf(" before %q", p.words[0].text)
}

func (p *filterParser) filter() (filter, error) {
	f, err := p.term()
	if err != nil {
		return nil, err
	}
	first := ""
	for {
		operator := ""
		switch {
		case p.sign("AND"):
			operator = "AND"
		case p.sign("OR"):
			operator = "OR"
		default:
			return f, nil
		}
		if first == "" {
			first = operator
		}
		if operator != first {
			return nil, errors.New("AND and OR are mixed without parentheses")
		}
		left := f
		right, err := p.term()
		if err != nil {
			return nil, err
		}
		if operator == "AND" {
			f = func(as map[string]string) bool { return left(as) && right(as) }
		} else {
			f = func(as map[string]string) bool { return left(as) || right(as) }
		}
	}
}

func (p *filterParser) term() (filter, error) {
	not := p.sign("NOT") || p.sign("-")
	var f filter
	var err error
	if p.sign("(") {
		if f, err = p.filter(); err == nil {
			err = p.want(")")
		}
	} else {
		f, err = p.comparison()
	}
	if err != nil || !not {
		return f, err
	}
	return func(as map[string]string) bool { return !f(as) }, nil
}

func (p *filterParser) comparison() (filter, error) {
	if p.sign("hasPrefix") {
		return p.prefix()
	}
	if err := p.want("attributes"); err != nil {
		return nil, err
	}
	if p.sign(":") {
		key, err := p.key()
		return func(as map[string]string) bool { _, ok := as[key]; return ok }, err
	}
	if err := p.want("."); err != nil {
		return nil, err
	}
	key, err := p.key()
	if err != nil {
		return nil, err
	}
	not := p.sign("!=")
	if !not {
		if err := p.want("="); err != nil {
			return nil, err
		}
	}
	value, err := p.value()
	return func(as map[string]string) bool {
		v, ok := as[key]
		return ok && v == value != not || !ok && not
	}, err
}

func (p *filterParser) prefix() (filter, error) {
	for _, sign := range []string{"(", "attributes", "."} {
		if err := p.want(sign); err != nil {
			return nil, err
		}
	}
	key, err := p.key()
	if err == nil {
		err = p.want(",")
	}
	if err != nil {
		return nil, err
	}
	value, err := p.value()
	if err == nil {
		err = p.want(")")
	}
	return func(as map[string]string) bool {
		v, ok := as[key]
		return ok && strings.HasPrefix(v, value)
	}, err
}

// key is a name, or a text in quotes.
func (p *filterParser) key() (string, error) {
	if len(p.words) == 0 || !p.words[0].quoted && !nameByte(p.words[0].text[0]) {
		return "", fmt.Errorf("the key of an attribute is missing%s", p.where())
	}
	key := p.words[0].text
	p.words = p.words[1:]
	return key, nil
}

// value is a text in quotes.
func (p *filterParser) value() (string, error) {
	if len(p.words) == 0 || !p.words[0].quoted {
		return "", fmt.Errorf("a text in quotes is missing%s", p.where())
	}
	value := p.words[0].text
	p.words = p.words[1:]
	return value, nil
}
