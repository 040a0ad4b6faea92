package otelonceq_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/otelonceq"
	"github.com/onceq/onceq/broker"
)

func TestOptions(t *testing.T) {
	for field, o := range map[string]otelonceq.Options{
		"Options.MaxTypes is 9, want 10 to 10000":    {MaxTypes: 9},
		"Options.MaxTypes is -1":                     {MaxTypes: -1},
		"Options.MaxClasses is 10001, want 10 to 10": {MaxClasses: 10001},
	} {
		if tel, err := otelonceq.New(&o); tel != nil || err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("New answers %v, want %q", err, field)
		}
	}
	var (
		meters    *sdkmetric.MeterProvider
		tracers   *sdktrace.TracerProvider
		propagate *propagation.TraceContext
	)
	for field, o := range map[string]otelonceq.Options{
		"MeterProvider":  {MeterProvider: meters},
		"TracerProvider": {TracerProvider: tracers},
		"Propagator":     {Propagator: propagate},
	} {
		if tel, err := otelonceq.New(&o); tel != nil || err == nil || !strings.Contains(err.Error(), "Options."+field+" is a nil pointer") {
			t.Errorf("New with a nil pointer in %s answers %v", field, err)
		}
	}
	if _, err := otelonceq.New(nil); err != nil {
		t.Error(err)
	}
}

// distinct counts the values of a label over all metrics.
func distinct(fs families, label string) map[string]bool {
	seen := make(map[string]bool)
	for _, f := range fs {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && l.GetValue() != "" {
					seen[l.GetValue()] = true
				}
			}
		}
	}
	return seen
}

// Types are a sender's choice and classes a handler's: neither may fill the memory of whoever keeps
// the metrics.
func TestCardinalityIsBounded(t *testing.T) {
	r := newRig(t, rigOptions{noTraces: true, Options: otelonceq.Options{KnownTypes: []string{"charge", "mail"}}})
	o := r.tel.Observer()
	for i := range 10_000 {
		o.JobEnded(context.Background(), &onceq.JobReport{
			Queue: "orders", Type: fmt.Sprint("made-up-", i), ErrClass: fmt.Sprint("class-", i), Ran: true, Outcome: onceq.OutcomeRetried, Receives: 1,
		})
		if i%100 == 0 {
			r.send(message(fmt.Sprint("sent-", i), fmt.Sprint(i)))
		}
	}
	record := func(typ, class string) {
		o.JobEnded(context.Background(), &onceq.JobReport{Queue: "orders", Type: typ, ErrClass: class, Ran: true, Outcome: onceq.OutcomeFailed, Attempt: 1, Receives: 1})
	}
	record("charge", onceq.ClassInterrupted)
	record("mail", onceq.ClassPanic)
	record(strings.Repeat("x", 5000), strings.Repeat("y", 5000))
	record("\xff\xfe", "a\x80b")
	fs := r.scrape()
	types, classes := distinct(fs, "type"), distinct(fs, "error_class")
	if len(types) > 101+2 || !types["_other"] || !types["charge"] || !types["mail"] {
		t.Errorf("%d types", len(types))
	}
	if len(classes) > 51 || !classes["_other"] || !classes[onceq.ClassInterrupted] || !classes[onceq.ClassPanic] {
		t.Errorf("%d classes: %v", len(classes), classes)
	}
	if n := distinct(fs, "error_type"); len(n) > 51 {
		t.Errorf("%d error types", len(n))
	}
	r.want(fs, 10_000-99, // a type that was sent has taken one place
		"jobs_ended_total", "type=_other", "outcome=retried")
	for _, what := range []string{"too many job types", "too many error classes"} {
		if got := r.log.Lines(what); len(got) != 1 {
			t.Errorf("%d log lines with %q: %v", len(got), what, got)
		}
	}
}

