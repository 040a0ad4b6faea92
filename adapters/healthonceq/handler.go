package healthonceq

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the answers to probes. The HTTP server calls the handlers, each in a goroutine of
// its own. Nothing is kept between two of them, and nothing is locked.

const (
	defaultPatience = 30 * time.Second
	maxPatience     = time.Hour
)

// Options say how patient the probes are. The zero value means the defaults.
type Options struct {
	// Patience is how long queue or store may fail before /readyz fails, unless the request sets
	// it. Default 30 s; a negative value means the default. At most 1 h; more counts as 1 h.
	Patience time.Duration
	// Liveness bounds what /livez lets pass. Default as in [onceq.Health.Live].
	Liveness onceq.Liveness
}

// Reporter is a worker, as far as probes ask it: an *[onceq.Worker].
type Reporter interface {
	Health() onceq.Health
}

// Handler is [NewHandler] with the defaults.
func Handler(w ...Reporter) http.Handler { return NewHandler(nil, w...) }

// NewHandler answers GET and HEAD of /livez, /readyz and /healthz for the workers; the package
// comment says what. Any other path is 404. It does no I/O beyond its answer. Without a worker it
// answers 200, because there is nothing that could be ill. It panics where one of the workers is
// nil. nil options mean the defaults.
func NewHandler(options *Options, w ...Reporter) http.Handler {
	var o Options
	if options != nil {
		o = *options
	}
	for i, one := range w {
		if values.IsNil(one) {
			// invariant: a nil is the program's mistake, as for http.Handle; no probe is to find it
			panic(fmt.Sprintf("healthonceq: worker %d is nil", i+1))
		}
	}
	o.Patience = min(cmp.Or(max(0, o.Patience), defaultPatience), maxPatience)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(rw http.ResponseWriter, _ *http.Request) {
		answer(rw, each(w, func(h *onceq.Health) error { return h.Live(&o.Liveness) }))
	})
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, r *http.Request) {
		bound, err := patienceOf(r, o.Patience)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		answer(rw, each(w, func(h *onceq.Health) error { return h.Ready(bound) }))
	})
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) {
		all := make([]worker, len(w))
		for i, one := range w {
			all[i] = o.shown(one.Health())
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(rw).Encode(struct {
			Workers []worker `json:"workers"`
		}{all})
	})
	return mux
}

// patienceOf is what the request asks for, if it does.
func patienceOf(r *http.Request, patience time.Duration) (time.Duration, error) {
	text := r.URL.Query().Get("patience")
	if text == "" {
		return patience, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("patience: want a time with its unit, such as 30s")
	}
	if d < 0 || d > maxPatience {
		return 0, fmt.Errorf("patience: %v is not within 0s and %v", d, maxPatience)
	}
	return d, nil
}

// each is the first worker's error, with its number where there are several.
func each(w []Reporter, judge func(*onceq.Health) error) error {
	for i, one := range w {
		h := one.Health()
		if err := judge(&h); err != nil && len(w) > 1 {
			return fmt.Errorf("worker %d: %w", i+1, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func answer(rw http.ResponseWriter, err error) {
	rw.Header().Set("Cache-Control", "no-store")
	if err != nil {
		http.Error(rw, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(rw, "ok\n")
}

// worker is what /healthz shows of one: all but the texts of errors and reasons.
type worker struct {
	State   onceq.State `json:"state"`
	Since   *time.Time  `json:"since,omitempty"`
	Live    string      `json:"live"`
	Ready   string      `json:"ready"`
	Slots   int         `json:"slots"`
	Busy    int         `json:"busy"`
	Overdue int         `json:"overdue"`
	Oldest  float64     `json:"oldest_seconds"`
	Rules   uint64      `json:"rules,omitempty"`
	Seat    string      `json:"seat,omitempty"`
	Queue   dependency  `json:"queue"`
	Store   dependency  `json:"store"`
	Letters dependency  `json:"letters"`
}

type dependency struct {
	Seen    *time.Time `json:"seen,omitempty"`
	Failing *time.Time `json:"failing,omitempty"`
}

func (o *Options) shown(h onceq.Health) worker {
	return worker{
		State: h.State, Since: when(h.Since), Live: sentence(h.Live(&o.Liveness)), Ready: sentence(h.Ready(o.Patience)),
		Slots: h.Slots, Busy: h.Busy, Overdue: h.Overdue, Oldest: h.Oldest.Seconds(), Rules: h.Rules, Seat: h.Seat,
		Queue: of(h.Queue), Store: of(h.Store), Letters: of(h.Letters),
	}
}

func of(d onceq.Dependency) dependency { return dependency{when(d.Seen), when(d.Failing)} }

// when leaves out a time that there is not.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func sentence(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}
