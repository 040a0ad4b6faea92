package controlstore

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
)

// This file owns the rules of a store as one value: which of them decides, and their form in JSON.
// A worker asks For for each job while a rule of its scope or type is in force. Nothing is locked:
// whoever has read Rules does not change them.

// Bounds of [Rules].
const (
	// MaxRules bounds how many rules a store has at once.
	MaxRules = 200
	// MaxBytes bounds the rules of a store together, as JSON. Up to 4 KB, which are ten to thirty
	// rules, reading them is one read unit of DynamoDB.
	MaxBytes = 64 << 10
)

// rulesKey is where the rules are.
var rulesKey = dedupe.Key{Scope: ScopeControl, Key: "rules"}

// kept is how long a rule that has ended is still shown, before a change drops it.
const kept = 24 * time.Hour

// Rules are all rules of a store.
type Rules struct {
	// Version rises by one with each change; 0 = there never was a rule.
	Version uint64
	// Rules stand in the order in which they were made. Some may be over: Change drops a rule a day
	// after its end.
	Rules []control.Rule
}

// For is what the rules say of a job at now, and whether they say anything. For a queue as a whole,
// scope and typ are empty. It allocates nothing.
func (r *Rules) For(queue, scope, typ string, now time.Time) (control.Verdict, bool) {
	var pause, limit *control.Rule
	for i := range r.Rules {
		u := &r.Rules[i]
		if !u.Fits(queue, scope, typ, now) {
			continue
		}
		switch {
		case u.Do == control.Pause, u.Do == control.Limit && u.Slots <= 0:
			// Change makes pauses of the latter, others may not.
			if pause == nil || u.Until.After(pause.Until) {
				pause = u
			}
		case u.Do == control.Limit:
			if limit == nil || u.Slots < limit.Slots {
				limit = u
			}
		}
	}
	if pause != nil {
		return control.Verdict{Do: control.Pause, Until: pause.Until, Rule: pause.ID, By: pause.By, Reason: pause.Reason}, true
	}
	if limit != nil {
		return control.Verdict{Do: control.Limit, Slots: limit.Slots, Until: limit.Until, Rule: limit.ID, By: limit.By, Reason: limit.Reason}, true
	}
	return control.Verdict{}, false
}

// Find is the rule with an id; nil = there is none.
func (r *Rules) Find(id string) *control.Rule {
	if i := slices.IndexFunc(r.Rules, func(u control.Rule) bool { return u.ID == id }); i >= 0 {
		return &r.Rules[i]
	}
	return nil
}

// Remove takes the rule with an id out, and reports whether it was there.
func (r *Rules) Remove(id string) bool {
	n := len(r.Rules)
	r.Rules = slices.DeleteFunc(r.Rules, func(u control.Rule) bool { return u.ID == id })
	return len(r.Rules) < n
}

// Next is when the next rule ends after now; zero = none does.
func (r *Rules) Next(now time.Time) (next time.Time) {
	for i := range r.Rules {
		if u := r.Rules[i].Until; u.After(now) && (next.IsZero() || u.Before(next)) {
			next = u
		}
	}
	return next
}

// Clone is a deep copy.
func (r *Rules) Clone() Rules { return Rules{Version: r.Version, Rules: slices.Clone(r.Rules)} }

// wire is the form of the rules in their record. A number of Form that is not ours means that
// nothing of it may be guessed; a new field does not change it.
type wire struct {
	Form  int            `json:"v"`
	Rules []control.Rule `json:"rules"`
}

const form = 1

// WentBack begins the reason of the pause that a worker makes whose store went back in time.
const WentBack = "the store went back in time"

func encode(r *Rules) ([]byte, error) {
	w := wire{Form: form, Rules: r.Rules}
	if w.Rules == nil {
		w.Rules = []control.Rule{}
	}
	return json.Marshal(&w)
}

// decode reads the rules of a record whose state has the number no.
func decode(state []byte, no int) (Rules, error) {
	if state == nil {
		return Rules{}, nil
	}
	var w wire
	err := json.Unmarshal(state, &w)
	if err == nil && w.Form != form {
		err = fmt.Errorf("their form is %d, and this version reads %d", w.Form, form)
	}
	if err == nil && (no < 1 || no > math.MaxInt-1) {
		err = fmt.Errorf("their number is %d", no)
	}
	if err != nil {
		return Rules{}, fmt.Errorf("control: the rules under %v cannot be read: %w", rulesKey, err)
	}
	return Rules{Version: uint64(no), Rules: w.Rules}, nil
}
