package broker

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func ms(n int64) time.Time { return time.UnixMilli(n).UTC() }

func fullMeta() *Meta {
	return &Meta{
		ID: "j-1", Type: "mail", Key: "order-7", CorrelationID: "req-9",
		Created: ms(1764000000123), NotBefore: ms(1764000001000), Expires: ms(1764000002000),
		MaxAttempts: 5, Timeout: 1500 * time.Millisecond, BodyEncoding: "base64",
		Dead: &Letter{
			Fence: math.MaxUint64, Class: "permanent", FirstErr: "no such customer", LastErr: "still\nnone",
			Attempts: 4, Source: "orders", Scope: "orders:mail", Key: "7", At: ms(1764000003000),
			Attributes: map[string]string{"b": "2", "a": "1\x00"}, Signature: "c2ln-_",
		},
	}
}

func TestEncodeMetaForm(t *testing.T) {
	for _, c := range []struct {
		name string
		m    *Meta
		want string
	}{
		{"nil", nil, ``},
		{"empty", &Meta{}, `{"v":1}`},
		{"empty letter", &Meta{Dead: &Letter{}}, `{"v":1,"dead":{}}`},
		{
			"all members", fullMeta(), `{"v":1,"id":"j-1","t":"mail","k":"order-7","c":"req-9","cr":1764000000123,` +
				`"nb":1764000001000,"ex":1764000002000,"ma":5,"to":1500,"be":"base64","dead":{"f":18446744073709551615,` +
				`"c":"permanent","fe":"no such customer","le":"still\nnone","a":4,"s":"orders","sc":"orders:mail","rk":"7","at":1764000003000,"ua":{"a":"1\u0000","b":"2"},"sg":"c2ln-_"}}`,
		},
		{"the epoch is a time", &Meta{Created: ms(0)}, `{"v":1,"cr":0}`},
		{"timeout rounded up", &Meta{Timeout: 1}, `{"v":1,"to":1}`},
		{"longest timeout", &Meta{Timeout: math.MaxInt64}, `{"v":1,"to":9223372036854}`},
		{"negative timeout", &Meta{Timeout: -1}, `{"v":1}`},
		{"negative attempts", &Meta{Dead: &Letter{Attempts: -1}}, `{"v":1,"dead":{}}`},
		{"unlimited attempts", &Meta{MaxAttempts: -1}, `{"v":1,"ma":-1}`},
		{"far future", &Meta{Created: time.Unix(math.MaxInt64/2, 0)}, `{"v":1,"cr":253402300799999}`},
		{"far past", &Meta{Created: time.Unix(math.MinInt64/2, 0)}, `{"v":1,"cr":-62135596799999}`},
		{"just after the zero time", &Meta{Created: time.Time{}.Add(1)}, `{"v":1,"cr":-62135596799999}`},
		{
			"escapes", &Meta{ID: "\x00\t\n\r\"\\\x1f\x7f\u0085\u009f\u00a0\uFFFD\uFFFE\uFFFF😀</>&"},
			`{"v":1,"id":"\u0000\t\n\r\"\\\u001f\u007f\u0085\u009f` + "\u00a0\uFFFD" + `\ufffe\uffff😀</>&"}`,
		},
		{"not UTF-8", &Meta{ID: "a\xffb\xed\xa0\x80"}, "{\"v\":1,\"id\":\"a\uFFFDb\uFFFD\uFFFD\uFFFD\"}"},
		{
			"attributes not UTF-8", &Meta{Dead: &Letter{Attributes: map[string]string{"\xff": "1", "\xfe": "2"}}},
			"{\"v\":1,\"dead\":{\"ua\":{\"\uFFFD\":\"2\",\"\uFFFD\":\"1\"}}}",
		},
		{"newer version", &Meta{ID: "x", Version: 3, Extra: `"zz":[1, 2]`}, `{"v":3,"id":"x","zz":[1, 2]}`},
		{"older version", &Meta{Version: -3}, `{"v":1}`},
		{"a record with the job's key", &Meta{ID: "i", Key: "k", Dead: &Letter{Scope: "s", Key: "k"}}, `{"v":1,"id":"i","k":"k","dead":{"sc":"s"}}`},
		{"a record with the job's id", &Meta{ID: "i", Dead: &Letter{Scope: "s", Key: "i"}}, `{"v":1,"id":"i","dead":{"sc":"s"}}`},
		{"a record with a key of its own", &Meta{ID: "i", Key: "k", Dead: &Letter{Scope: "s", Key: "i"}}, `{"v":1,"id":"i","k":"k","dead":{"sc":"s","rk":"i"}}`},
		{"a scope without a key", &Meta{ID: "i", Dead: &Letter{Scope: "s"}}, `{"v":1,"id":"i","dead":{"sc":"s","rk":""}}`},
		{"a key without a scope", &Meta{ID: "i", Dead: &Letter{Key: "i"}}, `{"v":1,"id":"i","dead":{"rk":"i"}}`},
		{"a record of nobody", &Meta{Dead: &Letter{Scope: "s"}}, `{"v":1,"dead":{"sc":"s"}}`},
		{"newer letter", &Meta{Dead: &Letter{Extra: `"x":{}`}}, `{"v":1,"dead":{"x":{}}}`},
		{"extra: not members", &Meta{Extra: `}`}, `{"v":1}`},
		{"extra: known member", &Meta{Extra: `"id":"forged"`}, `{"v":1}`},
		{"extra: known member, escaped", &Meta{Extra: `"x":1,"\u0069d":"forged"`}, `{"v":1}`},
		{"extra: closes the object", &Meta{Extra: `"x":1},{"y":2`}, `{"v":1}`},
		{"extra: ends in a comma", &Meta{Extra: `"x":1,`}, `{"v":1}`},
		{"extra: known inside a letter only", &Meta{Extra: `"fe":1`}, `{"v":1,"fe":1}`},
		{"letter's extra: known member", &Meta{Dead: &Letter{Extra: `"fe":"forged"`}}, `{"v":1,"dead":{}}`},
		{"extra: not UTF-8", &Meta{Extra: "\"x\":\"\xff\""}, `{"v":1}`},
		{"extra: not for XML", &Meta{Extra: "\"x\uFFFE\":\"\uFFFF\""}, `{"v":1,"x\ufffe":"\uffff"}`},
	} {
		got := EncodeMeta(c.m)
		if got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
		if appended := string(appendMeta([]byte("before "), c.m)); appended != "before "+c.want {
			t.Errorf("%s: appendMeta gave %s", c.name, appended)
		}
		if c.m == nil {
			continue
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("%s: encoding/json refuses %s", c.name, got)
		}
		if _, err := DecodeMeta(got); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestDecodeMeta(t *testing.T) {
	deep := strings.Repeat("[", maxMetaDepth-1) + strings.Repeat("]", maxMetaDepth-1)
	for _, c := range []struct {
		name, in string
		want     *Meta
	}{
		{"all members", EncodeMeta(fullMeta()), fullMeta()},
		{"empty", `{"v":1}`, &Meta{}},
		{"spaces", " {\t\"v\" :\n1\r, \"id\" : \"x\" , \"dead\" : { } } \n", &Meta{ID: "x", Dead: &Letter{}}},
		{"version last", `{"id":"x","v":1}`, &Meta{ID: "x"}},
		{"nulls", `{"v":1,"id":null,"cr":null,"ma":null,"to":null,"dead":null}`, &Meta{}},
		{"nulls in a letter", `{"v":1,"dead":{"f":null,"fe":null,"a":null,"at":null,"ua":null}}`, &Meta{Dead: &Letter{}}},
		{"escapes", `{"v":1,"id":"\"\\\/\b\f\n\r\t\u0041\u00e9\uD83D\ude00a"}`, &Meta{ID: "\"\\/\b\f\n\r\tAé😀a"}},
		{
			"half surrogates", `{"v":1,"id":"\ud800","k":"\udc00\ud83d","t":"\ud83d\ud83d\ude00","c":"\ud83d\u0041\ud83dx"}`,
			&Meta{ID: "\uFFFD", Key: "\uFFFD\uFFFD", Type: "\uFFFD😀", CorrelationID: "\uFFFDA\uFFFDx"},
		},
		{
			"a letter's attributes", `{"v":1,"dead":{"ua": { "a" : "1" , "\u0000":"" } }}`,
			&Meta{Dead: &Letter{Attributes: map[string]string{"a": "1", "\x00": ""}}},
		},
		{"no attributes of a letter", `{"v":1,"dead":{"ua":{ },"c":null}}`, &Meta{Dead: &Letter{}}},
		{"a letter's record", `{"v":1,"dead":{"sc":"s"},"k":"k","id":"i"}`, &Meta{ID: "i", Key: "k", Dead: &Letter{Scope: "s", Key: "k"}}},
		{"a letter's record, by id", `{"v":1,"dead":{"rk":null,"sc":"s"},"id":"i"}`, &Meta{ID: "i", Dead: &Letter{Scope: "s", Key: "i"}}},
		{"a letter's record, named", `{"v":1,"id":"i","dead":{"rk":"r","sc":"s"}}`, &Meta{ID: "i", Dead: &Letter{Scope: "s", Key: "r"}}},
		{"a letter's scope alone", `{"v":1,"id":"i","dead":{"rk":"","sc":"s"}}`, &Meta{ID: "i", Dead: &Letter{Scope: "s"}}},
		{"a letter's key alone", `{"v":1,"id":"i","dead":{"rk":"r","sc":null}}`, &Meta{ID: "i", Dead: &Letter{Key: "r"}}},
		{"a letter without a record", `{"v":1,"id":"i","dead":{"s":"s"}}`, &Meta{ID: "i", Dead: &Letter{Source: "s"}}},
		{"escaped name", `{"v":1,"\u0069d":"x"}`, &Meta{ID: "x"}},
		{"minus zero", `{"v":1,"ma":-0,"dead":{"f":-0}}`, &Meta{Dead: &Letter{}}},
		{
			"newer", `{"v":2,"id":"x","n1":{"a":[1,"\u0000"]},"n2":null,"k":"y","n3":1e400,"dead":{"n":true,"c":"d"}}`,
			&Meta{
				ID: "x", Key: "y", Version: 2, Extra: `"n1":{"a":[1,"\u0000"]},"n2":null,"n3":1e400`,
				Dead: &Letter{Class: "d", Extra: `"n":true`},
			},
		},
		{
			"newer, with spaces", `{"v":2, "x" : 1 , "y": [ ] ,"id":"i", "z":-0.5E+2 }`,
			&Meta{ID: "i", Version: 2, Extra: `"x" : 1 , "y": [ ],"z":-0.5E+2`},
		},
		{"newer, a letter's name outside", `{"v":1,"fe":"x"}`, &Meta{Extra: `"fe":"x"`}},
		{"deep", `{"v":1,"x":` + deep + `}`, &Meta{Extra: `"x":` + deep}},
		{"not for XML", "{\"v\":1,\"x\":\"\uFFFE\"}", &Meta{Extra: `"x":"\ufffe"`}},
	} {
		got, err := DecodeMeta(c.in)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %s\ngot  %+v, %v\nwant %+v", c.name, c.in, got, err, c.want)
			continue
		}
		again, err := DecodeMeta(EncodeMeta(got))
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s: written and read again: %+v, %v", c.name, again, err)
		}
	}
}

