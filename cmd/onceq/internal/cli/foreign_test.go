package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
)

// refused is a letter whose reason no worker gives, and that has no fence.
const refused = "a reason of nobody"

// foreign puts letters that no worker of ours has written, and answers their bodies.
func (r *rig) foreign() (bodies []string) {
	r.Helper()
	big := strings.Repeat("0123456789abcdef", 1<<16-200) // SQS takes 1 MiB with attributes
	for _, m := range []broker.Outgoing{
		{Body: []byte("moved by the queue's own redrive")},
		{Body: []byte{0xff, 0, 0x1b, 0xfe, '\n'}},
		{Body: []byte("not \xff UTF-8 \xc3")},
		{Body: []byte("\x1b]52;c;aGk=\x07\u009b2J\u202egnp"), Attributes: map[string]string{"trace": "\x1b[2J", "empty": "-"}},
		{Body: []byte(big), Attributes: map[string]string{"size": fmt.Sprint(len(big))}},
		{Body: []byte(`{"a":1}`), Meta: &broker.Meta{ID: "j-1", Key: "with metadata and no reason"}},
		{Body: []byte("metadata of nobody"), Attributes: map[string]string{broker.MetaAttribute: `{"v":`}},
		{Body: []byte("metadata of a later version"), Attributes: map[string]string{broker.MetaAttribute: `{"v":9999}`}},
		{Body: []byte(refused), Meta: &broker.Meta{Key: "\u2028", Dead: &broker.Letter{Class: "\u2067x", LastErr: strings.Repeat("é", 2000), Attempts: -1}}},
	} {
		if _, err := r.dead.Send(r.Context(), []broker.Outgoing{m}); err != nil {
			r.Logf("%.30q is not taken: %v", m.Body, err)
			continue
		}
		bodies = append(bodies, string(m.Body))
	}
	slices.Sort(bodies)
	return bodies
}

// TestForeignLetters: letters without headers of ours, with bodies that are no text, and as large
// as the queue takes are shown, kept and sent back as they were.
func TestForeignLetters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	bodies := r.foreign()
	if len(bodies) < 7 {
		t.Fatalf("%d letters", len(bodies))
	}
	all := fmt.Sprintf("%d letters", len(bodies))
	kept := filepath.Join(t.TempDir(), "kept.ndjson")
	var letters []letterView
	r.run("dlq", "ls", "orders", "-o", "json").want(0).json(&letters)
	if len(letters) != len(bodies) {
		t.Errorf("%d of %d", len(letters), len(bodies))
	}
	var shown []string
	for _, l := range letters {
		if l.Body != nil {
			shown = append(shown, *l.Body)
		} else {
			shown = append(shown, string(l.Base64))
		}
	}
	if slices.Sort(shown); !slices.Equal(shown, bodies) {
		t.Error("bodies differ in JSON")
	}
	for _, a := range []*answer{
		r.run("dlq", "ls", "orders").want(0),
		r.run("dlq", "group", "orders").want(0, all),
		r.run("dlq", "show", "orders", letters[0].Message).want(0),
		r.run("dlq", "replay", "orders", "--dry-run").want(0),
		r.run("dlq", "export", "orders", "-f", kept).want(0, all+" exported"),
	} {
		text := a.out + a.err
		if strings.ContainsAny(text, "\x1b\x07\x00\u009b\u202e\u2067\u2028") {
			t.Errorf("%s: %.2000q", a.args, text)
		}
		for line := range strings.Lines(text) {
			if len(line) > 100_000 {
				t.Errorf("%s: a line of %d bytes", a.args, len(line))
			}
		}
	}
	b, err := os.ReadFile(kept)
	if err != nil || bytes.Count(b, []byte("\n")) != len(bodies) {
		t.Errorf("%d lines, %v", bytes.Count(b, []byte("\n")), err)
	}
	for line := range bytes.Lines(b) {
		if !json.Valid(line) {
			t.Errorf("%.200q", line)
		}
	}
	r.run("--yes", "dlq", "replay", "orders", "--max", "99", "--reason", "the redrive was a slip").want(0, fmt.Sprintf("%d sent", len(bodies)-1), "1 left: no claim was won for it (fence 0)")
	bodies = slices.DeleteFunc(bodies, func(s string) bool { return s == refused })
	var came []string
	for _, m := range r.receive(len(bodies)) {
		came = append(came, string(m.Body))
	}
	if slices.Sort(came); !slices.Equal(came, bodies) {
		for i := range came {
			t.Errorf("%.60q", came[i])
		}
	}
	r.depths(1, int64(len(bodies)))
}

// TestManyLargeLetters: letters of a quarter of a megabyte, more than one call brings.
func TestManyLargeLetters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 12
	body := bytes.Repeat([]byte("x"), 256<<10)
	for i := range n {
		k := fmt.Sprint("L-", i)
		m := broker.Outgoing{Body: body, Meta: &broker.Meta{ID: "j-" + k, Key: k, Type: "charge", Dead: &broker.Letter{
			Class: "timeout", LastErr: "no answer", Attempts: 1, Fence: uint64(i + 1), Source: "orders", Scope: "orders:charge", Key: k, At: time.Now().Add(-time.Minute),
		}}}
		if _, err := r.dead.Send(r.Context(), []broker.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
	}
	r.run("dlq", "group", "orders").want(0, "12 letters")
	r.run("--yes", "dlq", "replay", "orders", "--max", "99", "--rate", "1e300", "--reason", "x").want(0, "12 sent")
	r.depths(0, n)
}
