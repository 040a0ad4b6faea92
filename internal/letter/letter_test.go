package letter_test

import (
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/letter/lettertest"
)

func TestLetter(t *testing.T) {
	whole := func(change func(m *broker.Meta)) *broker.Meta {
		m, d := lettertest.Message().Meta, lettertest.Dead()
		m.Dead = &d
		if change != nil {
			change(m)
		}
		return m
	}
	made := func(change func(d *broker.Letter)) *broker.Meta {
		d := lettertest.Dead()
		if change != nil {
			change(&d)
		}
		return &broker.Meta{ID: "m-1", Key: "order-7", Created: lettertest.Published, Dead: &d}
	}
	users := lettertest.Message().Attributes
	moved := maps.Clone(users)
	moved[letter.UnreadableAttribute] = `{"v":0}`

	for _, c := range []struct {
		name       string
		m          *broker.Message
		fit        letter.Fit
		meta       *broker.Meta
		attributes map[string]string
	}{
		{"whole", lettertest.Message(), letter.Whole, whole(nil), users},
		{"trimmed, with short texts", lettertest.Message(), letter.Trimmed, whole(nil), users},
		{"folded", lettertest.Message(), letter.Folded, whole(func(m *broker.Meta) { m.Dead.Attributes = users }), nil},
		{"bare", lettertest.Message(), letter.Bare, nil, users},
		{"beyond bare", lettertest.Message(), letter.Fits, nil, users},
		{"foreign", lettertest.Foreign(), letter.Whole, made(nil), users},
		{"foreign, folded", lettertest.Foreign(), letter.Folded, made(func(d *broker.Letter) { d.Attributes = users }), nil},
		{"foreign, bare", lettertest.Foreign(), letter.Bare, nil, users},
		{"unreadable", lettertest.Unreadable(), letter.Whole, made(nil), moved},
		{"unreadable, folded", lettertest.Unreadable(), letter.Folded, made(func(d *broker.Letter) { d.Attributes = moved }), nil},
		{"unreadable, bare", lettertest.Unreadable(), letter.Bare, nil, lettertest.Unreadable().Attributes},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := *c.m
			before.Meta, before.Attributes = c.m.Meta.Clone(), maps.Clone(c.m.Attributes)
			out := letter.Make(c.m, lettertest.Key(), lettertest.Dead(), c.fit)
			if !reflect.DeepEqual(out.Meta, c.meta) {
				t.Errorf("metadata\n%s, want\n%s", broker.EncodeMeta(out.Meta), broker.EncodeMeta(c.meta))
			}
			if !maps.Equal(out.Attributes, c.attributes) {
				t.Errorf("attributes %v, want %v", out.Attributes, c.attributes)
			}
			if string(out.Body) != "995 cents" || out.Group != "acme" || out.Delay != 0 {
				t.Errorf("body %q, group %q, delay %v", out.Body, out.Group, out.Delay)
			}
			if !reflect.DeepEqual(*c.m, before) {
				t.Errorf("the message was changed to %+v", c.m)
			}
		})
	}
}

// A replay takes an id for the key where there is none. The broker's id of the message would be
// another one after a redrive.
func TestForeignWithoutAKey(t *testing.T) {
	for key, id := range map[string]string{"": "", "order-7": "m-1"} {
		out := letter.Make(lettertest.Foreign(), letter.Key{Scope: "payments", Key: key}, lettertest.Dead(), letter.Whole)
		if out.Meta.Key != key || out.Meta.ID != id {
			t.Errorf("key %q: the letter has the key %q and the id %q, want the id %q", key, out.Meta.Key, out.Meta.ID, id)
		}
	}
}

// A message of which the metadata was readable and some other part was not has no attribute to
// move.
func TestUnreadableWithoutTheAttribute(t *testing.T) {
	m := lettertest.Unreadable()
	delete(m.Attributes, broker.MetaAttribute)
	out := letter.Make(m, lettertest.Key(), lettertest.Dead(), letter.Whole)
	if !maps.Equal(out.Attributes, lettertest.Message().Attributes) || out.Meta.Key != "order-7" {
		t.Errorf("attributes %v, metadata %+v", out.Attributes, out.Meta)
	}
}

