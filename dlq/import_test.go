package dlq_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// What an export wrote comes back as it was, whatever it is: signed, without our metadata, with
// metadata that nobody could read, not text, in a group.
func TestImportJSON(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		o := &dlq.Options{Name: "orders-dead", LetterKeys: dlq.Keys{bytes.Repeat([]byte("k"), dlq.MinSigningKey)}}
		r.dlq = open(t, r.dead, o)
		signed := letterOf("signed", 7, record("payments:charge"), func(l *broker.Outgoing) { l.Meta.Expires = time.Now().Add(time.Hour) })
		o.LetterKeys.Sign(&signed)
		r.put(signed, letterOf("bytes", 8, func(l *broker.Outgoing) { l.Body = []byte{0xff, 0} }), letterOf("empty", 9, func(l *broker.Outgoing) { l.Body = []byte(" ") }),
			letterOf("bare", 0, noMeta, func(l *broker.Outgoing) { l.Attributes = map[string]string{"tenant": "t"} }))
		before := map[string]dlq.Entry{}
		var file bytes.Buffer
		export := dlq.ExportJSON(&file)
		rep, err := r.dlq.Purge(context.Background(), dlq.PurgeOptions{All: true, Export: func(e dlq.Entry) error {
			before[string(e.Message.Body)] = e
			return export(e)
		}})
		if err != nil || rep.Purged != 4 {
			t.Fatal(rep, err)
		}
		for range 2 {
			for m, err := range dlq.ImportJSON(bytes.NewReader(file.Bytes())) {
				if err != nil {
					t.Fatal(err)
				}
				r.put(m)
			}
		}
		after, err := r.list(dlq.Filter{})
		if err != nil || len(after) < 4 {
			t.Fatal(after, err)
		}
		for _, e := range after {
			b := before[string(e.Message.Body)]
			if b.Message == nil || broker.EncodeMeta(e.Message.Meta) != broker.EncodeMeta(b.Message.Meta) || e.Message.Group != b.Message.Group ||
				e.Message.Attributes["tenant"] != b.Message.Attributes["tenant"] || e.Unsigned != b.Unsigned {
				t.Errorf("%+v, was %+v", e, b)
			}
		}
	})
}

// Lines that are none of ours are named, and the reading goes on; an error of the reader ends it.
func TestImportJSONOfOddFiles(t *testing.T) {
	const good = `{"message":"m-1","body":"x"}`
	for _, c := range []struct {
		in   string
		n    int
		errs string
	}{
		{"", 0, ""},
		{"\n\n" + good + "\n\n" + good, 1, ""},
		{good[:9] + "\n" + good, 1, "line 1: it is torn"},
		{good + "\n[]\nnull\n{}\n7", 1, "line 2: it is torn\nline 3: it is torn\nline 4: it is torn\nline 5: it is torn"},
		{`{"body":"x"}` + "\n" + `{"body":"x"}`, 2, ""},
		{`{"id":"m-1","body":"x","published":"yesterday"}` + "\n" + good, 1, ""},
		{`{"message":"m-2","body":"x","onceq":{"v":"?"}}` + "\n" + good, 1, "line 1: "},
	} {
		n := 0
		var errs []string
		for _, err := range dlq.ImportJSON(strings.NewReader(c.in)) {
			if err != nil {
				errs = append(errs, err.Error())
				continue
			}
			n++
		}
		want := strings.Split(c.errs, "\n")
		if n != c.n || c.errs != "" && len(errs) != len(want) || c.errs == "" && len(errs) > 0 {
			t.Errorf("%q: %d messages, %q", c.in, n, errs)
			continue
		}
		for i, e := range errs {
			if !strings.Contains(e, want[i]) {
				t.Errorf("%q: %q, want %q", c.in, e, want[i])
			}
		}
	}
	last := error(nil)
	for _, err := range dlq.ImportJSON(iotest.ErrReader(errFault)) {
		last = err
	}
	if !errors.Is(last, errFault) {
		t.Error(last)
	}
}
