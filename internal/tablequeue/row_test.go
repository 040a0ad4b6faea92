package tablequeue

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
)

// TestRow: what a producer of plain SQL may have written comes as a message, and what cannot be
// read says so in MetaErr, with the message as it was.
func TestRow(t *testing.T) {
	meta := broker.EncodeMeta(&broker.Meta{ID: "job-7", Key: "order-7"})
	for name, c := range map[string]struct {
		meta, attributes, body string
		want                   map[string]string
		id, wantBody           string
		bad                    bool
	}{
		"plain":                    {"", "", "x", nil, "", "x", false},
		"empty attributes":         {"", "{}", "x", nil, "", "x", false},
		"no attributes":            {"", "null", "x", nil, "", "x", false},
		"attributes":               {"", `{"a":"1"}`, "x", map[string]string{"a": "1"}, "", "x", false},
		"other values":             {"", `{"a":1,"b":null,"c":{"d":[2]},"e":"5"}`, "x", map[string]string{"a": "1", "b": "", "c": `{"d":[2]}`, "e": "5"}, "", "x", false},
		"an array":                 {"", `["a"]`, "x", nil, "", "x", true},
		"no JSON":                  {"", `{`, "x", nil, "", "x", true},
		"metadata":                 {meta, `{"a":"1"}`, "x", map[string]string{"a": "1"}, "job-7", "x", false},
		"metadata beside":          {"", `{"` + broker.MetaAttribute + `":` + quoted(meta) + `}`, "x", nil, "job-7", "x", false},
		"metadata that is none":    {"nonsense", `{"a":"1"}`, "x", map[string]string{"a": "1", broker.MetaAttribute: "nonsense"}, "", "x", true},
		"none beside that is none": {"", `{"` + broker.MetaAttribute + `":"nonsense"}`, "x", map[string]string{broker.MetaAttribute: "nonsense"}, "", "x", true},
	} {
		w := Row{Seq: 7, Attempts: 2, Published: time.Unix(1, 0), Body: []byte(c.body)}
		if c.meta != "" {
			w.Meta = &c.meta
		}
		if c.attributes != "" {
			w.Attributes = &c.attributes
		}
		m, r := w.Message()
		if r != (Receipt{7, 2, false}) || m.ID != "7" || m.Attempt != 2 || m.Published.Location() != time.UTC {
			t.Errorf("%s: %v, %+v", name, r, m)
		}
		if errors.Is(m.MetaErr, broker.ErrBadMeta) != c.bad || !maps.Equal(m.Attributes, c.want) || string(m.Body) != c.wantBody {
			t.Errorf("%s: %v, %v, %q", name, m.MetaErr, m.Attributes, m.Body)
		}
		if (m.Meta != nil) != (c.id != "") || m.Meta != nil && m.Meta.ID != c.id {
			t.Errorf("%s: the metadata is %+v", name, m.Meta)
		}
	}
}

func quoted(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }

// TestWakes: however many receives wait, they share the looks at an empty table; a wake lets one of
// them look at once, and is not lost with one that ends.
func TestWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, closing := NewWakes(), NewClosing()
		const poll = time.Second
		looks := 0
		for begun := time.Now(); time.Since(begun) < 10*time.Second; {
			for range 50 {
				if w.Turn(poll) {
					looks++
				}
			}
			w.Wait(t.Context(), closing.C(), w.UntilTurn(poll))
		}
		if looks != 10 {
			t.Errorf("%d looks in ten seconds", looks)
		}
		w.Turn(poll)
		w.Expect(time.Now().Add(300 * time.Millisecond))
		if d := w.UntilTurn(poll); d != 300*time.Millisecond {
			t.Errorf("what is expected is looked for after %v", d)
		}
		w.Wake()
		if d := w.UntilTurn(poll); d != 0 {
			t.Errorf("a wake lets nobody look for %v", d)
		}
		closing.Close()
		closing.Close()
		w.Wait(t.Context(), closing.C(), poll) // takes the wake or sees the end, and loses neither
		begun := time.Now()
		w.Wait(t.Context(), nil, poll)
		if took := time.Since(begun); took != 0 || !closing.IsClosed() {
			t.Errorf("the wake of a receive that ended came to nobody for %v", took)
		}
	})
}