// A folded letter that somebody moved back as it was, and that failed again, keeps the attributes
// inside it.
func TestLetterOfALetter(t *testing.T) {
	old := lettertest.Dead()
	old.Fence, old.LastErr = 7, "old"
	old.Attributes = map[string]string{"tenant": "other", "inside": "1"}
	for _, c := range []struct {
		fit           letter.Fit
		outer, inside map[string]string
	}{
		{letter.Whole, lettertest.Message().Attributes, old.Attributes},
		{letter.Trimmed, lettertest.Message().Attributes, old.Attributes},
		{letter.Folded, nil, map[string]string{"tenant": "acme", "traceparent": "00-1-2-01", "inside": "1"}},
	} {
		m := lettertest.Message()
		m.Meta.Dead = &old
		out := letter.Make(m, lettertest.Key(), lettertest.Dead(), c.fit)
		if d := out.Meta.Dead; d.Fence != 41 || d.LastErr != "last" || !maps.Equal(d.Attributes, c.inside) {
			t.Errorf("fit %d: %+v, want the attributes %v", c.fit, d, c.inside)
		}
		if !maps.Equal(out.Attributes, c.outer) {
			t.Errorf("fit %d: outer attributes %v, want %v", c.fit, out.Attributes, c.outer)
		}
		if m.Meta.Dead.Fence != 7 || len(m.Meta.Dead.Attributes) != 2 {
			t.Errorf("fit %d: the message was changed to %+v", c.fit, m.Meta.Dead)
		}
	}
}

func TestFitFor(t *testing.T) {
	for _, c := range []struct {
		attributes, most int
		want             letter.Fit
	}{
		{0, 0, letter.Whole},
		{1000, 0, letter.Whole}, // no limit
		{0, 1, letter.Whole},
		{1, 1, letter.Folded},
		{9, 10, letter.Whole},
		{10, 10, letter.Folded},
		{11, 10, letter.Folded},
	} {
		m := &broker.Message{Attributes: make(map[string]string)}
		for i := range c.attributes {
			m.Attributes[strconv.Itoa(i)] = ""
		}
		got := letter.FitFor(m, broker.Limits{MaxAttributes: c.most})
		if got != c.want {
			t.Errorf("%d attributes where %d fit: fit %d, want %d", c.attributes, c.most, got, c.want)
		}
		n := len(letter.Make(m, lettertest.Key(), lettertest.Dead(), got).Attributes) + 1
		if c.most > 0 && n > c.most {
			t.Errorf("%d attributes where %d fit: the letter has %d", c.attributes, c.most, n)
		}
	}
	m := lettertest.Unreadable()
	if got := letter.FitFor(m, broker.Limits{MaxAttributes: len(m.Attributes) + 1}); got != letter.Whole {
		t.Errorf("unreadable metadata counted twice: fit %d", got)
	}
}

func TestTrim(t *testing.T) {
	long := strings.Repeat("x", letter.TrimmedText)
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{long, long},
		{long + "y", long + "… (121 bytes)"},
		{long[1:] + "é", long[1:] + "… (121 bytes)"}, // no half of a rune
		{long[2:] + "é!", long[2:] + "é… (121 bytes)"},
		{strings.Repeat("€", 1000), strings.Repeat("€", 40) + "… (3000 bytes)"},
	} {
		d := lettertest.Dead()
		d.FirstErr, d.LastErr = c.in, c.in
		got := letter.Make(lettertest.Message(), lettertest.Key(), d, letter.Trimmed).Meta.Dead
		if got.FirstErr != c.want || got.LastErr != c.want || !utf8.ValidString(got.LastErr) {
			t.Errorf("%.20q… became %q and %q, want %q", c.in, got.FirstErr, got.LastErr, c.want)
		}
		if whole := letter.Make(lettertest.Message(), lettertest.Key(), d, letter.Whole).Meta.Dead; whole.LastErr != c.in {
			t.Errorf("%.20q… was cut in a whole letter", c.in)
		}
	}
}

