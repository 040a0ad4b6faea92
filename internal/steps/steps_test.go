package steps

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// frozen is a state as version 1 has always written it.
const frozen = `{"s":{"charge":{"n":1,"at":"2026-01-02T03:04:05Z","v":"ch_1"},` +
	`"trial":{"n":2,"at":"2026-01-02T03:04:06.007Z","until":"2026-02-11T03:04:06Z"}},"v":1}`

// The form is frozen: what is written today is read for ever, and written again as it was.
func TestFrozenForm(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f, err := Decode(nil)
	if err == nil {
		f, err = f.With("charge", Step{N: 1, At: at, Value: json.RawMessage(`"ch_1"`)})
	}
	if err == nil {
		f, err = f.With("trial", Step{N: 2, At: at.Add(1007 * time.Millisecond), Until: time.Date(2026, 2, 11, 3, 4, 6, 0, time.UTC)})
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Encode()
	if err != nil || string(got) != frozen {
		t.Errorf("written as\n%s, %v; want\n%s", got, err, frozen)
	}
	if again := encoded(t, decoded(t, frozen)); again != frozen {
		t.Errorf("read and written as\n%s, want\n%s", again, frozen)
	}
}

// What a later program of version 1 has added is kept: beside the steps, in a step, and of a kind
// that this one does not know.
func TestUnknownMembersAreKept(t *testing.T) {
	const state = `{"s":{"charge":{"n":1,"at":"2026-01-02T03:04:05Z","v":1,"by":"w1"},"odd":[1]},"v":1,"x":{"y":[null]}}`
	f := decoded(t, state)
	if got := encoded(t, f); got != state {
		t.Errorf("written as\n%s, want\n%s", got, state)
	}
	more, err := f.With("mail", Step{N: 2})
	if err != nil {
		t.Fatal(err)
	}
	got := encoded(t, more)
	for _, want := range []string{`"by":"w1"`, `"odd":[1]`, `"x":{"y":[null]}`, `"mail":{"n":2`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	if _, ok, err := f.Get("odd"); !ok || !errors.Is(err, ErrUnreadable) {
		t.Errorf("a step of an unknown kind is answered %v, %v", ok, err)
	}
	if encoded(t, f) != state {
		t.Error("With has changed what it was called on")
	}
}

// Each state that cannot be used is refused with what is wrong with it.
func TestUnreadable(t *testing.T) {
	for name, c := range map[string]struct{ state, want string }{
		"another library's": {`{"step":3}`, "something else has written it"},
		"no JSON":           {"\x00\x01", "something else has written it"},
		"null":              {"null", "something else has written it"},
		"a list":            {`[1]`, "something else has written it"},
		"no version":        {`{"s":{}}`, "something else has written it"},
		"version 0":         {`{"v":0,"s":{}}`, "something else has written it"},
		"half a version":    {`{"v":1.5}`, "something else has written it"},
		"a later version":   {`{"v":2,"s":{"charge":{}}}`, "its form is 2, and this one knows up to 1"},
		"steps of a kind":   {`{"v":1,"s":[]}`, "its steps cannot be read"},
		"steps are null":    {`{"v":1,"s":null}`, "its steps cannot be read"},
		"two values":        {`{"v":1}{"v":1}`, "something else has written it"},
		"cut short":         {frozen[:len(frozen)/2], "something else has written it"},
	} {
		f, err := Decode([]byte(c.state))
		if f != nil || !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for n := 1; n < len(frozen); n++ {
		if _, err := Decode([]byte(frozen[:n])); err == nil {
			t.Errorf("%q, cut at %d, is read", frozen[:n], n)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, want := range map[string]string{
		"": "the name is empty", "a\xff": "not valid UTF-8", strings.Repeat("x", MaxName+1): "the limit is 128",
		strings.Repeat("x", MaxName): "", "call/3": "", "Übung 1": "",
	} {
		if err := CheckName(name); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

// FuzzState: no bytes make Decode panic; what it takes is written and read as the same; a step that
// is added leaves all others, and what nobody knows, as they were.
func FuzzState(f *testing.F) {
	for _, s := range []string{
		"", "{}", "null", "[]", "\x00", frozen, frozen[:40], `{"v":2}`, `{"v":1}`, `{"v":1,"s":null}`, `{"v":1,"s":{"a":null}}`,
		`{"v":1,"s":{"a":{"n":-1}},"x":1}`, `{"v":1e0,"V":2,"S":{},"s":{"a":{"n":9007199254740993}}}`, `{"v":1,"v":2}`,
		`{"v":1,"s":{"\ud800":{"n":1}}}`, `{"v":1,"s":{"a":{"n":1,"at":"never"}}}`, `{"v":1,"s":{"a":{"n":1,"v":{"<&>":"\u2028"}}}}`,
	} {
		f.Add([]byte(s), "mail", []byte(`"m_1"`))
	}
	f.Fuzz(func(t *testing.T, state []byte, name string, value []byte) {
		form, err := Decode(state)
		if err != nil {
			if form != nil || !errors.Is(err, ErrUnreadable) || !utf8.ValidString(err.Error()) {
				t.Fatalf("%q: %v, %v", state, form, err)
			}
			return
		}
		last, n := form.Last(), form.Len()
		once := encoded(t, form)
		again := decoded(t, once)
		if got := encoded(t, again); got != once || again.Last() != last || again.Len() != n {
			t.Fatalf("%q: written as %q, then as %q; %d steps, the last %q, then %d, %q", state, once, got, n, last, again.Len(), again.Last())
		}
		if CheckName(name) != nil || !json.Valid(value) {
			return
		}
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		more, err := form.With(name, Step{N: 1 << 40, At: at, Value: value})
		if err != nil {
			t.Fatalf("%q under %q: %v", value, name, err)
		}
		read := decoded(t, encoded(t, more))
		s, ok, err := read.Get(name)
		var want bytes.Buffer
		if json.Compact(&want, value) != nil || !ok || err != nil || s.N != 1<<40 || !s.At.Equal(at) || !sameJSON(s.Value, want.Bytes()) {
			t.Fatalf("%q under %q came back as %+v, %v, %v", value, name, s, ok, err)
		}
		others := func(f *Form) []kept {
			return slices.DeleteFunc(slices.Clone(f.steps), func(k kept) bool { return k.name == name })
		}
		same := func(a, b kept) bool { return a.name == b.name && bytes.Equal(a.raw, b.raw) }
		if !slices.EqualFunc(others(read), others(again), same) || !maps.EqualFunc(read.members, again.members, slices.Equal[json.RawMessage]) {
			t.Fatalf("%q: the other steps were %q beside %q, and are %q beside %q", state, encoded(t, again), again.members, encoded(t, read), read.members)
		}
		if encoded(t, form) != once {
			t.Fatalf("%q: With has changed what it was called on", state)
		}
	})
}

// Programs of both kinds write in turn, and each keeps what the other has written.
func TestOldAndNewInTurn(t *testing.T) {
	const newer = `{"s":{"charge":{"n":1,"at":"2026-01-02T03:04:05Z","v":1,"cost":7}},"undo":["charge"],"v":1}`
	old, err := decoded(t, newer).With("mail", Step{N: 2, Value: json.RawMessage("2")})
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Undo []string
		S    map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(encoded(t, old)), &all); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(all.Undo, []string{"charge"}) || all.S["charge"]["cost"] != 7.0 || all.S["mail"]["v"] != 2.0 || len(all.S) != 2 {
		t.Errorf("it has become %+v", all)
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && string(must(x)) == string(must(y))
}

func must(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

func decoded(t *testing.T, state string) *Form {
	t.Helper()
	f, err := Decode([]byte(state))
	if err != nil {
		t.Fatalf("%q: %v", state, err)
	}
	return f
}

func encoded(t *testing.T, f *Form) string {
	t.Helper()
	b, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
