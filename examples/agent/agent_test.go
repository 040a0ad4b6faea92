package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/onceqtest"
)

// TestMain runs the program itself where a test, or the program under test, starts it.
func TestMain(m *testing.M) {
	if os.Getenv("ONCEQ_AGENT") != "" || len(os.Args) == 2 && os.Args[1][0] == '{' {
		main()
		return
	}
	os.Exit(m.Run())
}

// wire carries a call to the model without a network, which a bubble's clock would wait for. It
// is a call of the rig's process, so faults befall it. The model goes on when its caller has gone.
type wire struct {
	rig *onceqtest.Rig
	m   *model
}

const opCall = onceqtest.Op("call")

func (d *wire) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	err = d.rig.Process().Call(r.Context(), opCall, func(ctx context.Context) error {
		answer := make(chan *http.Response, 1)
		go func() {
			w := httptest.NewRecorder()
			d.m.ServeHTTP(w, r)
			answer <- w.Result()
		}()
		select {
		case resp = <-answer:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil && resp != nil {
		resp.Body.Close()
	}
	return resp, err
}

// asked is a rig with one question in its queue.
func asked(t *testing.T, m *model, w way) *onceqtest.Rig {
	t.Helper()
	d := &wire{m: m}
	a := &agent{modelClient{"http://model.example", "test", &http.Client{Transport: d}}, w}
	d.rig = onceqtest.New(t, onceq.ProcessorConfig{Handler: onceq.JSONResult(a.answer)}, nil)
	d.rig.Send(onceq.Message("question", "q", []byte(`{"Text":"why?"}`)))
	return d.rig
}

// ended delivers until the job has ended.
func ended(t *testing.T, rig *onceqtest.Rig) (all []onceqtest.Result) {
	t.Helper()
	for range 20 {
		all = append(all, rig.Deliver())
		if got := all[len(all)-1]; !got.Crashed && got.Outcome != onceq.OutcomeRetried && got.Outcome != onceq.OutcomePostponed {
			return all
		}
		rig.Advance(time.Hour)
	}
	t.Fatal("the job does not end")
	return nil
}

// A worker dies in each gap of each call. The call is paid once with steps and keys. Without keys
// it is paid twice where the worker died between the call and its save, and nowhere else. Without
// steps all that came before is paid again.
func TestCrashInEachGap(t *testing.T) {
	type gap struct {
		fault    onceqtest.Fault
		call     int  // which call it befalls, or follows
		repeated bool // that call
	}
	var gaps []gap
	for n := 1; n <= len(stages); n++ {
		gaps = append(gaps,
			gap{onceqtest.Fault{Op: opCall, N: n, Kind: onceqtest.CrashBefore}, n - 1, false},
			gap{onceqtest.Fault{Op: opCall, N: n, Kind: onceqtest.CrashAfter}, n, true},
			gap{onceqtest.Fault{Op: opCall, N: n, Kind: onceqtest.LoseReply}, n, true},
			gap{onceqtest.Fault{Op: onceqtest.Renew, N: n, Kind: onceqtest.CrashBefore}, n, true},
			gap{onceqtest.Fault{Op: onceqtest.Renew, N: n, Kind: onceqtest.CrashAfter}, n, false},
			gap{onceqtest.Fault{Op: onceqtest.Renew, N: n, Kind: onceqtest.LoseReply}, n, false},
		)
	}
	gaps = append(gaps, gap{onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore}, len(stages), false})
	for _, w := range []way{{}, {NoKey: true}, {NoKey: true, NoSteps: true}} {
		for _, g := range gaps {
			if w.NoSteps && g.fault.Op == onceqtest.Renew {
				continue // nothing is saved
			}
			t.Run(g.fault.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel(time.Second, 0)
					rig := asked(t, m, w)
					rig.At(g.fault)
					all := ended(t, rig)
					require.Equal(t, onceq.OutcomeDone, all[len(all)-1].Outcome)
					b, paid := m.bill(), len(stages)
					switch {
					case w.NoSteps:
						paid += g.call
					case w.NoKey && g.repeated:
						paid++
					case g.repeated:
						require.Equal(t, 1, b.Repeated, "%+v", w)
					}
					require.Equal(t, paid, b.Sum, "%+v", w)
					require.Len(t, b.Paid, len(stages))
				})
			})
		}
	}
}

// A 429 gives the job back, and uses no attempt. So does the 409 of a first call that still runs
// when the worker after the one that died asks.
func TestRefusedCallsCountForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(time.Second, 1)
		m.runs = 1 // somebody else's call
		rig := asked(t, m, way{})
		for range 15 {
			got := rig.Deliver()
			require.Equal(t, onceq.OutcomePostponed, got.Outcome)
			require.Equal(t, time.Second, got.Delay)
			rig.Advance(time.Minute)
		}
		m.runs = 0
		all := ended(t, rig)
		require.Equal(t, 1, all[0].Attempt)
		require.Equal(t, ledger{Paid: map[string]int{"q/plan": 1, "q/draft": 1, "q/review": 1}, Sum: 3, Refused: 15}, m.bill())
	})
	synctest.Test(t, func(t *testing.T) {
		m := newModel(2*time.Minute, 0) // longer than the client waits, and the lease lasts
		all := ended(t, asked(t, m, way{}))
		require.Greater(t, len(all), 3)
		b := m.bill()
		require.Equal(t, 3, b.Sum)
		require.Equal(t, 3, b.Repeated)
	})
}

// statuses answers the status that it is.
type status int

