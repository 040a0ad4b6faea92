package dlq

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/digest"
	"github.com/onceq/onceq/internal/letter"
)

// This file owns how a letter looks to callers, and what makes two letters copies of each other.
// list.go makes the entries and walk.go the identities; callers of the package use the methods. All
// are values, and no lock is held.

// Entry is a letter as it was found.
type Entry struct {
	// Message is the letter. Message.Meta.Dead says why it is one, where anything does. Its Receipt
	// and its Deadline are empty, because only the call itself settles the letter.
	Message *broker.Message
	// Copies is how many more letters of the same failure were seen. Two things leave a copy: a
	// worker that dies between a letter and its ack, and a message that was sent twice.
	Copies int
	// Unsigned: the letter names a failure, and none of Options.LetterKeys has signed it. Its
	// replay cannot reopen that failure.
	Unsigned bool
}

// Class is the failure's class, or [Unexplained] where the letter does not say.
func (e Entry) Class() string { return classOf(e.Message) }

// At is when the job failed, or, where the letter does not say, when the broker took the letter.
func (e Entry) At() time.Time { return failedAt(e.Message) }

// Fingerprint is [Fingerprint] of the letter's class and last error: what [Filter].Group takes, and
// what [Group].Group is.
func (e Entry) Fingerprint() string { return groupOf(e.Message) }

// Record names the record of the letter's job in the worker's store. It is zero where the letter
// does not say, as a letter of an older version, or of the queue's own redrive.
func (e Entry) Record() RecordKey { return recordOf(e.Message.Meta) }

// Ref is the letter's name.
func (e Entry) Ref() Ref { return refOf(e.Message) }

// String is the letter in a line: when, which, and its last error. It is safe for a terminal, as
// [Printable] says.
func (e Entry) String() string {
	s := fmt.Sprintf("%s  %s", stamp(e.At()), e.Ref())
	if d := deadOf(e.Message.Meta); d != nil && d.LastErr != "" {
		s += ": " + line(d.LastErr)
	}
	if e.Copies > 0 {
		s += fmt.Sprintf(" (and %d more of it)", e.Copies)
	}
	if e.Unsigned {
		s += " (not signed)"
	}
	return s
}

// ShownBody is how many bytes of a body [Entry.Show] writes.
const ShownBody = 4096

// Show writes what is known of the letter, for people: one fact a line, and then the first
// [ShownBody] bytes of its body. Of a body that is not UTF-8 it writes only how long that is. The
// text is safe for a terminal, as [Printable] says. An error is w's.
func (e Entry) Show(w io.Writer) error {
	m := e.Message
	var b strings.Builder
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-12s %s\n", name, paragraph(text, "             "))
		}
	}
	row("key", keyOf(m.Meta))
	row("type", typeOf(m.Meta))
	row("class", e.Class())
	row("group", e.Fingerprint())
	if d := deadOf(m.Meta); d != nil {
		row("failed", stamp(d.At))
		row("attempts", strconv.Itoa(d.Attempts))
		if d.FirstErr != d.LastErr {
			row("first error", d.FirstErr)
		}
		row("last error", d.LastErr)
		row("last saved", d.Saved)
		row("source", d.Source)
		row("fence", strconv.FormatUint(d.Fence, 10))
		if e.Unsigned {
			row("signature", "none that fits: its replay reopens nothing")
		}
		for _, k := range slices.Sorted(maps.Keys(d.Attributes)) {
			row("attribute", k+" = "+d.Attributes[k])
		}
	}
	if m.MetaErr != nil {
		row("metadata", m.MetaErr.Error())
	}
	if m.Meta != nil {
		row("job", m.Meta.ID)
		row("correlation", m.Meta.CorrelationID)
		row("created", stamp(m.Meta.Created))
		row("expires", stamp(m.Meta.Expires))
	}
	row("ordered in", m.Group)
	for _, k := range slices.Sorted(maps.Keys(m.Attributes)) {
		row("attribute", k+" = "+m.Attributes[k])
	}
	row("message", m.ID)
	if e.Copies > 0 {
		row("copies", fmt.Sprintf("%d more", e.Copies))
	}
	if utf8.Valid(m.Body) {
		row("body", letter.Cut(string(m.Body), ShownBody))
	} else {
		row("body", fmt.Sprintf("%d bytes, not text", len(m.Body)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Ref names a letter, for people.
type Ref struct {
	MessageID                string
	Source, Type, Key, Class string
	Fence                    uint64 // 0 = nothing that a replay could reopen
	// Record names the record of the job; zero where the letter does not say.
	Record RecordKey
}

// String is the name in a few words, safe for a terminal.
func (r Ref) String() string {
	s := cmp.Or(r.Key, "message "+r.MessageID)
	if r.Type != "" {
		s = r.Type + " " + s
	}
	return Printable(s + " [" + r.Class + "]")
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// line is the first line of a text, cut at letter.TrimmedText bytes.
func line(s string) string {
	s, _, more := strings.Cut(s, "\n")
	switch {
	case len(s) > letter.TrimmedText:
		s = letter.Cut(s, letter.TrimmedText)
	case more:
		s += " …"
	}
	return Printable(s)
}

// identity tells failures apart. Letters with the same identity are copies of each other.
type identity [16]byte

// identityOf is made of four things: the job, the fence of its failure, the body and the
// attributes. The last two count because a worker's ProcessorConfig.Key may take its key from
// there. Jobs with one Meta.Key may then differ, and on some stores have equal fences. A copy too
// many does no harm, because the claim answers it. A job that is taken for a copy would be lost.
//
// Without a fence the job's id decides, which had better be the producer's own. So a letter that
// has neither a fence nor an id stands for itself, and so does one without Dead.
func identityOf(m *broker.Message) identity {
	d := deadOf(m.Meta)
	switch {
	case d == nil || d.Fence == 0 && m.Meta.ID == "":
		return identify("message", 0, m.ID)
	case d.Fence == 0:
		return identify("refused", 0, content(m.Attributes, m.Meta, d.Source, m.Meta.Type, m.Meta.Key, m.Meta.ID, string(m.Body))...)
	}
	return identify("failure", d.Fence, content(m.Attributes, m.Meta, d.Source, m.Meta.Type, keyOf(m.Meta), string(m.Body))...)
}

// content adds the user's attributes to parts, wherever a letter keeps them.
func content(attributes map[string]string, m *broker.Meta, parts ...string) []string {
	attributes = letter.Attributes(attributes, m)
	for _, k := range slices.Sorted(maps.Keys(attributes)) {
		parts = append(parts, k, attributes[k])
	}
	return parts
}

// identify makes an identity of its parts. No two lists of parts have the same one.
func identify(what string, n uint64, parts ...string) identity {
	b := digest.Texts(digest.Numbers(nil, n), what)
	return digest.Short(digest.Texts(b, parts...))
}

func (id identity) String() string { return hex.EncodeToString(id[:]) }