// The SDK shows 2,000 sets of labels of an instrument, unless told otherwise, and puts the others
// into one series. Which ones these are must not change from scrape to scrape, because a counter
// that jumps back looks like a restart.
func TestBeyondTheLimitOfTheSDK(t *testing.T) {
	r := newRig(t, rigOptions{noTraces: true, Options: otelonceq.Options{MaxTypes: 10_000}})
	o := r.tel.Observer()
	series := func() (sum float64, of map[string]float64) {
		of = make(map[string]float64)
		for _, m := range r.scrape()["jobs_completed_total"].GetMetric() {
			of[m.String()[:strings.Index(m.String(), "counter:")]] = m.GetCounter().GetValue()
			sum += m.GetCounter().GetValue()
		}
		return sum, of
	}
	var before map[string]float64
	for round := 1; round <= 4; round++ {
		for i := range 1000 * round {
			o.JobEnded(context.Background(), &onceq.JobReport{Queue: "orders", Type: fmt.Sprint("type-", i), Outcome: onceq.OutcomeDone})
		}
		sum, after := series()
		if want := float64(1000 * round * (round + 1) / 2); sum != want || len(after) > 2000 {
			t.Errorf("%v jobs in %d series, want %v in at most 2,000", sum, len(after), want)
		}
		for name, n := range before {
			if after[name] < n {
				t.Fatalf("%s fell from %v to %v", name, n, after[name])
			}
		}
		before = after
	}
}

// A type that a message chose cannot fail a scrape, whatever bytes it has.
func TestLabelsAreText(t *testing.T) {
	r := newRig(t, rigOptions{noTraces: true})
	for _, typ := range []string{"\xff\xfe", "a\x80", strings.Repeat("é", 200), "line\nbreak\x00"} {
		r.tel.Observer().JobEnded(context.Background(), &onceq.JobReport{Queue: "q\xff", Type: typ, Outcome: onceq.OutcomeDone, ErrClass: typ})
	}
	for typ := range distinct(r.scrape(), "type") {
		if len(typ) > 100 {
			t.Errorf("the label %q has %d bytes", typ, len(typ))
		}
	}
}

// TestSeries counts what an instance with 5 queues, 20 types and 6 classes shows when everything
// that can happen to a job has happened to each type: on the one queue that has it, and on all
// five.
func TestSeries(t *testing.T) {
	r := newRig(t, rigOptions{noTraces: true})
	o := r.tel.Observer()
	classes := []string{"error", "permanent", "timeout", "panic", "attempts", "interrupted"}
	sets := 0
	each := func(queues func(typ int) []int) families {
		for typ := range 20 {
			for _, q := range queues(typ) {
				rec := onceq.JobReport{
					Queue: fmt.Sprint("queue-", q), Type: fmt.Sprint("type-", typ), Ran: true, Attempt: 1, Receives: 1,
					QueueWait: time.Second, Age: time.Second, Ended: time.Now(), From: "w-1",
				}
				for _, outcome := range typedOutcomes() {
					rec.Outcome, rec.ErrClass, rec.PrevClass = outcome, "", ""
					if outcome != onceq.OutcomeDone {
						rec.ErrClass = classes[0]
					}
					o.JobEnded(context.Background(), &rec)
				}
				for _, class := range classes {
					rec.Outcome, rec.ErrClass = onceq.OutcomeRetried, class
					o.JobEnded(context.Background(), &rec)
					rec.Outcome = onceq.OutcomeFailed
					o.JobEnded(context.Background(), &rec)
					rec.Outcome, rec.ErrClass, rec.PrevClass = onceq.OutcomeDone, "", class
					o.JobEnded(context.Background(), &rec)
				}
			}
		}
		return r.scrape()
	}
	fs := each(func(typ int) []int { return []int{typ % 5} })
	lines := 0
	for _, f := range fs {
		for _, m := range f.GetMetric() {
			sets++
			lines += linesOf(m)
		}
	}
	t.Logf("20 types on one queue each: %d sets of labels, %d lines", sets, lines)
	if lines > 6500 {
		t.Errorf("%d lines, want at most 6,500", lines)
	}
	fs = each(func(int) []int { return []int{0, 1, 2, 3, 4} })
	sets, lines = 0, 0
	for _, f := range fs {
		for _, m := range f.GetMetric() {
			sets++
			lines += linesOf(m)
		}
	}
	t.Logf("20 types on each of 5 queues: %d sets of labels, %d lines", sets, lines)
	if sets > 6500 {
		t.Errorf("%d sets of labels, want at most 6,500", sets)
	}
}

