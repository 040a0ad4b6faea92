package httponceq

import (
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestRetryAfter: a wait is rounded up to seconds. Rounded down, "0" would have all who wait ask
// again at once.
func TestRetryAfter(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                          "0",
		1:                          "1",
		999 * time.Millisecond:     "1",
		time.Second:                "1",
		time.Second + 1:            "2",
		29*time.Second + 5e8:       "30",
		90 * time.Minute:           "5400",
		24*time.Hour + time.Second: "86401",
	} {
		w := httptest.NewRecorder()
		retryAfter(w, d)
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%v: Retry-After %q, want %q", d, got, want)
		}
	}
}

// FuzzKeyOf: whatever the header holds, a key that is taken has no control characters. Quoted and
// escaped it is the same key, with parameters behind it or without; a string without its end is
// none.
func FuzzKeyOf(f *testing.F) {
	for _, s := range []string{
		"", "k-1", `"k-1"`, `"k\"1"`, `"k\\1"`, `"k\1"`, `"k-1";v=1`, `"k-1" ; v`, `"k-1"x`, `"`, `"\`, `""`, `k"1`, `\`, "k\t1", "\"k\x7f\"",
		"caf\u00e9", "\xff", `"\xff"`, "a,b", ` "k"`,
	} {
		f.Add(s)
	}
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	f.Fuzz(func(t *testing.T, sent string) {
		name, ok := keyOf(sent)
		if !ok {
			return
		}
		for i := range len(name) {
			if name[i] < ' ' || name[i] == 0x7f {
				t.Fatalf("%q is the key %q", sent, name)
			}
		}
		if !strings.HasPrefix(sent, `"`) && name != sent {
			t.Fatalf("%q without quotes is the key %q", sent, name)
		}
		text := `"` + escape.Replace(name)
		for _, again := range []string{text + `"`, text + `" `, text + `";v=1`, text + `" ;v="2"`} {
			if got, ok := keyOf(again); !ok || got != name {
				t.Fatalf("%q is the key %q, and %q is %q, %v", sent, name, again, got, ok)
			}
		}
		if got, ok := keyOf(text); ok {
			t.Fatalf("%s is the key %q, and has no end", strconv.Quote(text), got)
		}
	})
}
