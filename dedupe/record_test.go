package dedupe_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func TestStrings(t *testing.T) {
	for _, c := range []struct {
		got  interface{ String() string }
		want string
	}{
		{dedupe.Status(0), "none"},
		{dedupe.Claimed, "claimed"},
		{dedupe.Released, "released"},
		{dedupe.Done, "done"},
		{dedupe.Failed, "failed"},
		{dedupe.Parked, "parked"},
		{dedupe.Parked + 1, "Status(6)"},
		{dedupe.Rerun, "rerun"},
		{dedupe.Park, "park"},
		{dedupe.Policy(9), "Policy(9)"},
		{dedupe.Outcome(0), "none"},
		{dedupe.Won, "won"},
		{dedupe.InProgress, "in-progress"},
		{dedupe.AlreadyDone, "already-done"},
		{dedupe.AlreadyFailed, "already-failed"},
		{dedupe.IsParked, "parked"},
		{dedupe.Mismatch, "mismatch"},
		{dedupe.Stale, "stale"},
		{dedupe.Outcome(99), "Outcome(99)"},
		{dedupe.Token{0: 0xab, 15: 1}, "ab00…"},
		{dedupe.Key{Scope: "a", Key: "b"}, "a/b"},
	} {
		if got := c.got.String(); got != c.want {
			t.Errorf("String of %#v is %q, want %q", c.got, got, c.want)
		}
	}
}

func TestParseStatus(t *testing.T) {
	for s := dedupe.Claimed; s <= dedupe.Parked; s++ {
		if got, err := dedupe.ParseStatus(s.String()); got != s || err != nil {
			t.Errorf("ParseStatus(%q) is %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "none", "Done", "done ", "Status(6)", "1"} {
		if got, err := dedupe.ParseStatus(s); err == nil || got != 0 {
			t.Errorf("ParseStatus(%q) is %v, %v; want an error", s, got, err)
		}
	}
}

func TestKeyValidate(t *testing.T) {
	for _, k := range []dedupe.Key{
		{Scope: "s", Key: "k"},
		{Scope: strings.Repeat("s", dedupe.MaxScope), Key: strings.Repeat("k", dedupe.MaxKey)},
		{Scope: " ", Key: "\n"},
		{Scope: "é", Key: "🚀\ufffd\U0010ffff"},
	} {
		if err := k.Validate(); err != nil {
			t.Errorf("Validate of %.20q is %v", k, err)
		}
	}
	for _, c := range []struct {
		key  dedupe.Key
		says string
	}{
		{dedupe.Key{Key: "k"}, "Scope is empty"},
		{dedupe.Key{Scope: "s"}, "Key is empty"},
		{dedupe.Key{Scope: strings.Repeat("s", dedupe.MaxScope+1), Key: "k"}, "Scope has 256 bytes, the limit is 255"},
		{dedupe.Key{Scope: "s", Key: strings.Repeat("k", dedupe.MaxKey+1)}, "Key has 1025 bytes, the limit is 1024"},
		{dedupe.Key{Scope: "s\x00", Key: "k"}, "Scope holds a NUL byte"},
		{dedupe.Key{Scope: "s", Key: "\x00"}, "Key holds a NUL byte"},
		{dedupe.Key{Scope: "\xff", Key: "k"}, "Scope is not valid UTF-8"},
		{dedupe.Key{Scope: "s", Key: "k\xed\xa0\x80"}, "Key is not valid UTF-8"},
	} {
		err := c.key.Validate()
		if !errors.Is(err, dedupe.ErrBadKey) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("Validate of %.20q is %v, want ErrBadKey and %q", c.key, err, c.says)
		}
	}
}

func TestValidateRequests(t *testing.T) {
	k := dedupe.Key{Scope: "s", Key: "k"}
	type validator interface{ Validate() error }
	for _, ok := range []validator{
		&dedupe.ClaimRequest{Key: k, Token: dedupe.Token{1}, TTL: 1},
		&dedupe.ClaimRequest{Key: k, Token: dedupe.Token{1}, TTL: 1, Policy: dedupe.Park, Reopen: 1 << 63, Fingerprint: []byte{}},
		&dedupe.Renewal{Key: k, TTL: 1},
		&dedupe.Settlement{Key: k, To: dedupe.Done},
		&dedupe.Settlement{Key: k, To: dedupe.Parked, Retain: 1},
	} {
		if err := ok.Validate(); err != nil {
			t.Errorf("Validate of %+v is %v", ok, err)
		}
	}
	for _, c := range []struct {
		entry validator
		err   error
		says  string
	}{
		{&dedupe.ClaimRequest{Token: dedupe.Token{1}, TTL: 1}, dedupe.ErrBadKey, "Scope"},
		{&dedupe.ClaimRequest{Key: k, TTL: 1}, dedupe.ErrBadRequest, "ClaimRequest.Token"},
		{&dedupe.ClaimRequest{Key: k, Token: dedupe.Token{1}}, dedupe.ErrBadRequest, "ClaimRequest.TTL"},
		{&dedupe.ClaimRequest{Key: k, Token: dedupe.Token{1}, TTL: -1}, dedupe.ErrBadRequest, "ClaimRequest.TTL"},
		{&dedupe.ClaimRequest{Key: k, Token: dedupe.Token{1}, TTL: 1, Policy: 2}, dedupe.ErrBadRequest, "ClaimRequest.Policy"},
		{&dedupe.Renewal{TTL: 1}, dedupe.ErrBadKey, "Scope"},
		{&dedupe.Renewal{Key: k}, dedupe.ErrBadRequest, "Renewal.TTL"},
		{&dedupe.Settlement{To: dedupe.Done}, dedupe.ErrBadKey, "Scope"},
		{&dedupe.Settlement{Key: k}, dedupe.ErrBadRequest, "Settlement.To is none"},
		{&dedupe.Settlement{Key: k, To: dedupe.Claimed}, dedupe.ErrBadRequest, "Settlement.To is claimed"},
		{&dedupe.Settlement{Key: k, To: 99}, dedupe.ErrBadRequest, "Settlement.To"},
		{&dedupe.Settlement{Key: k, To: dedupe.Done, Retain: -1}, dedupe.ErrBadRequest, "Settlement.Retain"},
	} {
		if err := c.entry.Validate(); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("Validate of %+v is %v, want %v and %q", c.entry, err, c.err, c.says)
		}
	}
}

