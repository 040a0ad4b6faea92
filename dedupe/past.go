package dedupe

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// This file owns the history in a record: what an earlier attempt leaves, and the one form in which
// all stores keep it. Package machine appends, stores write and read. It keeps nothing and locks
// nothing.

// Bounds of a record's Past, and of the texts of an [Attempt] in bytes.
const (
	MaxPast      = 16   // attempts: the first one and the 15 newest
	MaxPastBytes = 1024 // of [EncodePast]
	maxOwnerText = 64   // also of Class
	maxErrText   = 60
)

// pastVersion is the first byte of an encoded Past. Who does not know it reads none.
const pastVersion = 1

// The flags of an encoded attempt; its End is in the three lowest bits.
const (
	endBits   = 7
	reopened  = 1 << 3
	sameOwner = 1 << 4 // as the attempt before it
	sameClass = 1 << 5
	hasErr    = 1 << 6
)

// EncodePast is past as stores keep it: at most [MaxPastBytes] bytes, whatever it holds, and nil
// where it is empty. What is beyond the bounds is cut or left out, as [Attempt] says.
func EncodePast(past []Attempt) []byte {
	if len(past) == 0 {
		return nil
	}
	kept := make([]Attempt, 0, min(len(past), MaxPast))
	kept = append(kept, past[0])
	kept = append(kept, past[max(1, len(past)-MaxPast+1):]...)
	for i := range kept {
		a := &kept[i]
		a.Owner, a.Class, a.Err = cut(a.Owner, maxOwnerText), cut(a.Class, maxOwnerText), cut(a.Err, maxErrText)
	}
	for {
		b := appendPast(make([]byte, 0, 256), kept)
		if len(b) <= MaxPastBytes {
			return b
		}
		kept = shorten(kept)
	}
}

// shorten takes out what can best be spared: a text of the middle, one of the ends, an attempt of
// the middle. Two attempts always fit.
func shorten(past []Attempt) []Attempt {
	last := len(past) - 1
	for i := 1; i < last; i++ {
		if past[i].Err != "" {
			past[i].Err = ""
			return past
		}
	}
	for _, i := range [...]int{0, last} {
		if past[i].Err != "" {
			past[i].Err = ""
			return past
		}
	}
	return slices.Delete(past, 1, 2)
}

func appendPast(b []byte, past []Attempt) []byte {
	b = append(b, pastVersion)
	var before Attempt
	clock := int64(0)
	for i := range past {
		a := &past[i]
		flags := byte(a.End) & endBits
		if a.Reopened {
			flags |= reopened
		}
		if a.Owner == before.Owner {
			flags |= sameOwner
		}
		if a.Class == before.Class {
			flags |= sameClass
		}
		if a.Err != "" {
			flags |= hasErr
		}
		b = append(b, flags)
		b = binary.AppendUvarint(b, uint64(max(0, a.Number)))
		b = binary.AppendVarint(b, int64(a.Fence-before.Fence))
		claimed, ended := a.Claimed.UnixMicro(), a.Ended.UnixMicro()
		b = binary.AppendVarint(binary.AppendVarint(b, claimed-clock), ended-claimed)
		clock = ended
		for _, t := range [...]struct {
			text  string
			there bool
		}{{a.Owner, flags&sameOwner == 0}, {a.Class, flags&sameClass == 0}, {a.Err, a.Err != ""}} {
			if t.there {
				b = append(append(b, byte(len(t.text))), t.text...)
			}
		}
		before = *a
	}
	return b
}

// cut is at most n bytes of s, in whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// errPast says that bytes are no Past of this version.
var errPast = errors.New("dedupe: no past of version 1")

// DecodePast is the reverse of [EncodePast]. What cannot be read, because something else wrote it
// or a later version did, is nil: the history is for people, and no call fails for it.
func DecodePast(b []byte) []Attempt {
	if len(b) == 0 || len(b) > MaxPastBytes || b[0] != pastVersion {
		return nil
	}
	d := pastReader{b: b[1:]}
	var past []Attempt
	clock := int64(0)
	for len(d.b) > 0 {
		var a, before Attempt
		if len(past) == MaxPast {
			return nil
		}
		if len(past) > 0 {
			before = past[len(past)-1]
		}
		flags := d.take(1)[0]
		a.End, a.Reopened = Status(flags&endBits), flags&reopened != 0
		a.Number = int(d.uvarint() & (1<<31 - 1))
		a.Fence = before.Fence + uint64(d.varint())
		clock += d.varint()
		a.Claimed = time.UnixMicro(clock).UTC()
		clock += d.varint()
		a.Ended = time.UnixMicro(clock).UTC()
		a.Owner, a.Class = before.Owner, before.Class
		if flags&sameOwner == 0 {
			a.Owner = d.text(maxOwnerText)
		}
		if flags&sameClass == 0 {
			a.Class = d.text(maxOwnerText)
		}
		if flags&hasErr != 0 {
			a.Err = d.text(maxErrText)
		}
		if d.err != nil || a.End < Claimed || a.End > Parked || flags&(1<<7) != 0 || !writable(a.Claimed) || !writable(a.Ended) {
			return nil
		}
		past = append(past, a)
	}
	return past
}

// writable reports whether t has a year that JSON can write. A record must not fail the tool that
// prints it.
func writable(t time.Time) bool { return t.Year() >= 1 && t.Year() <= 9999 }

// pastReader reads and remembers the first error.
type pastReader struct {
	b   []byte
	err error
}

// take is the next n bytes, or zeros where there are not so many.
func (d *pastReader) take(n int) []byte {
	if len(d.b) < n {
		d.b, d.err = nil, errPast
		return make([]byte, n)
	}
	t := d.b[:n]
	d.b = d.b[n:]
	return t
}

func (d *pastReader) text(most int) string {
	n := int(d.take(1)[0])
	if n > most {
		d.err = errPast
		return ""
	}
	return strings.Clone(string(d.take(n)))
}

func (d *pastReader) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	return read(d, v, n)
}

func (d *pastReader) varint() int64 {
	v, n := binary.Varint(d.b)
	return read(d, v, n)
}

// read moves on behind a number of n bytes.
func read[N int64 | uint64](d *pastReader, v N, n int) N {
	if n <= 0 {
		d.b, d.err = nil, errPast
		return 0
	}
	d.b = d.b[n:]
	return v
}
