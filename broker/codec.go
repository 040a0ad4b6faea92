package broker

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// This file owns the form in which metadata travels, and writes it. Drivers call EncodeMeta for
// each message that they send. dlq calls it to export letters and to compare them. Nothing is
// locked, because the functions keep no state. codec_decode.go reads the form.

// MaxMeta is the longest metadata that [DecodeMeta] reads, in bytes. No service carries
// an attribute of this size; what is longer was never written by onceq.
const MaxMeta = 1 << 20

// metaVersion is the version of the form that this package writes.
const metaVersion = 1

// Times travel in milliseconds and lie in the years 1 to 9999, which every other
// language's time can hold. The zero time is not among them: it is left out.
const (
	minMillis = -62135596799999
	maxMillis = 253402300799999
	// maxTimeout is the longest time.Duration, in milliseconds.
	maxTimeout = math.MaxInt64 / int64(time.Millisecond)
)

// EncodeMeta writes m in the form in which it travels: one compact JSON object.
//
//	{"v":1,"id":"j-1","t":"mail","k":"order-7","c":"req-9","cr":1764000000000}
//
// Its members, left out when empty, are
//
//	v     version, an integer from 1   ma    MaxAttempts
//	id    ID                           to    Timeout, milliseconds, rounded up
//	t     Type                         be    BodyEncoding
//	k     Key                          dead  Dead, an object:
//	c     CorrelationID                        f Fence, c Class, fe FirstErr, le LastErr,
//	cr    Created, Unix milliseconds           a Attempts, s Source, sc Scope, rk Key,
//	nb    NotBefore, the same                  at At, ua Attributes, an object of texts,
//	pp    Postponed, the same                  sv Saved, sg Signature
//	ex    Expires, the same
//
// The Key of Dead is mostly the job's own: k, else id. Keys may be long and room is short, so rk is
// left out there, and an sc without rk says that the Key is the job's own.
//
// A version only ever adds members; what it does not know it keeps ([Meta].Extra and
// [Letter].Extra) and writes again, together with the higher version number. A change that
// an older reader would misread needs another attribute.
//
// The text holds no character that XML 1.0, and with it SQS, cannot carry: these are
// escaped. Bytes that are not UTF-8 become U+FFFD. What has no meaning is corrected
// rather than written: a timeout or an attempt count below zero and an Extra that is
// not a run of unknown members are left out, and times are brought into the years 1 to
// 9999. A nil m gives the empty string.
func EncodeMeta(m *Meta) string {
	if m == nil {
		return ""
	}
	var buf [512]byte
	return string(appendMeta(buf[:0], m))
}

// appendMeta appends what [EncodeMeta] would return.
func appendMeta(dst []byte, m *Meta) []byte {
	if m == nil {
		return dst
	}
	dst = append(dst, `{"v":`...)
	dst = strconv.AppendInt(dst, int64(max(metaVersion, m.Version)), 10)
	dst = appendTextMember(dst, `,"id":`, m.ID)
	dst = appendTextMember(dst, `,"t":`, m.Type)
	dst = appendTextMember(dst, `,"k":`, m.Key)
	dst = appendTextMember(dst, `,"c":`, m.CorrelationID)
	dst = appendTimeMember(dst, `,"cr":`, m.Created)
	dst = appendTimeMember(dst, `,"nb":`, m.NotBefore)
	dst = appendTimeMember(dst, `,"pp":`, m.Postponed)
	dst = appendTimeMember(dst, `,"ex":`, m.Expires)
	dst = appendIntMember(dst, `,"ma":`, int64(m.MaxAttempts))
	dst = appendIntMember(dst, `,"to":`, timeoutMillis(m.Timeout))
	dst = appendTextMember(dst, `,"be":`, m.BodyEncoding)
	if m.Dead != nil {
		dst = append(dst, `,"dead":`...)
		dst = appendDead(dst, m.Dead, keyOf(m))
	}
	dst = appendExtra(dst, m.Extra, isMetaMember)
	return append(dst, '}')
}

// keyOf is the key that the metadata itself gives to the job.
func keyOf(m *Meta) string { return cmp.Or(m.Key, m.ID) }

