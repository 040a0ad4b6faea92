package dlq_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/letter/lettertest"
)

var (
	newKey = bytes.Repeat([]byte("n"), 32)
	oldKey = bytes.Repeat([]byte("o"), 32)
	signed = &dlq.Options{LetterKeys: dlq.Keys{newKey, oldKey}}
)

// signedLetter is a letter that a worker has put which had the old key.
func signedLetter(key string, fence uint64, change ...func(*broker.Outgoing)) broker.Outgoing {
	o := letterOf(key, fence, change...)
	dlq.Keys{oldKey}.Sign(&o)
	return o
}

// The form of what is signed is kept, or letters that lie in queues would lose their permission.
func TestSignatureStays(t *testing.T) {
	m := lettertest.Message()
	d := lettertest.Dead()
	m.Meta.Dead, m.Meta.Timeout = &d, 1500*time.Microsecond
	out := broker.Outgoing{Body: m.Body, Attributes: m.Attributes, Meta: m.Meta}
	dlq.Keys{newKey}.Sign(&out)
	const want = "p0NcdC9lp0kwgnm4o1qtH1URWC2TvCqJKx5e7ftWtG4"
	if got := out.Meta.Dead.Signature; got != want {
		t.Errorf("the signature is %q, want %q", got, want)
	}
	if !(dlq.Keys{oldKey, newKey}).Signed(m) || (dlq.Keys{oldKey}).Signed(m) || dlq.Keys(nil).Signed(m) {
		t.Error("the wrong keys verify it")
	}
	m.Meta.Timeout = 2 * time.Millisecond // as it travels
	if !(dlq.Keys{newKey}).Signed(m) {
		t.Error("the signature does not survive the journey")
	}
}

// A letter that names its record is signed with that name, which survives the journey. Nobody can
// take it away, or point it at another's record.
func TestSignatureCoversTheRecord(t *testing.T) {
	m := lettertest.Message()
	d := lettertest.Dead()
	d.Scope, d.Key = "payments:charge", m.Meta.Key
	m.Meta.Dead = &d
	out := broker.Outgoing{Body: m.Body, Attributes: m.Attributes, Meta: m.Meta}
	dlq.Keys{newKey}.Sign(&out)
	const want = "ObLox2nw9qkGG-KeK5_r-KjpiduJS5XJEuCLiWhAYGM"
	if got := out.Meta.Dead.Signature; got != want {
		t.Errorf("the signature is %q, want %q", got, want)
	}
	var err error
	if m.Meta, err = broker.DecodeMeta(broker.EncodeMeta(m.Meta)); err != nil || !(dlq.Keys{newKey}).Signed(m) {
		t.Errorf("the signature does not survive the journey: %v, %+v", err, m.Meta)
	}
	for _, record := range [][2]string{{"", ""}, {"", d.Key}, {d.Scope, ""}, {d.Scope, "other"}, {"payments", d.Key}, {"payments:charg", "e" + d.Key}} {
		m.Meta.Dead.Scope, m.Meta.Dead.Key = record[0], record[1]
		if (dlq.Keys{newKey}).Signed(m) {
			t.Errorf("the record %q is signed, too", record)
		}
	}
}

// No two lists of attributes are signed alike.
func TestSignatureTellsPartsApart(t *testing.T) {
	seen := make(map[string]map[string]string)
	for _, as := range []map[string]string{nil, {"": ""}, {"a": "bc"}, {"ab": "c"}, {"a": "b", "c": ""}, {"a": "", "b": "c"}} {
		o := letterOf("k", 1)
		o.Attributes = as
		o.Meta.Created, o.Meta.Dead.At = lettertest.Published, lettertest.Failed
		dlq.Keys{newKey}.Sign(&o)
		if was, ok := seen[o.Meta.Dead.Signature]; ok {
			t.Errorf("%v and %v have one signature", was, as)
		}
		seen[o.Meta.Dead.Signature] = as
	}
}

func TestOnlyLettersWithAFenceAreSigned(t *testing.T) {
	for _, o := range []broker.Outgoing{signedLetter("k", 0), {Body: []byte("x")}, {Meta: &broker.Meta{ID: "i"}}} {
		dlq.Keys{newKey}.Sign(&o)
		if o.Meta != nil && o.Meta.Dead != nil && o.Meta.Dead.Signature != "" {
			t.Errorf("signed: %+v", o.Meta.Dead)
		}
	}
}