func TestDecodeMetaRefuses(t *testing.T) {
	deep := strings.Repeat("[", maxMetaDepth) + strings.Repeat("]", maxMetaDepth)
	for _, c := range []struct{ in, want string }{
		{``, `at byte 0: want an object, have the end of the text`},
		{`7`, `at byte 0: want an object, have '7'`},
		{`null`, `want an object`},
		{`{`, `at byte 1: want a string, have the end of the text`},
		{`{}`, `member "v" is missing`},
		{`{"v":null}`, `member "v" is missing`},
		{`{"v":0}`, `member "v" at byte 5: want a number from 1 to`},
		{`{"v":-1}`, `want a number from 1 to`},
		{`{"v":"1"}`, `member "v" at byte 5: want a number, have '"'`},
		{`{"v":1.0}`, `member "v" at byte 5: want a whole number`},
		{`{"v":1e3}`, `want a whole number`},
		{`{"v":1,"ma":01}`, `member "ma" at byte 13: want a comma or the end of the object, have '1'`},
		{`{"v":1,}`, `at byte 7: want a string, have '}'`},
		{`{"v":1 "id":"x"}`, `want a comma or the end of the object`},
		{`{"v" 1}`, `want a colon, have '1'`},
		{`{"v":1} x`, `text after the object at byte 8`},
		{`{"v":1}{"v":1}`, `text after the object at byte 7`},
		{`{"v":1,"v":1}`, `member "v" at byte 7: given twice`},
		{`{"v":1,"id":"a","\u0069d":"b"}`, `member "id" at byte 16: given twice`},
		{`{"v":1,"id":null,"id":"b"}`, `member "id" at byte 17: given twice`},
		{`{"v":1,"dead":{"f":1,"f":2}}`, `member "dead.f" at byte 21: given twice`},
		{`{"v":1,"dead":{"f":1},"dead":{"f":1}}`, `member "dead" at byte 22: given twice`},
		{`{"v":1,"dead":[]}`, `member "dead" at byte 14: want an object, have '['`},
		{`{"v":1,"dead":{"f":-1}}`, `member "dead.f" at byte 19: want a number from 0 to 18446744073709551615`},
		{`{"v":1,"dead":{"f":18446744073709551616}}`, `want a number from 0 to`},
		{`{"v":1,"dead":{"f":"1"}}`, `member "dead.f" at byte 19: want a number, have`},
		{`{"v":1,"dead":{"a":-1}}`, `member "dead.a" at byte 19: want a number from 0`},
		{`{"v":1,"dead":{"ua":[]}}`, `member "dead.ua" at byte 20: want an object, have '['`},
		{`{"v":1,"dead":{"ua":{"a":1}}}`, `member "dead.ua" at byte 25: want a string, have '1'`},
		{`{"v":1,"dead":{"ua":{"a"}}}`, `member "dead.ua" at byte 24: want a colon, have '}'`},
		{`{"v":1,"dead":{"ua":{"a":"b",}}}`, `member "dead.ua" at byte 29: want a string, have '}'`},
		{`{"v":1,"dead":{"ua":{"a":"b" "c":"d"}}}`, `want a comma or the end of the object`},
		{`{"v":1,"dead":{"x":`, `member "dead.x" at byte 19: want a value, have the end of the text`},
		{`{"v":1,"id":7}`, `member "id" at byte 12: want a string, have '7'`},
		{`{"v":1,"id":"x}`, `member "id" at byte 15: a string without an end`},
		{`{"v":1,"id":"x\`, `a string without an end`},
		{`{"v":1,"id":"\x"}`, `member "id" at byte 13: an unknown escape`},
		{`{"v":1,"id":"\u12"}`, `at byte 13: an escape without four hexadecimal digits`},
		{`{"v":1,"id":"\u12`, `an escape without four hexadecimal digits`},
		{`{"v":1,"id":"\u+123"}`, `an escape without four hexadecimal digits`},
		{"{\"v\":1,\"id\":\"a\nb\"}", `member "id" at byte 14: a control character, unescaped: '\n'`},
		{"{\"v\":1,\"id\":\"\\na\x00\"}", `a control character, unescaped`},
		{"{\"v\":1,\"x\":\"\x01\"}", `a control character, unescaped`},
		{"{\"v\":1,\"id\":\"\xff\"}", `not valid UTF-8 at byte 13`},
		{`{"v":1,"to":-1}`, `member "to" at byte 12: want a number from 0 to 9223372036854`},
		{`{"v":1,"to":9223372036855}`, `want a number from 0 to 9223372036854`},
		{`{"v":1,"to":99999999999999999999}`, `want a number from 0 to 9223372036854`},
		{`{"v":1,"cr":253402300800000}`, `member "cr" at byte 12: want a number from -62135596799999 to 253402300799999`},
		{`{"v":1,"cr":-62135596800000}`, `want a number from -62135596799999`},
		{`{"v":1,"cr":"2026-01-01"}`, `member "cr" at byte 12: want a number, have '"'`},
		{`{"v":1,"ma":9223372036854775808}`, `member "ma" at byte 12: want a number from -9223372036854775808`},
		{`{"v":1,"ma":1.5}`, `member "ma" at byte 12: want a whole number`},
		{`{"v":1,"x":` + deep + `}`, `member "x" at byte 42: nested deeper than 32`},
		{`{"v":1,"x":[1 2]}`, `want a comma or ']', have '2'`},
		{`{"v":1,"x":[1}`, `want a comma or ']', have '}'`},
		{`{"v":1,"x":{1:2}}`, `want a string, have '1'`},
		{`{"v":1,"x":{"a"}}`, `want a colon, have '}'`},
		{`{"v":1,"x":-}`, `want a number, have '}'`},
		{`{"v":1,"x":1.}`, `want a digit, have '}'`},
		{`{"v":1,"x":1e+}`, `want a digit, have '}'`},
		{`{"v":1,"x":nul}`, `want a number, have 'n'`},
		{`{"v":1,"x":+1}`, `want a number, have '+'`},
		{`{"v":1,"` + strings.Repeat("é", 50) + `":}`, `member "` + strings.Repeat("é", 20) + `…"`},
		{`{"v":1,"id":"` + strings.Repeat("x", MaxMeta) + `"}`, `1048591 bytes, and at most 1048576 are read`},
	} {
		m, err := DecodeMeta(c.in)
		if m != nil || !errors.Is(err, ErrBadMeta) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80q: got %v, %v; want an ErrBadMeta with %q", c.in, m, err, c.want)
		}
	}
}

func TestDecodeMetaReadsTheLongest(t *testing.T) {
	in := `{"v":1,"id":"` + strings.Repeat("x", MaxMeta-15) + `"}`
	m, err := DecodeMeta(in)
	if len(in) != MaxMeta || err != nil || len(m.ID) != MaxMeta-15 {
		t.Fatalf("%d bytes: %v", len(in), err)
	}
}

func TestMetaClone(t *testing.T) {
	if (*Meta)(nil).Clone() != nil {
		t.Error("the clone of nil is not nil")
	}
	m := fullMeta()
	c := m.Clone()
	if !reflect.DeepEqual(m, c) {
		t.Errorf("clone %+v of %+v", c, m)
	}
	c.ID, c.Dead.Class, c.Dead.Attributes["a"] = "other", "other", "other"
	if !reflect.DeepEqual(m, fullMeta()) {
		t.Error("a change of the clone shows in the original")
	}
	if c := (&Meta{ID: "x"}).Clone(); c.ID != "x" || c.Dead != nil {
		t.Errorf("clone without a letter: %+v", c)
	}
}

func TestMetaAllocations(t *testing.T) {
	m := fullMeta()
	m.Dead = nil
	s := EncodeMeta(m)
	letter := fullMeta()
	letter.Dead.LastErr = "none" // an escaped text is built anew
	letter.Dead.Attributes = nil // a map of its own
	l := EncodeMeta(letter)
	for _, c := range []struct {
		name string
		most float64
		f    func()
	}{
		{"encode", 1, func() { EncodeMeta(m) }},
		{"encode letter", 1, func() { EncodeMeta(letter) }},
		{"decode", 1, func() { _, _ = DecodeMeta(s) }},
		{"decode letter", 2, func() { _, _ = DecodeMeta(l) }},
	} {
		if n := testing.AllocsPerRun(100, c.f); n > c.most {
			t.Errorf("%s: %v allocations, want at most %v", c.name, n, c.most)
		}
	}
}

func FuzzDecodeMeta(f *testing.F) {
	for _, s := range []string{
		EncodeMeta(fullMeta()), ``, `{}`, `{"v":1}`, `{"v":2,"x":[{"y":"\ud83d\ude00"}],"id":"a","z":1}`,
		`{"v":1,"dead":{"f":1,"n":{},"ua":{"a":"1","":"\u0000"}},"to":5,"cr":-1}`, "{\"v\":1,\"x\":\"\uFFFE\"}", `{"v":1,"id":"\u0000"}`,
		` { "v" : 1 , "p" : -0 , "q" : -0.1e+9 } `,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := DecodeMeta(s)
		if err != nil {
			if m != nil || !errors.Is(err, ErrBadMeta) {
				t.Fatalf("got %+v, %v", m, err)
			}
			return
		}
		if !json.Valid([]byte(s)) {
			t.Fatal("read what encoding/json refuses")
		}
		checkWritten(t, m)
	})
}