// appendDead appends d, whose message has the key own.
func appendDead(dst []byte, d *Letter, own string) []byte {
	dst = append(dst, '{')
	start := len(dst)
	if d.Fence != 0 {
		dst = append(dst, `,"f":`...)
		dst = strconv.AppendUint(dst, d.Fence, 10)
	}
	dst = appendTextMember(dst, `,"c":`, d.Class)
	dst = appendTextMember(dst, `,"fe":`, d.FirstErr)
	dst = appendTextMember(dst, `,"le":`, d.LastErr)
	dst = appendIntMember(dst, `,"a":`, int64(max(0, d.Attempts)))
	dst = appendTextMember(dst, `,"sv":`, d.Saved)
	dst = appendTextMember(dst, `,"s":`, d.Source)
	dst = appendTextMember(dst, `,"sc":`, d.Scope)
	switch {
	case d.Scope == "":
		dst = appendTextMember(dst, `,"rk":`, d.Key)
	case d.Key != own:
		dst = appendText(append(dst, `,"rk":`...), d.Key)
	}
	dst = appendTimeMember(dst, `,"at":`, d.At)
	dst = appendTextsMember(dst, `,"ua":`, d.Attributes)
	dst = appendTextMember(dst, `,"sg":`, d.Signature)
	dst = appendExtra(dst, d.Extra, isDeadMember)
	if len(dst) > start {
		// Every member brought its own comma, the first one too.
		dst = append(dst[:start], dst[start+1:]...)
	}
	return append(dst, '}')
}

func appendTextMember(dst []byte, name, s string) []byte {
	if s == "" {
		return dst
	}
	dst = append(dst, name...)
	return appendText(dst, s)
}

// appendTextsMember writes the names in order, so that equal metadata is equal text.
func appendTextsMember(dst []byte, name string, texts map[string]string) []byte {
	if len(texts) == 0 {
		return dst
	}
	dst = append(dst, name...)
	comma := byte('{')
	for _, k := range slices.Sorted(maps.Keys(texts)) {
		dst = appendText(append(dst, comma), k)
		dst = appendText(append(dst, ':'), texts[k])
		comma = ','
	}
	return append(dst, '}')
}

func appendIntMember(dst []byte, name string, n int64) []byte {
	if n == 0 {
		return dst
	}
	dst = append(dst, name...)
	return strconv.AppendInt(dst, n, 10)
}

func appendTimeMember(dst []byte, name string, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	var ms int64
	switch s := t.Unix(); {
	case s < minMillis/1000-1:
		ms = minMillis
	case s > maxMillis/1000:
		ms = maxMillis
	default:
		ms = max(t.UnixMilli(), minMillis)
	}
	dst = append(dst, name...)
	return strconv.AppendInt(dst, ms, 10)
}

// timeoutMillis rounds up, so that a timeout below a millisecond does not become none.
func timeoutMillis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond != 0 {
		ms++
	}
	return min(ms, maxTimeout)
}

const hexDigits = "0123456789abcdef"

// appendText appends s as a JSON string of characters that XML 1.0 can carry.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if 0x20 <= c && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		r, n := rune(c), 1
		if c >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(s[i:])
			if r > 0x9f && r < 0xfffd || r > 0xffff {
				i += n
				continue
			}
		}
		dst = append(dst, s[done:i]...)
		i += n
		done = i
		switch r {
		case utf8.RuneError:
			dst = utf8.AppendRune(dst, r)
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = appendEscape(dst, r)
		}
	}
	dst = append(dst, s[done:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// appendExtra writes the members of a newer version again, unless they would spoil the
// object: an owner of a Meta may have put anything there.
func appendExtra(dst []byte, extra string, known func(string) bool) []byte {
	if extra == "" || checkExtra(extra, known) != nil {
		return dst
	}
	dst = append(dst, ',')
	return append(dst, carriable(extra)...)
}

// carriable escapes the two characters that a JSON text may hold and XML 1.0 may not. In a
// run of valid members they stand inside strings.
func carriable(members string) string {
	if !strings.Contains(members, "\uFFFE") && !strings.Contains(members, "\uFFFF") {
		return members
	}
	return strings.NewReplacer("\uFFFE", `\ufffe`, "\uFFFF", `\uffff`).Replace(members)
}
