package broker

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// This file owns which members the metadata has, for reading: DecodeMeta, and what of a newer
// version is kept. Drivers call DecodeMeta for each message that brings metadata. Nothing is
// locked, because a reader belongs to one call. metareader.go reads the JSON, and codec.go writes
// it.

// DecodeMeta reads what [EncodeMeta] wrote, also in a newer version: its members are kept
// in Extra. An error wraps [ErrBadMeta] and names the member and its position in bytes.
// It reads any JSON spacing, and a null member as an absent one; it refuses a member
// given twice, text that is not UTF-8, numbers that do not fit, and more than [MaxMeta]
// bytes. The texts of the answer may share memory with s.
func DecodeMeta(s string) (*Meta, error) {
	if len(s) > MaxMeta {
		return nil, fmt.Errorf("%w: %d bytes, and at most %d are read", ErrBadMeta, len(s), MaxMeta)
	}
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("%w: not valid UTF-8 at byte %d", ErrBadMeta, invalidAt(s))
	}
	m := new(Meta)
	r := metaReader{s: s}
	version := 0
	named := false // the letter names its record's key
	extra, err := r.object("", func(name string) (seen uint32, err error) {
		switch name {
		case "v":
			version, err = r.integer(1)
			return 1 << 0, err
		case "id":
			m.ID, err = r.text()
			return 1 << 1, err
		case "t":
			m.Type, err = r.text()
			return 1 << 2, err
		case "k":
			m.Key, err = r.text()
			return 1 << 3, err
		case "c":
			m.CorrelationID, err = r.text()
			return 1 << 4, err
		case "cr":
			m.Created, err = r.time()
			return 1 << 5, err
		case "nb":
			m.NotBefore, err = r.time()
			return 1 << 6, err
		case "ex":
			m.Expires, err = r.time()
			return 1 << 7, err
		case "ma":
			m.MaxAttempts, err = r.integer(minInt)
			return 1 << 8, err
		case "to":
			var ms int64
			ms, err = r.int64(0, maxTimeout)
			m.Timeout = time.Duration(ms) * time.Millisecond
			return 1 << 10, err
		case "be":
			m.BodyEncoding, err = r.text()
			return 1 << 11, err
		case "pp":
			m.Postponed, err = r.time()
			return 1 << 13, err
		case "dead":
			m.Dead, named, err = r.dead()
			return 1 << 12, err
		}
		return 0, nil
	})
	if err != nil {
		return nil, err
	}
	r.space()
	if r.i < len(s) {
		return nil, fmt.Errorf("%w: text after the object at byte %d", ErrBadMeta, r.i)
	}
	if version == 0 {
		return nil, fmt.Errorf(`%w: member "v" is missing`, ErrBadMeta)
	}
	if version > metaVersion {
		m.Version = version
	}
	m.Extra = extra
	if d := m.Dead; d != nil && d.Scope != "" && !named {
		d.Key = keyOf(m)
	}
	return m, nil
}

func (r *metaReader) dead() (d *Letter, named bool, err error) {
	if r.null() {
		return nil, false, nil
	}
	d = new(Letter)
	extra, err := r.object("dead.", func(name string) (seen uint32, err error) {
		switch name {
		case "f":
			d.Fence, err = r.uint64()
			return 1 << 0, err
		case "c":
			d.Class, err = r.text()
			return 1 << 1, err
		case "fe":
			d.FirstErr, err = r.text()
			return 1 << 2, err
		case "le":
			d.LastErr, err = r.text()
			return 1 << 3, err
		case "a":
			d.Attempts, err = r.integer(0)
			return 1 << 4, err
		case "s":
			d.Source, err = r.text()
			return 1 << 5, err
		case "at":
			d.At, err = r.time()
			return 1 << 6, err
		case "ua":
			d.Attributes, err = r.texts()
			return 1 << 7, err
		case "sg":
			d.Signature, err = r.text()
			return 1 << 8, err
		case "sv":
			d.Saved, err = r.text()
			return 1 << 11, err
		case "sc":
			d.Scope, err = r.text()
			return 1 << 9, err
		case "rk":
			named = !strings.HasPrefix(r.s[r.i:], "null")
			d.Key, err = r.text()
			return 1 << 10, err
		}
		return 0, nil
	})
	if err != nil {
		return nil, false, err
	}
	d.Extra = extra
	return d, named, nil
}

func isMetaMember(name string) bool {
	switch name {
	case "v", "id", "t", "k", "c", "cr", "nb", "pp", "ex", "ma", "to", "be", "dead":
		return true
	}
	return false
}

func isDeadMember(name string) bool {
	switch name {
	case "f", "c", "fe", "le", "a", "sv", "s", "sc", "rk", "at", "ua", "sg":
		return true
	}
	return false
}

func joinMembers(extra, s string, start, end int) string {
	if start < 0 {
		return extra
	}
	run := carriable(s[start:end])
	if extra == "" {
		return run
	}
	return extra + "," + run
}

// checkExtra says what keeps extra from being written as members of an object.
func checkExtra(extra string, known func(string) bool) error {
	if len(extra) > MaxMeta || !utf8.ValidString(extra) {
		return ErrBadMeta
	}
	r := metaReader{s: extra}
	for {
		r.space()
		name, err := r.quoted()
		if err != nil {
			return err
		}
		r.space()
		if known(name) || !r.take(':') {
			return ErrBadMeta
		}
		r.space()
		if err := r.skip(1); err != nil {
			return err
		}
		r.space()
		if r.i == len(extra) {
			return nil
		}
		if !r.take(',') {
			return ErrBadMeta
		}
	}
}

func invalidAt(s string) int {
	for i, c := range s {
		if c == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return i
			}
		}
	}
	return len(s)
}