// typedOutcomes are the 21 that a job of a known type can have, while the store answers.
func typedOutcomes() (os []onceq.Outcome) {
	for _, o := range onceq.Outcomes() {
		switch o {
		case onceq.OutcomeNoKey, onceq.OutcomeBadKey, onceq.OutcomeBadMeta, onceq.OutcomeBadFingerprint, onceq.OutcomeClaimRefused,
			onceq.OutcomeNoHandler, onceq.OutcomeConfig, onceq.OutcomeNoMessage, onceq.OutcomeStoreUnreachable, onceq.OutcomeStale,
			onceq.OutcomeLostBeforeClaim:
		default:
			os = append(os, o)
		}
	}
	return os
}

// linesOf is how many lines of a scrape a set of labels has.
func linesOf(m *dto.Metric) int {
	if h := m.GetHistogram(); h != nil {
		return len(h.GetBucket()) + 3 // +Inf, sum and count
	}
	return 1
}

// The types of a Mux become labels, however many others were seen before.
func TestTypesOfAMuxAreKnown(t *testing.T) {
	bubble(t, rigOptions{noTraces: true}, func(t *testing.T, r *rig) {
		for i := range 200 {
			r.tel.Observer().JobEnded(context.Background(), &onceq.JobReport{Queue: "orders", Type: fmt.Sprint(i), Outcome: onceq.OutcomeNoHandler})
		}
		var mux onceq.Mux
		mux.On("charge", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), nil)
		w := r.worker(r.config(&mux), onceq.WorkerConfig{})
		r.send(message("charge", "A-1"))
		r.runFor(w, time.Second)
		r.want(r.scrape(), 1, "jobs_completed_total", "queue=orders", "type=charge")
	})
}

// What a replay sends is told apart from what a producer does, and a letter is neither.
func TestSources(t *testing.T) {
	bubble(t, rigOptions{noTraces: true}, func(t *testing.T, r *rig) {
		stop, err := r.tel.Queues(otelonceq.QueueOptions{}, otelonceq.Queue{Broker: r.letter, DeadLetterOf: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		fails := true
		h := onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
			if fails {
				return onceq.Permanent(errBoom)
			}
			return nil
		})
		r.send(message("charge", "A-1"))
		r.runFor(r.worker(r.config(h), onceq.WorkerConfig{}), time.Minute)
		fails = false
		r.replay()
		r.runFor(r.worker(r.config(h), onceq.WorkerConfig{}), time.Minute)
		fs := r.scrape()
		r.want(fs, 1, "jobs_enqueued_total", "queue=orders", "type=charge", "source=send")
		r.want(fs, 1, "jobs_enqueued_total", "queue=orders", "type=charge", "source=replay")
		if n, there := fs.value("jobs_enqueued_total", "queue=orders-dead"); there {
			t.Errorf("%v letters count as enqueued jobs", n)
		}
		r.want(fs, 1, "replays_letters_total", "queue=orders", "fate=replayed")
		r.want(fs, 1, "jobs_failed_total", "queue=orders", "type=charge", "error_class=permanent", "final=true")
		r.want(fs, 1, "jobs_completed_total", "queue=orders", "type=charge")
	})
}