// The ids never change: a worker of another version may put the same letter again.
func TestDedupID(t *testing.T) {
	ids := make(map[string]string)
	for _, c := range []struct {
		name  string
		key   letter.Key
		fence uint64
		id    string
		want  string
	}{
		{"plain", lettertest.Key(), 41, "m-1", "24ab6897eea698b60b599d9f8d8f84b5"},
		{"another claim", lettertest.Key(), 42, "m-1", "46005bd5496cc5d96964a666f3a7bf65"},
		{"another key", letter.Key{Scope: "payments", Key: "order-8"}, 41, "m-1", "8a3ee0b484a59e584b9b6c1610fc4643"},
		{"another scope", letter.Key{Scope: "mails", Key: "order-7"}, 41, "m-1", "831920584be7c3d104a5739660ba1d9e"},
		{"the border between scope and key", letter.Key{Scope: "paymentsorder", Key: "-7"}, 41, "m-1", "9a6be1768d6d02bdd2255bbf20be2b70"},
		{"no claim", lettertest.Key(), 0, "m-1", "429bacf0f45b5ef382023a61708603f1"},
		{"no claim, another message", lettertest.Key(), 0, "m-2", "3eb77a434798cccfa875c12d21cd0630"},
		{"no key", letter.Key{}, 0, "m-1", "cca8180f92434997cfcea885354d8a9a"},
	} {
		m := lettertest.Message()
		m.ID = c.id
		d := lettertest.Dead()
		d.Fence = c.fence
		for _, fit := range []letter.Fit{letter.Whole, letter.Trimmed, letter.Folded} {
			if got := letter.Make(m, c.key, d, fit).DedupID; got != c.want {
				t.Errorf("%s, fit %d: %s, want %s", c.name, fit, got, c.want)
			}
		}
		if other, taken := ids[c.want]; taken {
			t.Errorf("%s and %s have one id", c.name, other)
		}
		ids[c.want] = c.name
	}
	again := lettertest.Message()
	again.ID, again.Receipt, again.Attempt = "m-2", "r-2", 9
	id := func(m *broker.Message, f letter.Fit) string {
		return letter.Make(m, lettertest.Key(), lettertest.Dead(), f).DedupID
	}
	if id(lettertest.Message(), letter.Whole) != id(again, letter.Whole) {
		t.Error("two letters of one failure have different ids")
	}
}

// A bare letter that is moved back at once finds its failure, without a fence to reopen it, and
// becomes a letter again. Under the id that it had, a FIFO queue would swallow it.
func TestDedupIDOfBareLetters(t *testing.T) {
	moved := lettertest.Message()
	moved.ID = "m-2"
	id := func(m *broker.Message) string {
		return letter.Make(m, lettertest.Key(), lettertest.Dead(), letter.Bare).DedupID
	}
	if got, want := id(lettertest.Message()), "2f9a919a5e4c02508f7eb4d4c04857a1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if id(moved) == id(lettertest.Message()) {
		t.Error("a bare letter and its own letter have one id")
	}
}

// A letter does not carry a user's attribute with the name of ours.
func TestLetterDropsHiddenMetadata(t *testing.T) {
	for f := range letter.Fits {
		for _, m := range []*broker.Message{lettertest.Message(), lettertest.Foreign(), lettertest.Unreadable()} {
			m.Attributes[letter.UnreadableAttribute] = "hidden"
			out := letter.Make(m, lettertest.Key(), lettertest.Dead(), f)
			inside := map[string]string{}
			if out.Meta != nil {
				inside = out.Meta.Dead.Attributes
			}
			if out.Attributes[letter.UnreadableAttribute] == "hidden" || inside[letter.UnreadableAttribute] == "hidden" {
				t.Errorf("fit %d: %+v", f, out)
			}
		}
	}
}
