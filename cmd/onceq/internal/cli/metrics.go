package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/ops"
)

// This file owns the metrics of a process that is no worker: depths, seats and pauses, under the
// names that otelonceq gives them, in Prometheus' text form. The goroutine of Main reads the
// queues; a scrape shows what was read, under exporter.mu.

const (
	// metricsEvery is how often the queues are read, as otelonceq does it.
	metricsEvery = 30 * time.Second
	// metricsPatience is how long one reading may take.
	metricsPatience = 10 * time.Second
	// metricsFresh is for how long a number that could not be read again is still shown: three
	// rounds. After it the number is left out, because an old one would keep an alert silent.
	metricsFresh = 3*metricsEvery + metricsPatience
	// metricsGoing is how long a scrape that is under way may take at the end.
	metricsGoing = time.Second
)

func (a *app) metricsCommand() *cobra.Command {
	listen := ""
	c := &cobra.Command{
		Use: "metrics [QUEUE…]", Short: "Depths and seats for Prometheus, read outside the workers", ValidArgsFunction: a.completeQueues,
		Long: "Prints the depth of each queue, its dead letters, its live workers and its pauses in Prometheus' text\n" +
			"form, under the names that workers with otelonceq export. With --listen it serves them at /metrics until\n" +
			"it is ended, and reads them every 30 s. So a queue whose workers are all gone still has its series.",
		RunE: a.unbounded(func(ctx context.Context, args []string) error {
			if listen != "" {
				return a.serveMetrics(ctx, listen, args)
			}
			return a.printMetrics(ctx, args)
		}),
	}
	c.Flags().StringVar(&listen, "listen", "", "serve /metrics at this HOST:PORT")
	return c
}

// printMetrics prints what one look finds.
func (a *app) printMetrics(ctx context.Context, names []string) error {
	e := &exporter{app: a, names: names}
	defer e.close()
	states, err := e.round(ctx)
	if err != nil {
		return err
	}
	items, ids := []any{}, []string{}
	failed := 0
	for i := range states {
		items, ids = append(items, a.viewQueue(&states[i])), append(ids, states[i].Queue)
		if states[i].Err() != nil {
			failed++
		}
	}
	text := strings.TrimSuffix(e.text(time.Now()), "\n")
	if err := a.show(out.Result{Lines: strings.Split(text, "\n"), Items: items, IDs: ids}); err != nil {
		return err
	}
	return a.partErrors(states, failed)
}

// serveMetrics reads the queues until ctx ends, and answers scrapes meanwhile.
func (a *app) serveMetrics(ctx context.Context, address string, names []string) error {
	e := &exporter{app: a, names: names}
	defer e.close()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return exit(exitUsage, "--listen: %w", err)
	}
	defer l.Close()
	if _, err := e.round(ctx); err != nil { // a name that is wrong ends the command at once
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write([]byte(e.text(time.Now()))) // a scraper that is gone asks again
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	defer func() {
		// ctx has ended by now; a scrape that is under way has its own time.
		going, cancel := context.WithTimeout(context.WithoutCancel(ctx), metricsGoing)
		defer cancel()
		_ = s.Shutdown(going)
	}()
	a.say("metrics at http://%s/metrics, read every %v", l.Addr(), metricsEvery)
	tick := time.NewTicker(metricsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return exit(exitReach, "--listen: %w", err)
		case <-tick.C:
			if _, err := e.round(ctx); err != nil && ctx.Err() == nil {
				a.say("the queues cannot be read: %s", out.Error(err))
			}
		}
	}
}

// An exporter has the numbers of queues.
type exporter struct {
	*app
	names []string

	// The goroutine of Main has these alone.
	w      *world            // nil: to be opened by the next look
	labels map[string]string // what workers call the queues, by their names in the profile
	stored bool              // there is a store, so seats can be known
	said   string            // the failure that was told last

	mu      sync.Mutex
	numbers map[series]number
}

// series is one line of a scrape, without its number.
type series struct{ metric, queue, state, scope, typ string }

// number is what was read, and when.
type number struct {
	n  int64
	at time.Time
}

func (e *exporter) close() {
	if e.w != nil {
		e.w.close()
		e.w = nil
	}
}

// round reads all queues. What failed is told once, and opened anew by the next round: a queue or a
// store may have been away when it was opened.
func (e *exporter) round(ctx context.Context) ([]ops.QueueState, error) {
	if e.w == nil {
		if err := e.reopen(ctx); err != nil {
			return nil, err
		}
	}
	asking, cancel := context.WithTimeout(ctx, metricsPatience)
	defer cancel()
	states, err := e.w.Overview(asking)
	if err != nil {
		e.close()
		return nil, err
	}
	e.keep(states, time.Now())
	var failed []error
	for i := range states {
		if err := states[i].Err(); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", states[i].Queue, err))
		}
	}
	text := ""
	if err := errors.Join(failed...); err != nil {
		e.close()
		text = out.Error(err)
	}
	if text != "" && text != e.said {
		e.say("not all can be read: %s", text)
	}
	e.said = text
	return states, nil
}