func (s status) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.WriteHeader(int(s))
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// What the model says decides whether the job is tried again, given back or dead.
func TestAnswers(t *testing.T) {
	for code, want := range map[status]onceq.Outcome{
		http.StatusTooManyRequests: onceq.OutcomePostponed, http.StatusConflict: onceq.OutcomePostponed,
		http.StatusInternalServerError: onceq.OutcomeRetried, http.StatusOK: onceq.OutcomeRetried, // without a body
		http.StatusBadRequest: onceq.OutcomeFailed, http.StatusUnauthorized: onceq.OutcomeFailed,
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &agent{model: modelClient{"http://model.example", "test", &http.Client{Transport: code}}}
			rig := onceqtest.New(t, onceq.ProcessorConfig{Handler: onceq.JSONResult(a.answer)}, nil)
			rig.Send(onceq.Message("question", "q", []byte(`{"Text":"why?"}`)))
			require.Equal(t, want, rig.Deliver().Outcome, "%d", code)
		})
	}
}

func TestModelRefusesWhatIsNoCall(t *testing.T) {
	m, w := newModel(time.Millisecond, 0), httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("no call")))
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Zero(t, m.bill().Sum)
}

// hit are settings whose workers are killed by kill -9 while the model is at four of their calls,
// and by the clock too.
func hit(store string, seed uint64) *settings {
	at := []int{1, 4, 8, 9}
	return &settings{
		Jobs: 5, Workers: 2, Seed: seed, Every: 400 * time.Millisecond, Think: 50 * time.Millisecond, Most: 6, Store: store, Lease: time.Second,
		OnCall: func(c *crew, n, worker int) {
			if slices.Contains(at, n) {
				c.Kill(worker)
			}
		},
	}
}

func killed(t *testing.T, o *settings) (*tally, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out strings.Builder
	got, err := run(ctx, o, &out, t.Output())
	require.NoError(t, err)
	got.print(&out, o.way)
	return got, out.String()
}

// Real processes, and kill -9: each call is paid once. The four that were cut off came again,
// unpaid.
func TestEachCallIsPaidOnce(t *testing.T) {
	t.Parallel()
	got, out := killed(t, hit("sqlite", 7))
	require.True(t, got.Holds(), "%s", out)
	require.Equal(t, 15, got.Sum, "%s", out)
	require.GreaterOrEqual(t, got.Kills, 4, "%s", out)
	require.GreaterOrEqual(t, got.Repeated, 4, "%s", out)
	require.Contains(t, out, "Each of the 15 calls was paid once.")
	require.Contains(t, out, "(-seed 7)")
}

// elsewhere: what keeps the steps has its own tests. This is the example on it.
const elsewhere = "examples/agent: the example on PostgreSQL and DynamoDB"

func TestElsewhere(t *testing.T) {
	proof.Only(t, elsewhere)
	for store, url := range map[string]func(testing.TB) string{
		"postgres": func(t testing.TB) string { return localstack.Postgres(t).URL },
		"dynamodb": func(t testing.TB) string { return localstack.DynamoDB(t).URL },
	} {
		t.Run(store, func(t *testing.T) {
			t.Setenv(variables[store], url(t))
			got, out := killed(t, hit(store, 7))
			require.True(t, got.Holds(), "%s", out)
			require.GreaterOrEqual(t, got.Repeated, 4, "%s", out)
		})
	}
}

// A store that is not there, or not known, is said at once.
func TestWrongStore(t *testing.T) {
	for store, want := range map[string]string{
		"redis": `-store is "redis", want sqlite, postgres or dynamodb`, "postgres": "make demo-agent STORE=postgres starts one",
	} {
		t.Run(store, func(t *testing.T) {
			t.Setenv("ONCEQ_POSTGRES_URL", "")
			_, err := run(t.Context(), &settings{Jobs: 1, Workers: 1, Store: store}, t.Output(), t.Output())
			require.ErrorContains(t, err, want)
		})
	}
}

// A worker that ends by itself ends the run, and does not leave it waiting for its jobs.
func TestWorkerThatCannotStart(t *testing.T) {
	t.Parallel()
	ctx, failed := context.WithCancelCause(t.Context())
	defer failed(nil)
	c := &crew{a: assignment{Place: place{Store: "postgres", At: "no url"}}, errs: t.Output(), failed: failed, all: make([]*child.Child, 1)}
	require.NoError(t, c.start(0))
	<-ctx.Done()
	require.ErrorContains(t, context.Cause(ctx), "worker 1 has ended")
}

// The program as its users start it.
func TestProgram(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	require.NoError(t, err)
	program := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), exe, args...)
		cmd.Env = append(os.Environ(), "ONCEQ_AGENT=1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := program("-jobs", "2", "-workers", "1", "-every", "0s")
	require.NoError(t, err, "%s", out)
	require.Contains(t, out, "Each of the 6 calls was paid once.")
	var exit *exec.ExitError
	for _, args := range [][]string{{"-jobs", "0"}, {"-every", "-1s"}, {"more", "words"}, {"-unknown"}} {
		out, err = program(args...)
		require.True(t, errors.As(err, &exit), "%v: %s", args, out)
		require.Equal(t, 2, exit.ExitCode(), "%v: %s", args, out)
	}
}

// An assignment is JSON that begins as scene.Main expects it.
func TestAssignmentIsAnObject(t *testing.T) {
	text, err := json.Marshal(assignment{})
	require.NoError(t, err)
	require.Equal(t, byte('{'), text[0])
}
