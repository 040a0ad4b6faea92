package webonceq

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
)

// FuzzForms: whatever a form says, its answer is a screen of ours or a way within the page, and no
// server's error. It makes no rule but that of its route, for its queue, with a name and a reason
// and an end within 30 days.
func FuzzForms(f *testing.F) {
	var posts []string
	for _, x := range routes() {
		if x.method == http.MethodPost {
			posts = append(posts, x.path)
		}
	}
	for i := range posts {
		for _, form := range []string{
			"", "%zz", "&&=;", "back=%2F%2Fevil.example%2F&reason=x", "back=%2F.%2F%2Fevil.example&reason=x", "back=%2F%5Cevil.example&reason=x",
			"reason=" + url.QueryEscape(hostile[0]) + "&for=" + url.QueryEscape(hostile[2]) + "&type=" + url.QueryEscape(hostile[1]) + "&back=javascript%3Aalert(1)",
			"reason=x&for=1h&slots=0&type=charge&scope=shop", "reason=x&for=30m&slots=5", "reason=x&for=9999h&slots=-1", "reason=+&for=1h", "reason=x&for=1m&type=%00%1b%5B2J",
			"reason=x&scope=shop:charge&key=parked-1&fence=2&to=done&queue=orders&body=%7B%7D", "reason=x&scope=%3Aonce&key=k&fence=-1&to=parked", "key=order-2&scope=shop:charge&fence=99999999999999999999",
			"since=2026-11-22T03:00:00Z&class=timeout&group=x", "since=-1h", "since=9999-12-31T23:59:59-23:59", "patch=%7B%22a%22%3Anull%7D", "patch=%5B", "number=7&canary=-1&rate=1e9&reason=x",
		} {
			f.Add(byte(i), form)
		}
	}
	f.Fuzz(func(t *testing.T, route byte, form string) {
		n := newNight(t, &Options{Access: who("ana", All)})
		n.fail("order-1", "timeout", "no answer", `{"cents":1}`)
		n.end("parked-1", dedupe.Parked, "interrupted", "the worker died", `{"cents":2}`)
		path := posts[int(route)%len(posts)]
		to := strings.NewReplacer("{queue}", "orders", "{id}", "r1", "{group}", "x").Replace(path)
		r := httptest.NewRequest(http.MethodPost, to, strings.NewReader(form))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		w := n.ask(r)
		switch at, err := url.Parse(w.Header().Get("Location")); {
		case w.Code == http.StatusInternalServerError:
			t.Fatalf("%s with %q is answered %d", to, form, w.Code)
		case w.Code == http.StatusSeeOther && (err != nil || at.Host != "" || at.Scheme != "" || !strings.HasPrefix(at.Path, "/") || strings.HasPrefix(at.Path, "//") || strings.Contains(at.Path, "\\")):
			t.Fatalf("%s with %q leads to %q", to, form, w.Header().Get("Location"))
		}
		if found := foreign(w.Body.String()); len(found) > 0 {
			t.Fatalf("%s with %q has %q", to, form, found)
		}
		rules, err := controlstore.Read(t.Context(), n.store)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rules.Rules {
			pauses := strings.HasSuffix(path, "/pause")
			if !pauses && !strings.HasSuffix(path, "/limit") || pauses != (r.Do == control.Pause) || r.Queue != "orders" || r.By != "ana" ||
				strings.TrimSpace(r.Reason) == "" || time.Until(r.Until) > 30*24*time.Hour {
				t.Errorf("%s with %q has made %+v", to, form, r)
			}
		}
	})
}
