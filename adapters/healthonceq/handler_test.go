package healthonceq_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/healthonceq"
)

// fixed is a worker in a state.
type fixed onceq.Health

func (f fixed) Health() onceq.Health { return onceq.Health(f) }

func get(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := func(d time.Duration) onceq.Dependency {
			return onceq.Dependency{Seen: time.Now().Add(-2 * time.Hour), Failing: time.Now().Add(-d), Err: "dial tcp db.internal: user=orders"}
		}
		const ok = "ok"
		for name, c := range map[string]struct {
			h           onceq.Health
			live, ready string
			startup     string // with ?patience=0
		}{
			"running":        {onceq.Health{State: onceq.StateRunning}, ok, ok, ok},
			"paused":         {onceq.Health{State: onceq.StatePaused, Reasons: []string{"ana"}}, ok, ok, ok},
			"starting":       {onceq.Health{State: onceq.StateStarting}, ok, "starting: no poll was answered yet", "starting: no poll was answered yet"},
			"stopped":        {onceq.Health{State: onceq.StateStopped}, ok, "stopped: Run is not under way", "stopped: Run is not under way"},
			"draining":       {onceq.Health{State: onceq.StateDraining}, ok, "draining", "draining"},
			"queue away":     {onceq.Health{State: onceq.StateOutage, Queue: away(10 * time.Second)}, ok, ok, "the queue has failed for 10s"},
			"queue long":     {onceq.Health{State: onceq.StateOutage, Queue: away(time.Minute)}, ok, "the queue has failed for 1m0s", "the queue has failed for 1m0s"},
			"store long":     {onceq.Health{State: onceq.StateOutage, Queue: onceq.Dependency{Seen: time.Now()}, Store: away(time.Hour)}, ok, "the store has failed for 1h0m0s", "the store has failed for 1h0m0s"},
			"never answered": {onceq.Health{State: onceq.StateOutage, Queue: onceq.Dependency{Failing: time.Now()}}, ok, "starting: no poll was answered yet", "starting: no poll was answered yet"},
			"letters":        {onceq.Health{State: onceq.StateRunning, Letters: away(time.Hour)}, ok, ok, ok},
			"silent":         {onceq.Health{State: onceq.StateRunning, Silent: 2 * time.Minute}, "no receive has come back for 2m0s beyond its time, and slots are free", ok, ok},
			"nearly silent":  {onceq.Health{State: onceq.StateRunning, Silent: 119 * time.Second}, ok, ok, ok},
			"late":           {onceq.Health{State: onceq.StateRunning, Late: time.Second}, "no heartbeat was sent for 1s beyond a lease's whole time", ok, ok},
			"overdue":        {onceq.Health{State: onceq.StateRunning, Load: onceq.Load{Slots: 1, Overdue: 1}, Stuck: time.Hour}, ok, ok, ok},
		} {
			h := healthonceq.Handler(fixed(c.h))
			for path, want := range map[string]string{"/livez": c.live, "/readyz": c.ready, "/readyz?patience=30s": c.ready, "/readyz?patience=0": c.startup} {
				code := http.StatusServiceUnavailable
				if want == ok {
					code = http.StatusOK
				}
				got := get(h, http.MethodGet, path)
				if got.Code != code || strings.TrimSpace(got.Body.String()) != want {
					t.Errorf("%s: %s is %d %q, want %d %q", name, path, got.Code, got.Body, code, want)
				}
			}
			got := get(h, http.MethodGet, "/healthz")
			if text := got.Body.String(); got.Code != http.StatusOK || strings.Contains(text, "db.internal") || strings.Contains(text, "ana") {
				t.Errorf("%s: /healthz is %d %s", name, got.Code, text)
			}
			var body struct{ Workers []map[string]any }
			if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil || len(body.Workers) != 1 || body.Workers[0]["live"] != c.live || body.Workers[0]["ready"] != c.ready {
				t.Errorf("%s: /healthz is %s, %v", name, got.Body, err)
			}
		}
	})
}

