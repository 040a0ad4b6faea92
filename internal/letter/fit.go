package letter

import (
	"fmt"
	"maps"

	"github.com/onceq/onceq/broker"
)

// Fit is how far a letter is cut down to what a dead-letter queue takes. A letter is never dropped
// because it does not fit.
type Fit int

// The fits, from the whole letter to the message alone.
const (
	Whole   Fit = iota // everything
	Trimmed            // error texts cut to TrimmedText bytes
	Folded             // as Trimmed, with the user's attributes inside the metadata, which is one attribute
	Bare               // as it was received, without our metadata: its replay cannot reopen the failure
	Fits               // how many fits there are
)

// TrimmedText is how many bytes of an error's text a Trimmed letter keeps.
const TrimmedText = 120

// FitFor is the first fit worth trying, by the number of attributes that the queue takes.
func FitFor(m *broker.Message, l broker.Limits) Fit {
	if l.MaxAttributes > 0 && len(m.Attributes) >= l.MaxAttributes {
		return Folded
	}
	return Whole
}

// Shrink cuts a letter down to the fit f. It reports false where that changes nothing: the letter
// has no metadata of ours, or f would take it away, which only Make does.
func Shrink(out *broker.Outgoing, f Fit) bool {
	if out.Meta == nil || out.Meta.Dead == nil || f >= Bare {
		return false
	}
	d := out.Meta.Dead
	if f >= Trimmed {
		d.FirstErr, d.LastErr = Cut(d.FirstErr, TrimmedText), Cut(d.LastErr, TrimmedText)
	}
	if f >= Folded {
		d.Attributes, out.Attributes = Attributes(out.Attributes, out.Meta), nil
	}
	return true
}

// IsFolded reports whether metadata holds attributes of the user's.
func IsFolded(m *broker.Meta) bool { return m != nil && m.Dead != nil && len(m.Dead.Attributes) > 0 }

// Attributes are the user's attributes of a message, wherever it keeps them: beside its metadata m,
// or folded into it. Those beside win. The answer may be the given map, so nobody may change it.
func Attributes(beside map[string]string, m *broker.Meta) map[string]string {
	if !IsFolded(m) {
		return beside
	}
	all := maps.Clone(m.Dead.Attributes)
	maps.Copy(all, beside)
	return all
}

// Cut cuts a text that is longer than n bytes, at a rune's border, and says how long it was.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:n], len(s))
}
