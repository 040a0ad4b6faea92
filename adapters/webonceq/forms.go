package webonceq

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// This file owns what forms say, and how a refusal is told beside the button.

// faulty shows on a screen why the act of one of its forms was refused, and what was typed.
func faulty(a *ask, form string, err error) func(*view) {
	return func(v *view) {
		v.Fault, v.At, v.Form = a.told(err), form, a.r.PostForm
		v.Live, v.Reload = "", 0 // the address is the form's, and what was typed stays
	}
}

// reason is why somebody acts; on a protected installation he has also typed its name.
func (a *ask) reason() (string, error) {
	if o := &a.page.o; o.Protected && a.r.PostForm.Get("profile") != o.Title {
		return "", refusedAct(fmt.Sprintf("type %q, the name of this installation, to show that you mean it", o.Title))
	}
	text := strings.TrimSpace(a.r.PostForm.Get("reason"))
	if text == "" {
		return "", refusedAct("say why: the audit keeps it")
	}
	return text, nil
}

// digit leaves the digits of a number that was typed as it is shown.
func digit(r rune) rune {
	if r >= '0' && r <= '9' {
		return r
	}
	return -1
}

// whole is a number within bounds; empty = 0.
func whole(text string, least, most int) (int, error) {
	n, err := strconv.Atoi(cmp.Or(strings.TrimSpace(text), "0"))
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("want a whole number from %d to %d", least, most)
	}
	return n, nil
}

// parsedFor is how long a rule lasts.
func parsedFor(text string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil || d < time.Minute || d > 30*24*time.Hour {
		return 0, refusedAct("for: want how long, such as 30m or 4h; 1m to 720h")
	}
	return d, nil
}

// chosenOf reads the fields of the same names.
func chosenOf(f url.Values) (c chosen, err error) {
	c = chosen{Group: f.Get("group"), Class: f.Get("class"), Type: f.Get("type"), Source: f.Get("source")}
	if text := strings.TrimSpace(f.Get("since")); text != "" {
		if d, e := time.ParseDuration(text); e == nil && d > 0 {
			c.Since = time.Now().Add(-d).Truncate(time.Second)
		} else if c.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return c, refusedAct("since: want a time like 2026-11-22T03:00:00Z, or how long ago, like 90m")
		}
	}
	return c, nil
}