func FuzzMetaRoundTrip(f *testing.F) {
	f.Add("id", "type", "key", "c", int64(1), int64(2), int64(3), 1, int64(4), true, uint64(5), "class", "e1", "e2", 3, "src", int64(6), 0, "", "")
	f.Add("\x00", "\xff", "\uFFFE", "\"", int64(0), int64(math.MaxInt64), int64(math.MinInt64), math.MinInt, int64(math.MaxInt64), true, uint64(math.MaxUint64), "", "", "", -1, "", int64(0), 9, `"x":1`, `"y":[]`)
	f.Fuzz(func(t *testing.T, id, typ, key, corr string, created, notBefore, expires int64, maxAttempts int, timeout int64,
		dead bool, fence uint64, class, first, last string, attempts int, source string, at int64, version int, extra, deadExtra string,
	) {
		m := &Meta{
			ID: id, Type: typ, Key: key, CorrelationID: corr, Created: ms(created), NotBefore: ms(notBefore), Expires: ms(expires),
			MaxAttempts: maxAttempts, Timeout: time.Duration(timeout), Version: version, Extra: extra,
		}
		if dead {
			m.Dead = &Letter{
				Fence: fence, Class: class, FirstErr: first, LastErr: last, Attempts: attempts, Source: source, At: ms(at),
				Signature: id, Extra: deadExtra,
			}
		}
		s := EncodeMeta(m)
		if len(s) > MaxMeta {
			return
		}
		got, err := DecodeMeta(s)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		checkWritten(t, got)
		want := m.Clone()
		for _, p := range []*string{&want.ID, &want.Type, &want.Key, &want.CorrelationID} {
			*p = string([]rune(*p)) // what is not UTF-8 becomes U+FFFD, byte by byte
		}
		if dead && got.Dead.Signature != want.ID {
			t.Fatalf("%q: signature %q, want %q", s, got.Dead.Signature, want.ID)
		}
		if got.ID != want.ID || got.Type != want.Type || got.Key != want.Key || got.CorrelationID != want.CorrelationID ||
			got.MaxAttempts != want.MaxAttempts {
			t.Fatalf("%q: got %+v, want %+v", s, got, want)
		}
		if d := got.Timeout - want.Timeout; want.Timeout > 0 && want.Timeout < math.MaxInt64-2*time.Millisecond && (d < 0 || d >= time.Millisecond) {
			t.Fatalf("timeout %v became %v", want.Timeout, got.Timeout)
		}
		if minMillis <= created && created <= maxMillis && !got.Created.Equal(want.Created) {
			t.Fatalf("time %v became %v", want.Created, got.Created)
		}
		if dead && (got.Dead == nil || got.Dead.Fence != fence || got.Dead.LastErr != string([]rune(last))) {
			t.Fatalf("letter %+v became %+v", m.Dead, got.Dead)
		}
	})
}