func TestReplayOfSignedLetters(t *testing.T) {
	forgery := letterOf("k", 7)
	forgery.Meta.Dead.Signature = strings.Repeat("A", 43)
	tampered := signedLetter("k", 7)
	tampered.Body = []byte("forged")
	for _, c := range []struct {
		name    string
		letter  broker.Outgoing
		o       dlq.ReplayOptions
		reopens bool
	}{
		{"signed", signedLetter("k", 7), dlq.ReplayOptions{}, true},
		{"not signed", letterOf("k", 7), dlq.ReplayOptions{}, false},
		{"forged", forgery, dlq.ReplayOptions{}, false},
		{"tampered with", tampered, dlq.ReplayOptions{}, false},
		{"not signed, without attempts", letterOf("k", 7, func(o *broker.Outgoing) { o.Meta.Dead.Attempts = 0 }), dlq.ReplayOptions{}, false},
		{"edited", signedLetter("k", 7), dlq.ReplayOptions{Edit: func(o *broker.Outgoing) error {
			o.Body, o.Attributes, o.Meta.Type = []byte("corrected"), map[string]string{"a": "1"}, "other"
			o.Meta.Dead = nil
			return nil
		}}, true},
		{"forged and edited", forgery, dlq.ReplayOptions{Edit: func(o *broker.Outgoing) error { o.Body = []byte("x"); return nil }}, false},
		{"vouched for", letterOf("k", 7), dlq.ReplayOptions{TrustUnsigned: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, membroker.Memory, signed)
				c.letter.Meta.Dead.At = time.Now()
				if c.letter.Meta.Dead.Signature != "" && c.name != "forged" && c.name != "forged and edited" && c.name != "tampered with" {
					dlq.Keys{oldKey}.Sign(&c.letter) // its time has changed
				}
				r.put(c.letter)
				es, err := r.list(dlq.Filter{})
				if err != nil || len(es) != 1 {
					t.Fatal(es, err)
				}
				unsigned := !c.reopens || c.o.TrustUnsigned
				if e := es[0]; e.Unsigned != unsigned || strings.Contains(e.String(), "not signed") != unsigned {
					t.Errorf("the letter is listed as %v", e)
				}
				rep := r.mustReplay(c.o)
				r.report(rep, 1, 1)
				if (rep.Unsigned == 1) == c.reopens || strings.Contains(rep.String(), "not signed") == c.reopens {
					t.Errorf("the report is %v", rep)
				}
				back := r.drain(r.queue)[0]
				d := back.Meta.Dead
				if (d.Fence == 7) != c.reopens || (dlq.Keys{newKey}).Signed(back) != c.reopens || !c.reopens && (d.Fence != 0 || d.Signature != "") {
					t.Errorf("sent with %+v", d)
				}
			})
		})
	}
}

// An unsigned look-alike is no copy of a signed letter, because the signed one would then be
// removed in its stead.
func TestUnsignedIsNoCopy(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.dlq = open(t, r.dead, signed)
		real := signedLetter("k", 7)
		look := real
		look.Meta = real.Meta.Clone()
		look.Meta.Dead.Signature, look.Meta.Expires = "", time.Now().Add(time.Hour)
		r.put(look, real, real)
		r.report(r.mustReplay(dlq.ReplayOptions{}), 3, 2, 1)
		fences := map[uint64]int{}
		for _, m := range r.drain(r.queue) {
			fences[m.Meta.Dead.Fence]++
		}
		if !maps.Equal(fences, map[uint64]int{0: 1, 7: 1}) {
			t.Errorf("sent by fence: %v", fences)
		}
	})
}

func TestBadKeys(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		if _, err := dlq.New(r.dead, &dlq.Options{LetterKeys: dlq.Keys{newKey, newKey[:31]}}); err == nil ||
			!strings.Contains(err.Error(), "Options.LetterKeys: key 1 has 31 bytes, want at least 32") {
			t.Errorf("New answered %v", err)
		}
		if _, err := r.replay(dlq.ReplayOptions{TrustUnsigned: true}); err == nil || !strings.Contains(err.Error(), "ReplayOptions.TrustUnsigned") {
			t.Errorf("Replay answered %v", err)
		}
	})
}

// A user's attribute with the name of ours is dropped, and becomes no metadata, whatever the letter
// says.
func TestHiddenMetadata(t *testing.T) {
	const hidden = `{"v":1,"id":"z","t":"refund","k":"victims-key","dead":{"f":77}}`
	hides := func(o *broker.Outgoing) { o.Attributes = map[string]string{dlq.UnreadableAttribute: hidden} }
	onEach(t, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			name   string
			letter broker.Outgoing
			want   string // the metadata that is sent; "" = as the letter's
		}{
			{"a letter that could be read", letterOf("k", 7, hides), ""},
			{"folded", letterOf("k", 7, func(o *broker.Outgoing) {
				o.Meta.Dead.Attributes = map[string]string{dlq.UnreadableAttribute: hidden}
			}), ""},
			{"a class that a handler has chosen", letterOf("k", 7, class("bad-meta"), hides), ""},
			{"no metadata", letterOf("k", 7, noMeta, hides), "none"},
			{"a letter that could not be read", letterOf("", 0, class("bad-meta"), hides), `{"v":1,"id":"z","t":"refund","k":"victims-key"}`},
		} {
			pass(10 * time.Minute) // on FIFO one would be taken for the other
			r.put(c.letter)
			r.report(r.mustReplay(dlq.ReplayOptions{}), 1, 1)
			back := r.drain(r.queue)[0]
			if len(back.Attributes) != 0 {
				t.Errorf("%s: attributes %v", c.name, back.Attributes)
			}
			switch c.want {
			case "":
				if back.Meta.ID != "j-k" || back.Meta.Dead.Fence != 7 {
					t.Errorf("%s: %s", c.name, broker.EncodeMeta(back.Meta))
				}
			case "none":
				if back.Meta != nil {
					t.Errorf("%s: %s", c.name, broker.EncodeMeta(back.Meta))
				}
			default:
				if got := broker.EncodeMeta(back.Meta); got != c.want {
					t.Errorf("%s: %s, want %s", c.name, got, c.want)
				}
			}
		}
	})
}
