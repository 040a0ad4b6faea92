// Package steps is the form in which a job's saved steps stand in a store: the bytes of
// dedupe.Record.State. Package onceq writes and reads it.
//
//	{"v":1,"s":{"charge":{"n":1,"at":"2026-01-02T03:04:05Z","v":"ch_1"}}}
//
// The form is frozen. A program that finds members which it does not know keeps them, and one that
// finds a later version refuses to write.
package steps

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"
)

// version is that of the form.
const version = 1

// MaxName is the longest name of a step, in bytes.
const MaxName = 128

// Step is one that is saved.
type Step struct {
	// N counts the saves of the job, from 1: the step with the highest was saved last.
	N int `json:"n"`
	// At is when it was saved, by the clock of the worker.
	At time.Time `json:"at"`
	// Value is what was saved, as JSON; nil of a sleep.
	Value json.RawMessage `json:"v,omitempty"`
	// Until is when a sleep ends; zero of all others.
	Until time.Time `json:"until,omitzero"`
}

// Form is what a job has saved. It is not safe for use by many goroutines.
type Form struct {
	members map[string]json.RawMessage // of the object, the steps left out
	steps   map[string]json.RawMessage // as they came
}

// ErrUnreadable is wrapped by what is said of a state that cannot be used.
var ErrUnreadable = errors.New("what the job has saved cannot be used")

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnreadable}, args...)...)
}

var errForeign = unreadable("it is not in the form of steps, so something else has written it")

// Decode reads a state; one of no bytes is empty. The error says what is wrong.
func Decode(state []byte) (*Form, error) {
	f := &Form{members: map[string]json.RawMessage{}, steps: map[string]json.RawMessage{}}
	if len(state) == 0 {
		return f, nil
	}
	if err := json.Unmarshal(state, &f.members); err != nil || f.members == nil {
		return nil, errForeign
	}
	var v int
	switch err := json.Unmarshal(f.members["v"], &v); {
	case err != nil, v < 1:
		return nil, errForeign
	case v > version:
		return nil, unreadable("a later version of onceq has written it: its form is %d, and this one knows up to %d", v, version)
	}
	if s := f.members["s"]; s != nil {
		if err := json.Unmarshal(s, &f.steps); err != nil || f.steps == nil {
			return nil, unreadable("its steps cannot be read")
		}
	}
	delete(f.members, "v")
	delete(f.members, "s")
	return f, nil
}

// Encode is the state that holds the form.
func (f *Form) Encode() ([]byte, error) {
	all := maps.Clone(f.members)
	s, err := json.Marshal(f.steps)
	if err != nil {
		return nil, err
	}
	all["v"], all["s"] = json.RawMessage("1"), s
	return json.Marshal(all)
}

// Get is the step of that name. ok reports whether there is one.
func (f *Form) Get(name string) (s Step, ok bool, err error) {
	raw, ok := f.steps[name]
	if !ok {
		return Step{}, false, nil
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return Step{}, true, unreadable("the step %q cannot be read", name)
	}
	return s, true, nil
}

// With is the form with the step s under that name, in place of one that was there.
func (f *Form) With(name string, s Step) (*Form, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	n := &Form{members: f.members, steps: maps.Clone(f.steps)}
	n.steps[name] = raw
	return n, nil
}

// Last is the name of the step that was saved last; "" = there is none.
func (f *Form) Last() (name string) {
	last := 0
	for k := range f.steps {
		if s, _, err := f.Get(k); err == nil && s.N > last {
			name, last = k, s.N
		}
	}
	return name
}

// Entry is a step with its name, as a list has it.
type Entry struct {
	Step
	Name string
	// Err says why the step cannot be read; nil = it can.
	Err error
}

// List has all steps in the order in which they were saved. Those that cannot be read come first.
func (f *Form) List() []Entry {
	all := make([]Entry, 0, len(f.steps))
	for name := range f.steps {
		s, _, err := f.Get(name)
		all = append(all, Entry{Step: s, Name: name, Err: err})
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.N, b.N), cmp.Compare(a.Name, b.Name)) })
	return all
}

// Len is how many steps there are.
func (f *Form) Len() int { return len(f.steps) }

// CheckName says what is wrong with a step's name; nil = nothing.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("the name has %d bytes, the limit is %d", len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the name %q is not valid UTF-8", name)
	}
	return nil
}