// A job that is postponed ends once for each postponement, and waits for a worker once. A copy that
// takes its message's place is no job that was enqueued anew.
func TestPostponedAndCarried(t *testing.T) {
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		var err error
		if r.raw, err = membroker.New(&membroker.Options{Name: "orders", Preset: membroker.SQSStandard}); err != nil {
			t.Fatal(err)
		}
		r.queue = r.tel.Broker(r.raw)
		runs := 0
		h := onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
			switch runs++; runs {
			case 1:
				return onceq.Postpone(time.Minute, nil)
			case 2:
				return onceq.Postpone(20*time.Hour, nil) // SQS delays a message by 12 h
			}
			return nil
		})
		r.send(message("charge", "A-1"))
		r.runFor(r.worker(r.config(h), onceq.WorkerConfig{Carry: r.queue}), 24*time.Hour)
		fs := r.scrape()
		r.want(fs, 1, "jobs_enqueued_total", "queue=orders", "type=charge", "source=send")
		r.want(fs, 1, "jobs_enqueued_total", "queue=orders", "type=charge", "source=carry")
		r.want(fs, 2, "jobs_ended_total", "queue=orders", "type=charge", "outcome=postponed")
		r.want(fs, 1, "jobs_completed_total", "queue=orders", "type=charge")
		if n, there := fs.value("jobs_failed_total", "queue=orders"); there {
			t.Errorf("%v failures", n)
		}
		for _, m := range fs["job_wait_seconds"].GetMetric() {
			if n, sum := m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum(); n != 1 || sum > 1 {
				t.Errorf("%d waits of %v s together, want one", n, sum)
			}
		}
	})
}

// An entry counts as enqueued where the queue has said so.
func TestEnqueuedCountsWhatWasAccepted(t *testing.T) {
	r := newRig(t, rigOptions{noTraces: true})
	for _, c := range []struct {
		err  error
		want float64
	}{
		{nil, 3},
		{&broker.BatchError{Errs: []error{nil, broker.ErrTooLarge, nil}}, 3 + 2},
		{&broker.BatchError{Errs: []error{nil}}, 3 + 2 + 1}, // nothing is known of the others
		{errBoom, 3 + 2 + 1},
	} {
		s := r.tel.Sender(&answers{Broker: r.raw, err: c.err})
		_, err := s.Send(context.Background(), []broker.Outgoing{message("a", "1"), message("a", "2"), message("a", "3")})
		if err != c.err { //nolint:errorlint // the very same
			t.Errorf("Send answers %v, want %v", err, c.err)
		}
		r.want(r.scrape(), c.want, "jobs_enqueued_total", "type=a", "source=send")
	}
}

// answers is a sender that answers what it was told to.
type answers struct {
	broker.Broker
	err  error
	sent [][]broker.Outgoing
}

func (a *answers) Unwrap() any { return a.Broker }

func (a *answers) Send(_ context.Context, ms []broker.Outgoing) ([]string, error) {
	a.sent = append(a.sent, ms)
	return make([]string, len(ms)), a.err
}

// The wait grows with every retry, so only the first attempt tells of it.
func TestWaitIsOfTheFirstAttempt(t *testing.T) {
	r := newRig(t, rigOptions{noTraces: true})
	for attempt := 1; attempt <= 3; attempt++ {
		r.tel.Observer().JobEnded(context.Background(), &onceq.JobReport{
			Queue: "orders", Type: "charge", Ran: true, Attempt: attempt, QueueWait: time.Minute, Outcome: onceq.OutcomeRetried, ErrClass: "error",
		})
	}
	fs := r.scrape()
	r.want(fs, 1, "job_wait_seconds", "queue=orders", "type=charge")
	r.want(fs, 3, "job_duration_seconds", "queue=orders", "type=charge")
	r.want(fs, 3, "jobs_retried_total", "queue=orders", "type=charge", "error_class=error")
	r.want(fs, 3, "jobs_failed_total", "queue=orders", "type=charge", "error_class=error", "final=false")
}

// A limiter of the program's is a label, and one that makes up names does not make up series.
func TestLimiters(t *testing.T) {
	r := newRig(t, rigOptions{noTraces: true})
	for i := range 200 {
		for _, name := range []string{"", "api", "made-up-" + strconv.Itoa(i)} {
			r.tel.Observer().JobEnded(context.Background(), &onceq.JobReport{Queue: "orders", Type: "charge", Outcome: onceq.OutcomePostponed, Limiter: name})
		}
	}
	fs := r.scrape()
	r.want(fs, 200, "jobs_postponed_total", "queue=orders", "type=charge", "limiter=api")
	r.want(fs, 151, "jobs_postponed_total", "queue=orders", "type=charge", "limiter=_other")
	r.want(fs, 600, "jobs_ended_total", "queue=orders", "type=charge", "outcome=postponed")
}
