package otelonceq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/otelonceq"
)

func TestLogHandler(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return otelonceq.LogHandler(slog.NewJSONHandler(&out, nil))
	}, func(t *testing.T) map[string]any {
		m := make(map[string]any)
		if err := json.Unmarshal(out.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return m
	})
}

// Every line that a handler logs says which job it is of, and which span.
func TestLinesOfHandlers(t *testing.T) {
	for _, c := range []struct{ traces, fences bool }{{true, false}, {false, false}, {true, true}} {
		t.Run(fmt.Sprintf("traces %v, fences %v", c.traces, c.fences), func(t *testing.T) {
			bubble(t, rigOptions{noTraces: !c.traces, Options: otelonceq.Options{Fences: c.fences}}, func(t *testing.T, r *rig) {
				var out bytes.Buffer
				log := slog.New(otelonceq.LogHandler(slog.NewJSONHandler(&out, nil)))
				var want map[string]string
				h := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
					inner, cancel := context.WithTimeout(ctx, time.Minute)
					defer cancel()
					log.With("mine", 1).WithGroup("").InfoContext(inner, "charging")
					want = map[string]string{"msg": "charging", "mine": "1", "job": j.ID(), "key": "A-1", "attempt": "1", "fence": fmt.Sprint(j.Fence())}
					return nil
				})
				log.InfoContext(t.Context(), "before")
				r.send(message("charge", "A-1"))
				r.runFor(r.worker(r.config(h), onceq.WorkerConfig{}), time.Minute)
				got := make(map[string]any)
				lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
				if len(lines) != 2 || bytes.Contains(lines[0], []byte(`"job"`)) {
					t.Fatalf("%s", out.Bytes())
				}
				d := json.NewDecoder(bytes.NewReader(lines[1]))
				d.UseNumber()
				if err := d.Decode(&got); err != nil {
					t.Fatal(err)
				}
				if !c.fences {
					delete(want, "fence")
					if got["fence"] != nil {
						t.Error("the line has the fence, which may become a permission")
					}
				}
				if c.traces {
					s := r.spans.one(t, "process orders").SpanContext
					want["trace_id"], want["span_id"] = s.TraceID().String(), s.SpanID().String()
				} else if got["trace_id"] != nil {
					t.Errorf("a trace without a provider: %v", got)
				}
				for name, text := range want {
					if fmt.Sprint(got[name]) != text {
						t.Errorf("%s is %v, want %q", name, got[name], text)
					}
				}
				// The core's line of the job's end has the trace, too.
				if n := len(r.log.Lines("msg=job")); n != 1 {
					t.Errorf("%d lines", n)
				}
			})
		})
	}
}

// quiet is a handler that refuses what is below WARN, and fails on what it is given.
type quiet struct{ slog.Handler }

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	return errors.Join(q.Handler.Handle(ctx, r), errBoom)
}

func (q quiet) WithAttrs(as []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(as)} }
func (q quiet) WithGroup(name string) slog.Handler    { return quiet{q.Handler.WithGroup(name)} }

// The handler around another is that handler: its levels, errors and groups. nil stays nil.
func TestLogHandlerIsTheOther(t *testing.T) {
	if otelonceq.LogHandler(nil) != nil || otelonceq.LogHandler((*slog.JSONHandler)(nil)) != nil {
		t.Error("a nil handler is decorated, and panics at the first line")
	}
	bubble(t, rigOptions{}, func(t *testing.T, r *rig) {
		var out bytes.Buffer
		h := otelonceq.LogHandler(quiet{slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})})
		log := slog.New(h).With("a", 1).WithGroup("g").With("b", 2)
		run := onceq.HandlerFunc(func(ctx context.Context, _ *onceq.Job) error {
			log.InfoContext(ctx, "not seen")
			if log.Enabled(ctx, slog.LevelInfo) || !log.Enabled(ctx, slog.LevelWarn) {
				t.Error("the level is another")
			}
			rec := slog.NewRecord(time.Now(), slog.LevelWarn, "seen", 0)
			rec.AddAttrs(slog.Int("c", 3), slog.Int("c2", 3), slog.Int("c3", 3), slog.Int("c4", 3), slog.Int("c5", 3), slog.Int("c6", 3))
			before := rec.NumAttrs()
			if err := log.Handler().Handle(ctx, rec); !errors.Is(err, errBoom) || rec.NumAttrs() != before {
				t.Errorf("the handler's error is %v, and the caller's record has %d attributes", err, rec.NumAttrs())
			}
			return nil
		})
		r.send(message("charge", "A-1"))
		r.runFor(r.worker(r.config(run), onceq.WorkerConfig{}), time.Minute)
		var got struct {
			A int
			G map[string]any
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%v in %s", err, out.Bytes())
		}
		s := r.spans.one(t, "process orders").SpanContext
		if got.A != 1 || got.G["b"] != 2.0 || got.G["c"] != 3.0 || got.G["key"] != "A-1" || got.G["trace_id"] != s.TraceID().String() {
			t.Errorf("%s", out.Bytes())
		}
	})
}
