package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// This file owns a rule: what it says, what is refused, and its form in JSON. Operators make rules
// and Change checks them. A rule is a value, and nothing is locked.

// Bounds of a [Rule].
const (
	// MaxUntil is how far ahead a rule may end.
	MaxUntil = 30 * 24 * time.Hour
	// MaxText bounds Rule.By and Rule.Reason, in bytes.
	MaxText = 256
	// MaxSlots bounds Rule.Slots: a worker has no more.
	MaxSlots = 100_000
	// maxID bounds an id that its maker has chosen, in bytes.
	maxID = 64
)

// ErrInvalid is wrapped by each error that says what is wrong with a rule, with its field's name
// and the limit. Nothing was written.
var ErrInvalid = errors.New("control: not valid")

func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrInvalid, field, fmt.Sprintf(format, args...))
}

// Action is what a rule does.
type Action string

// The actions. A worker leaves rules with an action that it does not know alone.
const (
	// Pause lets nothing start.
	Pause Action = "pause"
	// Limit bounds how many handlers each worker of a queue runs at once.
	Limit Action = "limit"
)

// A Rule is an operator's word to workers. An empty Queue, Scope and Type mean any; all that are
// given must fit. A rule without Scope and Type speaks of whole queues: their workers stop
// receiving. Such a rule without a Queue holds for all that have this store.
type Rule struct {
	// ID names the rule. Change gives a short one where it is empty; at most 64 bytes.
	ID string `json:"id"`
	// Do is Pause or Limit. Required.
	Do Action `json:"do"`
	// Queue is ProcessorConfig.Queue of the workers that are meant; at most 255 bytes.
	Queue string `json:"queue,omitempty"`
	// Scope is as records have it: "orders:charge", or a ProcessorConfig.Scope with all its types.
	// At most 255 bytes, without a ':' at its start. Not with Limit.
	Scope string `json:"scope,omitempty"`
	// Type is the type of job; at most 255 bytes. Not with Limit.
	Type string `json:"type,omitempty"`
	// Slots is for Limit: handlers at once in each worker; 0 is Pause; at most 100,000.
	Slots int `json:"slots,omitempty"`
	// Made is when the rule was made. Change fills it in.
	Made time.Time `json:"made"`
	// Until is when the rule ends by itself, by the workers' clocks. Required; at most 30 days
	// ahead.
	Until time.Time `json:"until"`
	// By is who made the rule, and Reason why. Both are required; at most 256 bytes of UTF-8 each,
	// without control characters.
	By     string `json:"by"`
	Reason string `json:"reason"`

	more string // fields of later versions, as JSON, so that an edit keeps them
}

// OfQueue reports whether the rule speaks of whole queues, and not of single jobs.
func (r *Rule) OfQueue() bool { return r.Scope == "" && r.Type == "" }

// Fits reports whether the rule speaks of a job of this queue, scope and type, and is not over. For
// a queue as a whole, scope and typ are empty. A call of Do has no queue.
func (r *Rule) Fits(queue, scope, typ string, now time.Time) bool {
	return now.Before(r.Until) && (r.Queue == "" || r.Queue == queue) && (r.Type == "" || r.Type == typ) && r.covers(scope)
}

// covers reports whether scope is the rule's, or that of a type below it.
func (r *Rule) covers(scope string) bool {
	rest, ok := strings.CutPrefix(scope, r.Scope)
	return r.Scope == "" || ok && (rest == "" || rest[0] == ':')
}

// check refuses what makes no sense in a rule that is made, or changed, now.
func (r *Rule) check(now time.Time) error {
	switch {
	case r.Do == "":
		return invalid("Rule.Do", "is empty, want %s or %s", Pause, Limit)
	case r.Do != Pause && r.Do != Limit:
		return invalid("Rule.Do", "%q is not known, want %s or %s", r.Do, Pause, Limit)
	case r.Do == Limit && !r.OfQueue():
		return invalid("Rule.Do", "%s is for a whole queue: it takes no Scope and no Type", Limit)
	case r.Do == Pause && r.Slots != 0:
		return invalid("Rule.Slots", "%d is set, but the rule is a %s", r.Slots, Pause)
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

// MarshalJSON writes the rule, with the fields of later versions that it came with.
func (r Rule) MarshalJSON() ([]byte, error) {
	type plain Rule
	b, err := json.Marshal(plain(r))
	if err != nil || r.more == "" {
		return b, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(r.more), &all); err != nil {
		return nil, err
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(b, &own); err != nil {
		return nil, err
	}
	maps.Copy(all, own)
	return json.Marshal(all)
}

// UnmarshalJSON reads a rule. Fields that this version does not know are kept for MarshalJSON.
func (r *Rule) UnmarshalJSON(b []byte) error {
	type plain Rule
	var p plain
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	for _, known := range []string{"id", "do", "queue", "scope", "type", "slots", "made", "until", "by", "reason"} {
		delete(all, known)
	}
	if len(all) > 0 {
		more, err := json.Marshal(all)
		if err != nil {
			return err
		}
		p.more = string(more)
	}
	*r = Rule(p)
	return nil
}