// checkWritten holds what must be true of everything that DecodeMeta returns.
func checkWritten(t *testing.T, m *Meta) {
	t.Helper()
	s := EncodeMeta(m)
	if !json.Valid([]byte(s)) {
		t.Fatalf("encoding/json refuses %q", s)
	}
	for i, c := range s {
		if c < 0x20 && c != '\t' && c != '\n' && c != '\r' || c == 0xfffe || c == 0xffff || c == utf8.RuneError && s[i] != "\uFFFD"[0] {
			t.Fatalf("%q at byte %d: XML 1.0 cannot carry %U", s, i, c)
		}
	}
	if len(s) > MaxMeta {
		return
	}
	again, err := DecodeMeta(s)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	if !reflect.DeepEqual(m, again) {
		t.Fatalf("%q: read again as\n%+v, want\n%+v", s, again, m)
	}
}

// jsonMeta is Meta as encoding/json would carry it, for the benchmarks.
type jsonMeta struct {
	V    int       `json:"v"`
	ID   string    `json:"id,omitempty"`
	T    string    `json:"t,omitempty"`
	K    string    `json:"k,omitempty"`
	C    string    `json:"c,omitempty"`
	Cr   int64     `json:"cr,omitempty"`
	Nb   int64     `json:"nb,omitempty"`
	Ma   int       `json:"ma,omitempty"`
	To   int64     `json:"to,omitempty"`
	Dead *struct{} `json:"dead,omitempty"`
}

func benchMeta() *Meta {
	return &Meta{
		ID: "0199f3a2-7c1e-7b3a-9d55-0242ac120002", Type: "order.charge", Key: "order-1000042", CorrelationID: "req-77aa01",
		Created: ms(1764000000123), MaxAttempts: 5, Timeout: time.Minute,
	}
}

func BenchmarkMetaEncode(b *testing.B) {
	m := benchMeta()
	j := jsonMeta{V: 1, ID: m.ID, T: m.Type, K: m.Key, C: m.CorrelationID, Cr: m.Created.UnixMilli(), Ma: m.MaxAttempts, To: m.Timeout.Milliseconds()}
	b.Run("onceq", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			EncodeMeta(m)
		}
	})
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(&j); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkMetaDecode(b *testing.B) {
	s := EncodeMeta(benchMeta())
	b.Run("onceq", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeMeta(s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := json.Unmarshal([]byte(s), new(jsonMeta)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
