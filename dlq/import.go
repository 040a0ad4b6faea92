package dlq

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/onceq/onceq/broker"
)

// This file owns the way back of what an export wrote. Tools call ImportJSON and send what it
// yields. Nothing is kept, and no lock is held.

// maxImported is more than a line of any queue's message: a body of 1 MiB in base64, or escaped.
const maxImported = 16 << 20

// ImportJSON reads the lines that [ExportJSON] wrote, and yields each as the message that it was:
// with its body, attributes, group and all metadata, so also with the same id, key, fence and
// signature. Send it to the queue that it came from. That does no harm if it was done before,
// because of each failure and of each key one runs.
//
// A message that stands in the file twice is yielded once. A line that is torn, or is none of
// ours, is yielded as an error that names it, and the reading goes on. An error of r, or a line of
// more than 16 MB, is the last one. Two lines of a file that was edited may name one message; only
// the first of them counts.
func ImportJSON(r io.Reader) iter.Seq2[broker.Outgoing, error] {
	return func(yield func(broker.Outgoing, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxImported)
		seen := make(map[string]bool)
		n := 1
		for ; lines.Scan(); n++ {
			text := bytes.TrimSpace(lines.Bytes())
			if len(text) == 0 {
				continue
			}
			out, name, err := imported(text)
			if err != nil {
				err = fmt.Errorf("dlq: line %d: %w", n, err)
			} else if name != "" && seen[name] {
				continue
			}
			seen[name] = true
			if !yield(out, err) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(broker.Outgoing{}, fmt.Errorf("dlq: line %d: %w", n, err))
		}
	}
}

var errNoLine = errors.New("it is torn, or no line of an export")

// importing is what counts of a line. A line of a live queue's message names it by id.
type importing struct {
	Message    string            `json:"message"`
	ID         string            `json:"id"`
	Group      string            `json:"group"`
	Body       *string           `json:"body"`
	Base64     []byte            `json:"body_base64"`
	Attributes map[string]string `json:"attributes"`
	Meta       json.RawMessage   `json:"onceq"`
}

// imported is the message of a line, and its name.
func imported(text []byte) (out broker.Outgoing, name string, err error) {
	var x importing
	if err := json.Unmarshal(text, &x); err != nil || x.Body == nil && x.Base64 == nil {
		return out, "", errNoLine
	}
	name = cmp.Or(x.Message, x.ID)
	out = broker.Outgoing{Body: x.Base64, Attributes: x.Attributes, Group: x.Group}
	if x.Body != nil {
		out.Body = []byte(*x.Body)
	}
	if len(x.Meta) > 0 {
		if out.Meta, err = broker.DecodeMeta(string(x.Meta)); err != nil {
			return out, "", err
		}
	}
	// A FIFO queue swallows the second one of an import that is run again within five minutes.
	out.DedupID = identify("import", 0, name, string(out.Body), broker.EncodeMeta(out.Meta)).String()
	return out, name, nil
}
