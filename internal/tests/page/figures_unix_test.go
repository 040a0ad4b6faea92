//go:build unix

package page

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/child"
)

// This file owns what the page costs. What a busy machine cannot change is a test: requests, and
// the bytes in adapters/webonceq. The rest is printed for docs/page.md where -figures asks for it.

var figures = flag.Bool("figures", false, "print the figures of docs/page.md")

// visit is somebody who asks for a screen.
func visit(ctx context.Context, url string) (body []byte, first time.Duration, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	q.AddCookie(&http.Cookie{Name: "as", Value: "ana"})
	began := time.Now()
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, 0, err
	}
	first = time.Since(began)
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, res.Status)
	}
	return body, first, err
}

// crowd is five queues with 200 workers.
func (s *scene) crowd() {
	s.Helper()
	for _, q := range queueNames {
		for i := range 40 {
			s.card(q, fmt.Sprintf("w-%d/1", i+1), func(c *control.WorkerStatus) { c.Busy = i })
		}
	}
}

// TestViewers: fifty who come at once cost the queues and the store what one does.
func TestViewers(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	cost := func(viewers int) map[string]int {
		_, url := serve(t, s.ops, nil)
		s.server.ResetLog()
		var all sync.WaitGroup
		for range viewers {
			all.Go(func() {
				if _, _, err := visit(t.Context(), url+"/"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		return s.server.Counts()
	}
	cost(1) // names are asked for once
	if one, fifty := cost(1), cost(50); len(one) == 0 || fmt.Sprint(one) != fmt.Sprint(fifty) {
		t.Errorf("one viewer costs %v, fifty cost %v", one, fifty)
	}
}

// TestFigures prints what docs/page.md has.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("it is for -figures")
	}
	s := newScene(t, nil)
	s.crowd()
	cold, warm := make([]time.Duration, 0, 20), make([]time.Duration, 0, 200)
	for range cap(cold) {
		_, url := serve(t, s.ops, nil)
		_, first, err := visit(t.Context(), url+"/")
		if err != nil {
			t.Fatal(err)
		}
		cold = append(cold, first)
	}
	for range cap(warm) {
		_, first, err := visit(t.Context(), s.url+"/")
		if err != nil {
			t.Fatal(err)
		}
		warm = append(warm, first)
	}
	slices.Sort(cold)
	slices.Sort(warm)
	fmt.Printf("first byte of /: warm %v (95 %%: %v), cold %v (95 %%: %v)\n", warm[len(warm)/2], warm[len(warm)*95/100], cold[len(cold)/2], cold[len(cold)*95/100])
	f := timeout
	f.n = 15_000
	s.fail(f)
	s.command(t)
	t.Setenv(measureEnv, "1")
	_, c := s.alone()
	<-c.Done()
}

// command prints what onceq web needs for fifty who look, 32 of them by streams, for 20 s.
func (s *scene) command(t *testing.T) {
	exe, config := filepath.Join(t.TempDir(), "onceq"), "profiles:\n  p:\n    store: sqlite://"+s.File+"\n    queues:\n"
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", exe, ".")
	build.Dir = "../../../cmd/onceq"
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, name := range queueNames {
		config += "      " + name + ": {url: sqs+" + s.SQS + "/" + name + "}\n"
	}
	if err := os.WriteFile(exe+".yaml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	web := exec.CommandContext(t.Context(), exe, "--by", "ana", "-o", "json", "web")
	web.Env = []string{"ONCEQ_CONFIG=" + exe + ".yaml", "HOME=" + filepath.Dir(exe)}
	urls, err := web.StdoutPipe()
	if err == nil {
		err = web.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = web.Process.Kill(), web.Wait() }()
	var v struct{ URL string }
	if err := json.NewDecoder(urls).Decode(&v); err != nil {
		t.Fatal(err)
	}
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar, Transport: &http.Transport{MaxIdleConnsPerHost: 50}}
	at, _, _ := strings.Cut(v.URL, "?")
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
	defer leave()
	look := func(url string) (status int) {
		q, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		res, err := browser.Do(q)
		if err != nil {
			return 0
		}
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	if status := look(v.URL); status != http.StatusOK {
		t.Fatal(status)
	}
	s.server.ResetLog()
	streams := atomic.Int64{}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			look(at)
			if look(at+"events?live=board") != http.StatusTooManyRequests {
				streams.Add(1)
			}
		})
	}
	all.Wait()
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", web.Process.Pid))
	fmt.Printf("onceq web, fifty who look, %d by streams, 20 s: %q, requests %v\n", streams.Load(), regexp.MustCompile(`(VmHWM|RssAnon):\s+\d+ kB`).FindAllString(string(status), -1), s.server.Counts())
}

// measureEnv has the page's process measure itself instead.
const measureEnv = "ONCEQ_PAGE_MEASURE"

// measure tells what the page adds to a process.
func measure(ctx context.Context, w *world) error {
	rss := func() float64 {
		debug.FreeOSMemory()
		text, err := os.ReadFile("/proc/self/statm")
		fields := strings.Fields(string(text))
		if err != nil || len(fields) < 2 {
			return 0
		}
		pages, _ := strconv.Atoi(fields[1])
		return float64(pages*os.Getpagesize()) / 1e6
	}
	server := httptest.NewServer(http.NewServeMux()) // a service has one, and its client
	_, _, _ = visit(ctx, server.URL)
	if _, err := w.ops.Overview(ctx); err != nil {
		return err
	}
	before := rss()
	_, h, err := handler(w.ops, nil)
	if err != nil {
		return err
	}
	page := httptest.NewServer(h)
	said := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	said("RSS of a service %.1f MB; with the page and nobody who looks +%.1f MB", before, rss()-before)
	for range 20 {
		if _, _, err := visit(ctx, page.URL+"/"); err != nil {
			return err
		}
	}
	said("with one who looks +%.1f MB", rss()-before)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { _, _, _ = visit(ctx, page.URL+"/") })
	}
	all.Wait()
	said("with fifty who look +%.1f MB", rss()-before)
	began := time.Now()
	first := time.Duration(0)
	if _, _, err := visit(ctx, page.URL+"/q/orders/letters"); err != nil { // which begins a pass
		return err
	}
	for {
		var v struct {
			Ended  time.Time
			Groups []any
		}
		text, _, err := visit(ctx, page.URL+"/api/letters.json?queue=orders")
		if err == nil {
			err = json.Unmarshal(text, &v)
		}
		if err != nil {
			return err
		}
		if first == 0 && len(v.Groups) > 0 {
			first = time.Since(began)
		}
		if !v.Ended.IsZero() {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	said("15,000 letters: the first groups after %v, all after %v, and +%.1f MB", first.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), rss()-before)
	child.Tell("measured")
	return nil
}
