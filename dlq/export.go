package dlq

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
)

// exported is a line of ExportJSON.
type exported struct {
	Message    string            `json:"message"`
	Published  *time.Time        `json:"published,omitempty"`
	Group      string            `json:"group,omitempty"`
	Body       *string           `json:"body,omitempty"`
	Base64     []byte            `json:"body_base64,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Meta       json.RawMessage   `json:"onceq,omitempty"`
	Unreadable string            `json:"error,omitempty"`
}

// ExportJSON returns an Export for [PurgeOptions] that writes each letter to w as a line of JSON.
// The line has these members, where the letter has them:
//
//   - message, published, group and attributes;
//   - body, or body_base64 where it is not UTF-8 text;
//   - onceq, which is all metadata, as [broker.EncodeMeta] writes it;
//   - error, which says why our metadata could not be read.
//
// A line is one Write. Where w is a regular file, the line is synced too, so that a letter is
// stored when it is removed. A writer with a buffer of its own defeats that.
//
// A full disk or a crash may leave a torn line. The export ends it before it writes the next one.
// It finds the torn line of an earlier run only if the file is open for reading too. If it is not,
// each run on a file that is not empty begins with an empty line.
func ExportJSON(w io.Writer) func(Entry) error {
	f, _ := w.(*os.File)
	torn := false // the line before has no end
	if f != nil {
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			f = nil // a terminal cannot be synced
		} else {
			torn = !endsLine(f, info.Size())
		}
	}
	return func(e Entry) error {
		m := e.Message
		x := exported{Message: m.ID, Group: m.Group, Attributes: m.Attributes}
		if !m.Published.IsZero() {
			at := m.Published.UTC()
			x.Published = &at
		}
		if utf8.Valid(m.Body) {
			body := string(m.Body)
			x.Body = &body
		} else {
			x.Base64 = m.Body
		}
		if m.Meta != nil {
			x.Meta = json.RawMessage(broker.EncodeMeta(m.Meta))
		}
		if m.MetaErr != nil {
			x.Unreadable = m.MetaErr.Error()
		}
		b, err := json.Marshal(&x)
		if err != nil {
			return err
		}
		b = append(b, '\n')
		if torn {
			b = slices.Insert(b, 0, '\n')
		}
		if n, err := w.Write(b); err != nil {
			torn = torn || n > 0
			return err
		}
		torn = false
		if f != nil {
			return f.Sync()
		}
		return nil
	}
}

func endsLine(f *os.File, size int64) bool {
	var last [1]byte
	if size > 0 {
		_, err := f.ReadAt(last[:], size-1)
		return err == nil && last[0] == '\n'
	}
	return true
}
