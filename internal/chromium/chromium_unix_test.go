//go:build unix

package chromium

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const html = `<!doctype html><meta name=viewport content="width=device-width,initial-scale=1"><title>a</title><style>p{color:#111} @media(prefers-color-scheme:dark){p{color:#eee}}</style>
<p id=p>before</p><form><label>Why <input name=why></label><button>Do it</button></form>
<button id=go onclick="document.title='x'">Later</button><div style="height:2000px"></div><a href="/next">Next page</a>
<script>document.querySelector("#go").addEventListener("click", () => fetch("/x").then(() => { document.querySelector("#p").textContent = "after" }))</script>
<noscript>no script here</noscript>`

// serve serves the page above, and beside it what is wrong in its own way.
func serve(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		switch r.URL.Path {
		case "/csp":
			w.Header().Set("Content-Security-Policy", "default-src 'none'")
			fmt.Fprint(w, "<script>1</script>bad")
		case "/throws":
			fmt.Fprint(w, "<script>null.x</script>bad")
		case "/says":
			fmt.Fprint(w, "<script>console.error('oh')</script>bad")
		case "/foreign":
			fmt.Fprint(w, "<img src=http://stranger.example/a.png>bad")
		case "/gone":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "bad")
		default:
			fmt.Fprintf(w, "%s<b>%s %s</b>", html, r.URL.Path, r.FormValue("why"))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestBrowser has one browser for all, because its start takes longest, and sees it end.
func TestBrowser(t *testing.T) {
	pid := 0
	t.Run("it", func(t *testing.T) {
		b := Start(t)
		pid = b.pid
		t.Run("taps", func(t *testing.T) { taps(t, b, serve(t)) })
		t.Run("complains", func(t *testing.T) { complains(t, b.Person(t), serve(t)) })
	})
	ended(t, pid)
}

// taps: a finger and a mouse, with scripts and without, come to the same page.
func taps(t *testing.T, b *Browser, url string) {
	for _, look := range []Look{{}, {Width: 360, Height: 640, Touch: true, Dark: true}, {Width: 360, Height: 640, Touch: true, NoScript: true}} {
		t.Run(fmt.Sprintf("%+v", look), func(t *testing.T) {
			p := b.Person(t).Tab(t, look)
			p.Go(url)
			var width int
			var color string
			p.Eval("innerWidth", &width)
			p.Eval("getComputedStyle(document.querySelector('p')).color", &color)
			if want := map[bool]string{false: "rgb(17, 17, 17)", true: "rgb(238, 238, 238)"}[look.Dark]; width != p.look.Width || color != want {
				t.Errorf("%d pixels, %s, want %s", width, color, want)
			}
			if look.NoScript {
				p.See("no script here")
			} else {
				p.Tap("#go")
				p.See("after")
			}
			p.Type("[name=why]", "a < b & ü")
			p.Tap("=Do it")
			p.See("/ a < b & ü")
			p.Follow("=Next")
			p.See("/next")
			if len(p.Picture()) < 1000 || p.Taps < 3 || len(p.Hosts()) != 1 {
				t.Error(p.Taps, p.Hosts())
			}
		})
	}
}

// complains: the browser's complaints come to the test, and no stranger's address is looked up.
func complains(t *testing.T, o *Person, url string) {
	for path, want := range map[string]string{
		"/csp": "Content Security Policy", "/throws": "TypeError", "/says": "oh", "/gone": "404", "/foreign": "ERR_NAME_NOT_RESOLVED",
	} {
		p := o.Tab(t, Look{})
		p.Go(url + path)
		p.See("bad")
		var all string
		p.wait(want, func() bool { // it may come after the page
			all += strings.Join(p.Wrong(), "; ")
			return strings.Contains(all, want)
		})
		if hosts := p.Hosts(); path == "/foreign" && (len(hosts) != 2 || hosts[1] != "stranger.example") {
			t.Error(hosts)
		}
		p.Close()
		p.Wrong()
	}
}

// ended: nothing of the browser is left after its test.
func ended(t *testing.T, pid int) {
	left, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if strings.HasPrefix(f.Name(), fmt.Sprintf("onceq-chromium-%d-", os.Getpid())) {
			t.Error("left behind:", f.Name())
		}
	}
	alive := func() (all []string) {
		stats, _ := filepath.Glob("/proc/[0-9]*/stat") // where there are such
		for _, stat := range stats {
			text, _ := os.ReadFile(stat)
			_, after, _ := strings.Cut(string(text), ") ")
			if f := strings.Fields(after); len(f) > 2 && f[2] == strconv.Itoa(pid) && f[0] != "Z" {
				all = append(all, string(text))
			}
		}
		return all
	}
	late, tick := time.NewTimer(patience), time.NewTicker(10*time.Millisecond)
	defer late.Stop()
	defer tick.Stop()
	for all := alive(); len(all) > 0; all = alive() { // a process that was killed ends when it is its turn
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("of its group are alive: %q", all)
		}
	}
}