func TestClone(t *testing.T) {
	full := func() dedupe.Record {
		return dedupe.Record{
			Key: dedupe.Key{Scope: "orders", Key: "7"}, Status: dedupe.Done, Fence: 41, Token: dedupe.Token{1}, Attempt: 3, Owner: "w-1",
			Fingerprint: []byte("A"), Result: []byte("result"), State: []byte("step"), StateNo: 1, Created: now, Expires: now.Add(time.Hour),
		}
	}
	r := full()
	c := r.Clone()
	if !reflect.DeepEqual(*c, r) {
		t.Errorf("the clone of %+v is %+v", r, *c)
	}
	c.Fingerprint[0], c.Result[0], c.State[0] = '!', '!', '!'
	if want := full(); !reflect.DeepEqual(r, want) {
		t.Errorf("the clone is no copy: %+v, want %+v", r, want)
	}
	for _, b := range [][]byte{nil, {}} {
		r := dedupe.Record{Fingerprint: b, Result: b, State: b}
		if c := r.Clone(); !reflect.DeepEqual(*c, r) {
			t.Errorf("the clone of %#v is %#v", r, *c)
		}
	}
}

func TestExpired(t *testing.T) {
	for s := dedupe.Status(0); s <= dedupe.Parked; s++ {
		r := dedupe.Record{Status: s, Expires: now}
		ends := s == dedupe.Released || s == dedupe.Done || s == dedupe.Failed
		if r.Expired(now.Add(-time.Nanosecond)) {
			t.Errorf("%v has expired before its end", s)
		}
		if r.Expired(now) != ends {
			t.Errorf("%v has expired at its end: %v, want %v", s, !ends, ends)
		}
	}
}

func TestTokensAreNotPrintedWhole(t *testing.T) {
	token := dedupe.Token{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	c := dedupe.Claim{Lease: dedupe.Lease{Token: token}, Record: &dedupe.Record{Token: token}}
	for _, format := range []string{"%v", "%+v", "%s", "%x"} {
		if s := fmt.Sprintf(format, c) + fmt.Sprintf(format, c.Record) + fmt.Sprintf(format, token); strings.Contains(strings.ToLower(s), "0708") {
			t.Errorf("%s shows %s", format, s)
		}
	}
	if got := token.Hex(); got != "0102030405060708090a0b0c0d0e0f10" {
		t.Errorf("Hex is %q", got)
	}
}
