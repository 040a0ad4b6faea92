package webonceq

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/ops"
)

// large is a page of five queues with forty workers each.
func large(t testing.TB) *Page {
	store := must(memstore.New(nil))
	n := &night{t: t, store: store}
	var targets []ops.Target
	for q := range 5 {
		name := fmt.Sprint("queue-", q)
		targets = append(targets, ops.Target{Name: name, Queue: must(membroker.New(&membroker.Options{Name: name})), DeadLetters: must(membroker.New(nil)), Store: store})
		for w := range 40 {
			jobs := make([]control.RunningJob, 20)
			for i := range jobs {
				jobs[i] = control.RunningJob{Key: fmt.Sprint("order-", w, "-", i), Type: "charge", At: time.Now(), Attempt: 1, Fence: uint64(i)}
			}
			n.card(name, fmt.Sprintf("worker-%d.example/%d", w, q), control.WorkerStatus{
				Version: "v1.2.0", Scope: "shop", Types: []string{"charge", "refund"}, Slots: 100, Busy: 20, Rate: 300, Minute: &control.Runs{Runs: 300, Errors: 3}, Jobs: jobs,
			})
		}
	}
	n.ops = must(ops.New(targets, nil))
	n.open(&Options{Access: who("ana", All)})
	return n.page
}

func asked(p *Page, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// The figures that a phone on a bad line can bear.
func TestSizes(t *testing.T) {
	p := large(t)
	for path, most := range map[string]int{"/": 40 << 10, "/q/queue-1": 40 << 10} {
		w := asked(p, path)
		if w.Code != 200 || w.Body.Len() > most {
			t.Errorf("%s: %d, %d bytes, at most %d may be", path, w.Code, w.Body.Len(), most)
		}
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		_, _ = z.Write(w.Body.Bytes())
		_ = z.Close()
		t.Logf("%s has %d bytes, compressed %d", path, w.Body.Len(), zipped.Len())
	}
	plain, zipped := 0, 0
	for _, name := range []string{"page.css", "live.js"} {
		plain += asked(p, staticPath()+name).Body.Len()
		r := httptest.NewRequest(http.MethodGet, staticPath()+name, nil)
		r.Host = "localhost"
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		zipped += w.Body.Len()
		if z, err := gzip.NewReader(w.Body); err != nil {
			t.Error(err)
		} else if text, err := io.ReadAll(z); err != nil || !bytes.Equal(text, asked(p, staticPath()+name).Body.Bytes()) {
			t.Errorf("%s unpacks to something else: %v", name, err)
		}
	}
	if plain > 16<<10 || zipped > 12<<10 {
		t.Errorf("style and script have %d bytes, compressed %d; at most 16 and 12 KB may be", plain, zipped)
	}
	t.Logf("style and script have %d bytes, compressed %d", plain, zipped)
	if w := asked(p, "/static/000000000000/page.css"); w.Code != http.StatusNotFound {
		t.Errorf("another version: %d", w.Code)
	}
}

// BenchmarkHome is the first byte of the first screen, warm: five queues, 200 workers.
func BenchmarkHome(b *testing.B) {
	p := large(b)
	asked(p, "/")
	b.ReportAllocs()
	for b.Loop() {
		if w := asked(p, "/"); w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}

// A stream tells that a screen has changed, and nothing of what is on it.
func TestStream(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	s := httptest.NewServer(n.page)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := func(ctx context.Context, live string) *http.Response {
		t.Helper()
		r := must(http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/events?live="+url.QueryEscape(live), nil))
		a, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Body.Close() })
		return a
	}
	a := open(ctx, "letters:orders")
	if a.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v", a.Header)
	}
	in := bufio.NewScanner(a.Body)
	next := func() (version string) {
		t.Helper()
		for in.Scan() {
			text, ok := strings.CutPrefix(in.Text(), "data: ")
			if !ok {
				continue
			}
			var part struct{ ID, Version string }
			if err := json.Unmarshal([]byte(text), &part); err != nil || part.ID != "letters:orders" {
				t.Fatalf("%s, %v", text, err)
			}
			return part.Version
		}
		t.Fatalf("the stream has ended: %v", in.Err())
		return ""
	}
	first := next()
	n.begun("/q/orders/look", nil)
	if second := next(); second == first {
		t.Error("a pass changes nothing")
	}
	for n.page.life.streams.Load() < MaxStreams {
		open(ctx, "board")
	}
	if a := open(ctx, "board"); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
		t.Errorf("one stream more: %d", a.StatusCode)
	}
	if err := n.page.Close(ctx); err != nil { // it ends the streams
		t.Error(err)
	}
	for in.Scan() {
	}
	if in.Err() != nil {
		t.Error(in.Err())
	}
}

// New asks nobody, and nothing runs until somebody looks.
func TestNewDoesNothing(t *testing.T) {
	n := newNight(t, nil)
	if look, err := n.page.board.Letters("orders"); look != nil || err != nil {
		t.Errorf("%v, %v", look, err)
	}
	if n.page.life.streams.Load() != 0 || len(n.page.running.Acts()) > 0 {
		t.Error("something runs")
	}
}

// What the screens show a program reads as JSON, under the same permissions.
func TestJSON(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", Look)}).usual()
	if w := n.get("/api/letters.json?queue=orders"); w.Code != http.StatusNotFound {
		t.Errorf("letters before a look: %d", w.Code)
	}
	n.waitLetters()
	for path, want := range map[string]string{
		"/api/queues.json":               `"queue": "orders"`,
		"/api/letters.json?queue=orders": `"count": 5`,
		"/api/acts.json":                 `[]`,
		"/api/audit.json":                `[]`,
	} {
		w := n.get(path)
		var v any
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %v %s", path, w.Code, err, w.Body)
		}
		if strings.Contains(w.Body.String(), "deadline exceeded") {
			t.Errorf("%s shows the text of an error", path)
		}
	}
}

// An export has each letter of the group as a line, and a failure before the first one is no file.
func TestExport(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	group := n.groupOf("timeout")
	w := n.get("/q/orders/letters/" + group + "/export")
	if lines := strings.Count(w.Body.String(), "\n"); w.Code != 200 || lines != 5 || !strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment; filename=\"letters-orders-"+group) {
		t.Errorf("%d, %d lines, %v", w.Code, lines, w.Header())
	}
	if w := n.get("/q/orders/letters/00000000/export"); w.Code != http.StatusNotFound || w.Header().Get("Content-Disposition") != "" {
		t.Errorf("of no letters: %d %v", w.Code, w.Header())
	}
}
