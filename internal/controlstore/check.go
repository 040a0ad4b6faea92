package controlstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
)

// This file owns what is refused in a rule, and its bounds. Nothing is locked.

// Bounds of a [control.Rule].
const (
	// MaxUntil is how far ahead a rule may end.
	MaxUntil = 30 * 24 * time.Hour
	// MaxName bounds the name of a queue, a scope or a type in a rule, and of a seat's queue, in
	// bytes.
	MaxName = dedupe.MaxScope
	// MaxText bounds Rule.By and Rule.Reason, in bytes.
	MaxText = 256
	// MaxSlots bounds Rule.Slots: a worker has no more.
	MaxSlots = 100_000
	// maxID bounds an id that its maker has chosen, in bytes.
	maxID = 64
)

func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", control.ErrInvalid, field, fmt.Sprintf(format, args...))
}

// checkRule refuses what makes no sense in a rule that is made, or changed, now.
func checkRule(r *control.Rule, now time.Time) error {
	switch {
	case r.Do == "":
		return invalid("Rule.Do", "is empty, want %s or %s", control.Pause, control.Limit)
	case r.Do != control.Pause && r.Do != control.Limit:
		return invalid("Rule.Do", "%q is not known, want %s or %s", r.Do, control.Pause, control.Limit)
	case r.Do == control.Limit && !r.OfQueue():
		return invalid("Rule.Do", "%s is for a whole queue: it takes no Scope and no Type", control.Limit)
	case r.Do == control.Pause && r.Slots != 0:
		return invalid("Rule.Slots", "%d is set, but the rule is a %s", r.Slots, control.Pause)
	case r.Slots < 0 || r.Slots > MaxSlots:
		return invalid("Rule.Slots", "%d is not within 0 and %d", r.Slots, MaxSlots)
	case strings.HasPrefix(r.Scope, ":"):
		return invalid("Rule.Scope", "%q begins with a ':', and such scopes are onceq's own", r.Scope)
	case r.Until.IsZero():
		return invalid("Rule.Until", "is required: a rule without an end is forgotten")
	case !r.Until.After(now):
		return invalid("Rule.Until", "%s is over already", r.Until.Format(time.RFC3339))
	case r.Until.Sub(now) > MaxUntil:
		return invalid("Rule.Until", "%s is further ahead than %s", r.Until.Format(time.RFC3339), days(MaxUntil))
	}
	for _, f := range []struct {
		name, text string
		most       int
		required   bool
	}{
		{"Rule.ID", r.ID, maxID, true},
		{"Rule.Queue", r.Queue, MaxName, false},
		{"Rule.Scope", r.Scope, MaxName, false},
		{"Rule.Type", r.Type, MaxName, false},
		{"Rule.By", r.By, MaxText, true},
		{"Rule.Reason", r.Reason, MaxText, true},
	} {
		if err := checkText(f.name, f.text, f.most, f.required); err != nil {
			return err
		}
	}
	return nil
}

func checkText(field, s string, most int, required bool) error {
	switch {
	case required && strings.TrimSpace(s) == "":
		return invalid(field, "is required")
	case len(s) > most:
		return invalid(field, "has %d bytes, the limit is %d", len(s), most)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return invalid(field, "%q is not UTF-8, or holds a control character", s)
	}
	return nil
}

// days writes whole days as such.
func days(d time.Duration) string {
	if d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + "d"
	}
	return d.String()
}
