package otelonceq_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/must"
)

var update = flag.Bool("update", false, "write testdata/names.txt as the code is now")

// TestNames scrapes a worker through the Prometheus exporter, and compares names, types, labels,
// and buckets with the golden file. Dashboards and alerts of users have these names: a line that
// changes there breaks them.
func TestNames(t *testing.T) {
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		got := surface(everything(t, r))
		const golden = "testdata/names.txt"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want := must.Get(os.ReadFile(golden))
		if string(want) != got {
			t.Errorf("the scrape has\n%s\nwant\n%s", got, want)
		}
	})
}

// TestAskedNames has the names that users asked for, with their labels, as text of their own: the
// golden file can be written anew by mistake.
func TestAskedNames(t *testing.T) {
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		got := surface(everything(t, r))
		for name, labels := range map[string]string{
			"jobs_enqueued_total":    "queue source type",
			"jobs_completed_total":   "queue type",
			"jobs_failed_total":      "error_class final queue type",
			"job_attempts":           "error_class outcome queue type",
			"job_duration_seconds":   "queue type",
			"job_wait_seconds":       "queue type",
			"queue_depth":            "queue state",
			"dead_letter_queue_size": "queue",
		} {
			if !strings.Contains("\n"+got, "\n"+name+" ") || !strings.Contains(got, "{"+labels+"}") {
				t.Errorf("%s{%s} is missing in\n%s", name, labels, got)
			}
		}
		for _, bucket := range []string{"0.1", "0.5", "1", "5", "10", "30", "60", "300"} {
			line, _, _ := strings.Cut(got[strings.Index(got, "job_duration_seconds "):], "\n")
			if !slices.Contains(strings.Fields(line), bucket) {
				t.Errorf("job_duration_seconds has no bucket of %s s: %s", bucket, line)
			}
		}
	})
}

// everything makes a worker, and what is around it, record each metric.
func everything(t *testing.T, r *rig) families {
	t.Helper()
	stop, err := r.tel.Queues(otelonceq.QueueOptions{}, otelonceq.Queue{Broker: r.raw, Store: r.bare}, otelonceq.Queue{Broker: r.letter, DeadLetterOf: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var mux onceq.Mux
	mux.On("charge", onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
		<-time.After(15 * time.Second)
		if j.Attempt < 3 && j.Key().Key == "A-2" {
			return errBoom
		}
		if j.Key().Key == "A-3" {
			return onceq.Permanent(errBoom)
		}
		return nil
	}), nil)
	// Operators speak through the store, and a worker has its seat there.
	r.seat("orders")
	r.addPause(control.Rule{Do: control.Pause, Queue: "orders", Scope: "orders:refund"})
	// A message without room for a context.
	narrow := must.Get(membroker.New(&membroker.Options{Name: "mails", Preset: membroker.SQSStandard}))
	crowded := message("mail", "M-1")
	crowded.Attributes = make(map[string]string)
	for i := range 9 {
		crowded.Attributes[fmt.Sprint("a", i)] = "1"
	}
	if err := onceq.Send(t.Context(), r.tel.Sender(narrow), []broker.Outgoing{crowded}); err != nil {
		t.Fatal(err)
	}
	// A worker died while it ran A-4.
	died := r.worker(r.config(&mux), onceq.WorkerConfig{DrainTimeout: time.Second})
	r.send(message("charge", "A-4"))
	<-time.After(time.Second)
	r.runFor(died, 5*time.Second)

	w := r.worker(r.config(&mux), onceq.WorkerConfig{})
	full := message("charge", "A-1")
	full.Attributes = map[string]string{"tracestate": "x=1"}
	r.send(full, message("charge", "A-2"), message("charge", "A-3"))
	r.send(message("charge", "A-1"))
	ctx, stopRun := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	<-time.After(10 * time.Minute)
	letters := must.Get(dlq.New(r.letter, nil))
	if _, err := letters.Replay(t.Context(), dlq.ReplayOptions{To: r.queue, Each: r.tel.Letters("orders", nil)}); err != nil {
		t.Fatal(err)
	}
	r.tel.Observer().JobEnded(t.Context(), &onceq.JobReport{Queue: "orders", Type: "charge", Outcome: onceq.OutcomePostponed, Limiter: "api"})
	w.Pause()
	<-time.After(time.Minute)
	r.scrape()
	fs := r.scrape() // lease_margin_seconds is recorded by a scrape
	stopRun()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return fs
}

// surface is a line for each metric: name, type, labels, buckets.
func surface(fs families) string {
	var names []string
	for name := range fs {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		f := fs[name]
		labels := make(map[string]bool)
		buckets := ""
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = true
			}
			if h := m.GetHistogram(); h != nil {
				buckets = ""
				for _, bucket := range h.GetBucket() {
					if math.IsInf(bucket.GetUpperBound(), 1) { // it is there where it has an exemplar
						continue
					}
					buckets += " " + strconv.FormatFloat(bucket.GetUpperBound(), 'g', -1, 64)
				}
			}
		}
		var ls []string
		for l := range labels {
			ls = append(ls, l)
		}
		slices.Sort(ls)
		fmt.Fprintf(&b, "%s %s {%s}%s\n", name, strings.ToLower(dto.MetricType_name[int32(f.GetType())]), strings.Join(ls, " "), buckets)
	}
	return b.String()
}
