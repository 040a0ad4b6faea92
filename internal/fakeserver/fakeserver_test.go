package fakeserver_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/internal/fakeserver"
)

func TestLog(t *testing.T) {
	for size, want := range map[int][]int{-1: nil, 2: {3, 4}, 5: {0, 1, 2, 3, 4}, 9: {0, 1, 2, 3, 4}} {
		l := fakeserver.Log[int]{Size: size}
		for i := range 5 {
			l.Begin("send")
			l.End(i)
		}
		l.Begin("receive") // it still waits
		if got := l.Kept(); !slices.Equal(got, want) {
			t.Errorf("of %d: kept %v, want %v", size, got, want)
		}
		if got := l.Counts(); !maps.Equal(got, map[string]int{"send": 5, "receive": 1}) {
			t.Errorf("counts %v", got)
		}
		l.Reset()
		l.End(7)
		if got, counts := l.Kept(), l.Counts(); counts == nil || len(counts) > 0 || size > 0 && !slices.Equal(got, []int{7}) {
			t.Errorf("after a reset: %v, %v", got, counts)
		}
	}
}

func TestWords(t *testing.T) {
	ws := fakeserver.Words{"random", "work"}
	for i := range ws {
		text, err := ws.Text("fake", i)
		if back, e := ws.Value(text); err != nil || e != nil || back != i {
			t.Errorf("%d is %q, %v, and back %d, %v", i, text, err, back, e)
		}
	}
	if _, err := ws.Text("fake", 2); err == nil || err.Error() != "fake: 2 is none of random, work" {
		t.Error(err)
	}
	if _, err := ws.Value([]byte("never")); err == nil || err.Error() != `"never" is none of random, work` {
		t.Error(err)
	}
}

// An alarm that is set later rings as early as it was to; one that is set earlier does so, too.
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var a fakeserver.Alarm
		var rang []time.Duration
		ring := func() {
			mu.Lock()
			defer mu.Unlock()
			rang = append(rang, time.Since(began))
			a.Rung()
		}
		set := func(now, due time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			a.Set(int64(now), int64(due), ring)
		}
		set(0, 2*time.Second)
		set(0, 3*time.Second)
		<-time.After(5 * time.Second)
		set(5*time.Second, 8*time.Second)
		set(5*time.Second, 7*time.Second)
		<-time.After(5 * time.Second)
		set(10*time.Second, 11*time.Second)
		mu.Lock()
		a.Stop()
		a.Stop()
		mu.Unlock()
		<-time.After(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if want := []time.Duration{2 * time.Second, 7 * time.Second}; !slices.Equal(rang, want) {
			t.Errorf("it rang at %v, want %v", rang, want)
		}
	})
}

type controlled struct{ fakeserver.Log[int] }

func (*controlled) Seed() uint64 { return 1 << 63 }
func (c *controlled) ResetLog()  { c.Reset() }

func TestControl(t *testing.T) {
	type fault struct {
		Delay fakeserver.Span `json:"delay"`
	}
	var c controlled
	var faults []fault
	h := fakeserver.Control("fake", &c, func(fs []fault) error {
		if len(fs) > 1 {
			return errors.New("fake: too many")
		}
		faults = fs
		return nil
	})
	c.Begin("send")
	for _, r := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/_fake/health", "", 200, `{"status":"ok","seed":"9223372036854775808"}`},
		{"GET", "/_fake/requests", "", 200, `{"send":1}`},
		{"DELETE", "/_fake/requests", "", 200, `{}`},
		{"GET", "/_fake/requests", "", 200, `{}`},
		{"PUT", "/_fake/faults", `[{"delay":"2s"}]`, 200, `{"faults":1}`},
		{"PUT", "/_fake/faults", `[{},{}]`, 400, "fake: too many"},
		{"PUT", "/_fake/faults", `[{"delay":"soon"}]`, 400, `fake: the faults must be a JSON array: time: invalid duration "soon"`},
		{"PUT", "/_fake/faults", `[{"what":1}]`, 400, `fake: the faults must be a JSON array: json: unknown field "what"`},
		{"PUT", "/_fake/faults", "[" + strings.Repeat(" ", 1<<20) + "]", 400, "fake: the faults must be a JSON array: http: request body too large"},
		{"POST", "/_fake/health", "", 404, "fake: known are GET health, GET requests, DELETE requests and PUT faults, under /_fake/"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), r.method, r.path, strings.NewReader(r.body)))
		if got := strings.TrimSpace(w.Body.String()); w.Code != r.code || got != r.want {
			t.Errorf("%s %s %.40s: %d %s, want %d %s", r.method, r.path, r.body, w.Code, got, r.code, r.want)
		}
	}
	if got := fmt.Sprint(faults); got != "[{2000000000}]" {
		t.Errorf("the faults are %s", got)
	}
}
