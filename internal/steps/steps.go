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
	"strconv"
	"strings"
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
	steps   []kept                     // by their names
}

// kept is a step as it came. One that this program has written it need not read.
type kept struct {
	name  string
	raw   json.RawMessage
	step  Step
	known bool
}

// ErrUnreadable is wrapped by what is said of a state that cannot be used.
var ErrUnreadable = errors.New("what the job has saved cannot be used")

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnreadable}, args...)...)
}

var errForeign = unreadable("it is not in the form of steps, so something else has written it")

// Decode reads a state; one of no bytes is empty. The error says what is wrong.
func Decode(state []byte) (*Form, error) {
	f := new(Form)
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
		var all map[string]json.RawMessage
		if err := json.Unmarshal(s, &all); err != nil || all == nil {
			return nil, unreadable("its steps cannot be read")
		}
		for name, raw := range all {
			f.steps = append(f.steps, kept{name: name, raw: raw})
		}
		slices.SortFunc(f.steps, func(a, b kept) int { return strings.Compare(a.name, b.name) })
	}
	delete(f.members, "v")
	delete(f.members, "s")
	return f, nil
}

// Encode is the state that holds the form. It is written by hand, because each save of a job writes
// all of it: encoding/json took half of a save's time.
func (f *Form) Encode() ([]byte, error) {
	const before, after = `{"s":`, `,"v":1}`
	size := len(before) + len(after) + 2
	for _, k := range f.steps {
		size += len(k.name) + len(k.raw) + 4
	}
	all := append(append(make([]byte, 0, size), before...), '{')
	for i, k := range f.steps {
		if i > 0 {
			all = append(all, ',')
		}
		all = append(append(appendName(all, k.name), ':'), k.raw...)
	}
	all = append(all, '}')
	if len(f.members) == 0 {
		return append(all, after...), nil
	}
	members := maps.Clone(f.members)
	members["v"], members["s"] = json.RawMessage("1"), all[len(before):]
	return json.Marshal(members)
}

// appendName writes a name as encoding/json does.
func appendName(dst []byte, name string) []byte {
	for i := range len(name) {
		if c := name[i]; c < ' ' || c >= utf8.RuneSelf || strings.IndexByte("\"\\<>&\x7f", c) >= 0 {
			quoted, _ := json.Marshal(name) // a string has no error
			return append(dst, quoted...)
		}
	}
	dst = append(append(dst, '"'), name...)
	return append(dst, '"')
}

// Get is the step of that name. ok reports whether there is one.
func (f *Form) Get(name string) (s Step, ok bool, err error) {
	i, ok := f.find(name)
	if !ok {
		return s, false, nil
	}
	s, err = f.steps[i].read()
	return s, true, err
}

// find is the place of the step of that name, or the one that it would have.
func (f *Form) find(name string) (i int, ok bool) {
	return slices.BinarySearchFunc(f.steps, name, func(k kept, name string) int { return strings.Compare(k.name, name) })
}

func (k *kept) read() (Step, error) {
	if k.known {
		return k.step, nil
	}
	var s Step // which json.Unmarshal moves to the heap
	if err := json.Unmarshal(k.raw, &s); err != nil {
		return Step{}, unreadable("the step %q cannot be read", k.name)
	}
	return s, nil
}

// With is the form with the step s under that name, in place of one that was there. s.Value is
// JSON.
func (f *Form) With(name string, s Step) (*Form, error) {
	if y := s.At.Year(); y < 0 || y > 9999 {
		return nil, fmt.Errorf("the clock says that it is the year %d", y)
	}
	n := &Form{members: f.members, steps: append(make([]kept, 0, len(f.steps)+1), f.steps...)}
	i, ok := n.find(name)
	if !ok {
		n.steps = slices.Insert(n.steps, i, kept{})
	}
	n.steps[i] = kept{name, s.raw(), s, true}
	return n, nil
}

// raw is the step as JSON.
func (s *Step) raw() []byte {
	b := strconv.AppendInt(append(make([]byte, 0, 64+len(s.Value)), `{"n":`...), int64(s.N), 10)
	b = append(s.At.AppendFormat(append(b, `,"at":"`...), time.RFC3339Nano), '"')
	if len(s.Value) > 0 {
		b = append(append(b, `,"v":`...), s.Value...)
	}
	if !s.Until.IsZero() {
		b = append(s.Until.AppendFormat(append(b, `,"until":"`...), time.RFC3339Nano), '"')
	}
	return append(b, '}')
}

// Last is the name of the step that was saved last; "" = there is none.
func (f *Form) Last() (name string) {
	last := 0
	for i := range f.steps {
		if s, err := f.steps[i].read(); err == nil && s.N > last {
			name, last = f.steps[i].name, s.N
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
	for i := range f.steps {
		s, err := f.steps[i].read()
		all = append(all, Entry{Step: s, Name: f.steps[i].name, Err: err})
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