// reopen opens the queues and the store, and learns the labels.
func (e *exporter) reopen(ctx context.Context) error {
	c, err := e.config()
	if err != nil {
		return err
	}
	qs, err := e.queues(c, e.names, needParts)
	if err != nil {
		return err
	}
	e.stored, e.labels = c.store != "", make(map[string]string, len(qs))
	for _, q := range qs {
		e.labels[q.Name] = known(q)
	}
	e.w, err = e.open(ctx, needParts, e.names...)
	return err
}

// keep remembers what the states tell. What a service does not tell has no series, never a 0: it
// would say that a queue is empty.
func (e *exporter) keep(states []ops.QueueState, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.numbers == nil {
		e.numbers = make(map[series]number)
	}
	for i := range states {
		q := &states[i]
		name := cmp.Or(e.labels[q.Queue], q.Queue)
		if q.DepthErr == nil && q.Depth != nil {
			for state, n := range map[string]int64{"visible": q.Depth.Visible, "in_flight": q.Depth.InFlight, "delayed": q.Depth.Delayed} {
				e.numbers[series{metric: metricDepth, queue: name, state: state}] = number{n, at}
			}
		}
		if q.LettersErr == nil && q.Letters != nil {
			e.numbers[series{metric: metricLetters, queue: name}] = number{*q.Letters, at}
		}
		if q.WorkersErr == nil && e.stored {
			e.numbers[series{metric: metricSeats, queue: name}] = number{int64(q.Totals().Live), at}
		}
		if q.RulesErr == nil && e.stored {
			e.pauses(name, q.Rules, at)
		}
	}
}

// pauses replaces the pauses of a queue. A pause that has ended has no series at once.
func (e *exporter) pauses(name string, rules []control.Rule, at time.Time) {
	maps.DeleteFunc(e.numbers, func(s series, _ number) bool { return s.metric == metricPaused && s.queue == name })
	for i := range rules {
		r := &rules[i]
		if r.Do != control.Pause && (r.Do != control.Limit || r.Slots > 0) {
			continue
		}
		s := series{metric: metricPaused, queue: name, scope: r.Scope, typ: r.Type}
		if first, ok := e.numbers[s]; !ok || r.Made.Unix() < first.n {
			e.numbers[s] = number{r.Made.Unix(), at}
		}
	}
}

// The names are those of otelonceq, so that its alerts and dashboards fit.
const (
	metricDepth   = "queue_depth"
	metricLetters = "dead_letter_queue_size"
	metricSeats   = "worker_seats"
	metricPaused  = "pause_since_seconds"
)

// metricsAbout are the metrics in their order, each with what it counts.
var metricsAbout = []struct{ name, about string }{
	{metricLetters, "How many dead letters the queue named has, visible and in flight."},
	{metricPaused, "Since when something is paused by an operator, in seconds since 1970."},
	{metricDepth, "How many messages the queue has, as the broker tells."},
	{metricSeats, "Live workers of the queue in all processes, as the store knows them."},
}

// text is a scrape's answer. The queues are in the order of their names.
func (e *exporter) text(now time.Time) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var b strings.Builder
	for _, m := range metricsAbout {
		var lines []string
		for s, n := range e.numbers {
			if s.metric == m.name && now.Sub(n.at) <= metricsFresh {
				lines = append(lines, s.String()+" "+strconv.FormatInt(n.n, 10))
			}
		}
		if len(lines) == 0 {
			continue
		}
		slices.Sort(lines)
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n%s\n", m.name, m.about, m.name, strings.Join(lines, "\n"))
	}
	return b.String()
}

func (s series) String() string {
	var text strings.Builder
	text.WriteString(s.metric + `{queue="` + labelText(s.queue) + `"`)
	for _, l := range [][2]string{{"scope", s.scope}, {"state", s.state}, {"type", s.typ}} {
		if l[1] != "" {
			text.WriteString("," + l[0] + `="` + labelText(l[1]) + `"`)
		}
	}
	return text.String() + "}"
}

// labelText is a label's value as the text form wants it, cut as otelonceq cuts it.
func labelText(v string) string {
	const most = 100
	v = strings.ToValidUTF8(v[:min(len(v), most)], "_")
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(v)
}