func TestBadRequests(t *testing.T) {
	h := healthonceq.Handler(fixed{State: onceq.StateRunning})
	for _, c := range []struct {
		method, path string
		code         int
		text         string
	}{
		{http.MethodGet, "/readyz?patience=30", http.StatusBadRequest, "patience: want a time with its unit, such as 30s"},
		{http.MethodGet, "/readyz?patience=-1s", http.StatusBadRequest, "patience: -1s is not within 0s and 1h0m0s"},
		{http.MethodGet, "/readyz?patience=2h", http.StatusBadRequest, "patience: 2h0m0s is not within 0s and 1h0m0s"},
		{http.MethodPost, "/livez", http.StatusMethodNotAllowed, ""},
		{http.MethodHead, "/livez", http.StatusOK, ""},
		{http.MethodGet, "/", http.StatusNotFound, ""},
	} {
		got := get(h, c.method, c.path)
		if got.Code != c.code || !strings.Contains(got.Body.String(), c.text) {
			t.Errorf("%s %s is %d %q, want %d %q", c.method, c.path, got.Code, got.Body, c.code, c.text)
		}
	}
}

func TestOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := healthonceq.NewHandler(&healthonceq.Options{Patience: time.Minute, Liveness: onceq.Liveness{Overdue: time.Second}}, fixed{
			State: onceq.StateOutage, Queue: onceq.Dependency{Seen: time.Now()}, Store: onceq.Dependency{Failing: time.Now().Add(-45 * time.Second)}, Load: onceq.Load{Slots: 1}, Stuck: time.Minute,
		})
		if got := get(h, http.MethodGet, "/readyz"); got.Code != http.StatusOK {
			t.Errorf("readyz is %d %q", got.Code, got.Body)
		}
		if got := get(h, http.MethodGet, "/livez"); got.Code != http.StatusServiceUnavailable {
			t.Errorf("livez is %d %q", got.Code, got.Body)
		}
		if got := get(h, http.MethodGet, "/healthz"); !strings.Contains(got.Body.String(), `"ready":"ok"`) || strings.Contains(got.Body.String(), `"live":"ok"`) {
			t.Errorf("healthz is %s", got.Body)
		}
	})
}

// Each of several workers must be well, and the answer says which is not.
func TestSeveralWorkers(t *testing.T) {
	h := healthonceq.Handler(fixed{State: onceq.StateRunning}, fixed{State: onceq.StateDraining})
	if got := get(h, http.MethodGet, "/readyz"); got.Code != http.StatusServiceUnavailable || got.Body.String() != "worker 2: draining\n" {
		t.Errorf("readyz is %d %q", got.Code, got.Body)
	}
	if got := get(h, http.MethodGet, "/livez"); got.Code != http.StatusOK {
		t.Errorf("livez is %d %q", got.Code, got.Body)
	}
}

// A patience below zero is the default, and not the least.
func TestNegativePatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for away, code := range map[time.Duration]int{29 * time.Second: http.StatusOK, 30 * time.Second: http.StatusServiceUnavailable} {
			h := healthonceq.NewHandler(&healthonceq.Options{Patience: -time.Hour}, fixed{
				State: onceq.StateOutage, Queue: onceq.Dependency{Seen: time.Now()}, Store: onceq.Dependency{Failing: time.Now().Add(-away)},
			})
			if got := get(h, http.MethodGet, "/readyz"); got.Code != code {
				t.Errorf("after %v readyz is %d %q", away, got.Code, got.Body)
			}
		}
	})
}

// A worker that is nil is found when the program starts, and not by the first probe.
func TestNilWorker(t *testing.T) {
	for name, w := range map[string]healthonceq.Reporter{"nil": nil, "a nil pointer": (*onceq.Worker)(nil)} {
		func() {
			defer func() {
				if v := recover(); v != "healthonceq: worker 2 is nil" {
					t.Errorf("%s: the panic is %v", name, v)
				}
			}()
			healthonceq.Handler(fixed{}, w)
		}()
	}
}
