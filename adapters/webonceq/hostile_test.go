package webonceq

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/control"
)

var update = flag.Bool("update", false, "write testdata/hostile.txt as the screens are now")

// hostile are texts that whoever may send a message may put into keys, types, errors and bodies.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"onmouseover="alert(1)`,
	`'><img src=x onerror=alert(1)>`,
	`javascript:alert(1)`,
	"\u202egnp.exe\u2066 right to left",
	"two\u200blooks\u00adalike",
	"line\nbreak\r\x1b[2J\x00",
	"not utf-8: \xff\xfe",
	`{{.Who}} </bdi></a></td></template>`,
	strings.Repeat("long ", 50) + "end",
}

var (
	loneTag     = regexp.MustCompile(`<(/?)([a-zA-Z][a-zA-Z0-9]*)([^>]*)>`)
	attr        = regexp.MustCompile(`\s([^\s=/>"]+)(="[^"]*")?`)
	timed       = regexp.MustCompile(`(?s)<p class="soft ends">.*?</p>|<small>\+[^<]*</small>`)
	hiddenInput = regexp.MustCompile(`<input type="hidden"[^>]*>`)
	stamps      = regexp.MustCompile(`\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?|\d\d:\d\d:\d\d|\d+(\.\d+)?( ms| s| min)( ago)?|\d{10,}|just now|\b[0-9a-f]{8}\b|\+\S+`)
)

// own are the elements and attributes that our templates write. All else came from a message.
var own = func() (names map[string]bool) {
	names = map[string]bool{}
	for name := range strings.FieldsSeq(`html head meta title link script noscript body a header b nav p span time div bdi main svg rect polyline polygon section h1 h2 h3 article
		dl dt dd small ul li ol table thead tbody tr th td details summary pre form label input select option textarea button progress code br em bdo
		lang charset name content rel href type src defer class id datetime role aria-label aria-hidden data-events data-live data-version data-part data-queue data-group viewBox preserveAspectRatio
		x y width height points method action value required maxlength autocomplete autocapitalize spellcheck rows placeholder scope data-l dir download max selected checked open
		inputmode min size title http-equiv del ins`) {
		names[strings.ToLower(name)] = true
	}
	return names
}()

// foreign are elements and attributes of a screen that are none of ours.
func foreign(screen string) (found []string) {
	for _, tag := range loneTag.FindAllStringSubmatch(screen, -1) {
		if !own[strings.ToLower(tag[2])] {
			found = append(found, "<"+tag[2]+">")
		}
		for _, a := range attr.FindAllStringSubmatch(tag[3], -1) {
			if !own[strings.ToLower(a[1])] {
				found = append(found, tag[2]+" "+a[1])
			}
			if url := strings.ToLower(a[2]); strings.Contains(url, `="javascript:`) && a[1] != "value" || strings.Contains(url, `="data:`) {
				found = append(found, tag[2]+" "+a[1]+a[2])
			}
		}
	}
	return found
}

// The rule: what a message says is text on every screen, and steers nothing. The file has the text
// of the screens as a browser shows it.
func TestHostileLetters(t *testing.T) {
	n := newNight(t, &Options{Title: `<b>"prod"`, Access: who(`<i>ana</i>`, All)})
	for i, text := range hostile {
		key := text
		if len(key) > 100 || strings.ContainsAny(key, "\n\x00") || !utf8.ValidString(key) {
			key = fmt.Sprint("key-", i)
		}
		n.letter(key, text, text, text, `{"text": `+string(quoted(strings.ToValidUTF8(text, "?")))+`}`)
	}
	n.letter("large", "charge", "permanent", "one line", strings.Repeat("0123456789abcdef", 256<<10/16))
	n.letter("no-text", "charge", "permanent", "one line", "\xff\xfe\x00")
	n.card("orders", hostile[0], control.WorkerStatus{
		Scope: hostile[1], Version: hostile[2], Types: []string{hostile[0], hostile[1]}, Slots: 1,
		Jobs: []control.RunningJob{{Key: hostile[3], Type: hostile[4], Attempt: 1, At: time.Now()}},
	})
	if _, err := n.ops.Pause(t.Context(), control.Rule{ID: "r1", Queue: "orders", Type: hostile[1], Until: time.Now().Add(time.Hour), By: hostile[0], Reason: hostile[0]}, unfollowed); err != nil {
		t.Fatal(err)
	}
	n.waitLetters()
	look := must(n.page.board.Letters("orders"))
	screens := []string{"/", "/q/orders", "/q/orders/letters", "/keys?status=failed", "/audit"}
	for i := range look.Groups {
		screens = append(screens, "/q/orders/letters/"+look.Groups[i].Group.Group)
	}
	for _, key := range []string{hostile[0], hostile[1], hostile[3], hostile[4]} {
		screens = append(screens, (&view{}).Key("orders", "shop:charge", key), (&view{}).Key("", "", key))
	}
	for _, q := range []string{"class", "type", "since", "status", "queue", "by", "prefix"} {
		for _, path := range []string{"/keys", "/audit", "/q/orders/letters"} {
			screens = append(screens, path+"?"+q+"=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
		}
	}
	var got strings.Builder
	for _, path := range screens {
		w := n.get(path)
		body := w.Body.String()
		if f := foreign(body); len(f) > 0 {
			t.Errorf("%s has %q", path, f)
		}
		if i := strings.IndexFunc(hiddenInput.ReplaceAllString(body, ""), steers); i >= 0 {
			t.Errorf("%s has a character that steers the screen, at %d", path, i)
		}
		name := path
		if i := strings.Index(path, "/letters/"); i > 0 {
			name = path[:i] + "/letters/GROUP"
		}
		fmt.Fprintf(&got, "%s: %d\n%s\n\n", name, w.Code, stamps.ReplaceAllString(text(timed.ReplaceAllString(body, "")), "#"))
	}
	if d := n.get("/q/orders/body/" + n.idOf("large")); d.Header().Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(d.Header().Get("Content-Disposition"), "attachment") || d.Body.Len() != 256<<10 {
		t.Errorf("the large body: %v, %d bytes", d.Header(), d.Body.Len())
	}
	const file = "testdata/hostile.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		g, w := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
		for i := range min(len(g), len(w)) {
			if g[i] != w[i] {
				t.Fatalf("line %d is\n%s\nwant (go test ./adapters/webonceq -run Hostile -update writes it)\n%s", i+1, g[i], w[i])
			}
		}
		t.Fatalf("%d lines, want %d", len(g), len(w))
	}
}

// steers reports whether a character changes what stands around it: it must be written out.
func steers(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200b || r == 0xad
}

// idOf is the message's id of a key's letter.
func (n *night) idOf(key string) string {
	look := must(n.page.board.Letters("orders"))
	for i := range look.Groups {
		for j := range look.Groups[i].Letters {
			if e := &look.Groups[i].Letters[j]; e.Ref().Key == key {
				return e.Message.ID
			}
		}
	}
	n.t.Fatalf("no letter of %s", key)
	return ""
}
