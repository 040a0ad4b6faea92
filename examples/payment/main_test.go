package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/onceqtest"
)

// direct carries requests to a handler without a network, which a bubble's clock would wait for. As
// on a network, the handler goes on when the caller has gone.
type direct struct{ h http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := make(chan *http.Response, 1)
	go func() {
		w := httptest.NewRecorder()
		d.h.ServeHTTP(w, r)
		answer <- w.Result()
	}()
	select {
	case resp := <-answer:
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func serveDirect(h *api) (string, *http.Client) {
	return "http://bank.example", &http.Client{Transport: direct{h}}
}

// The program: whose answer did not come is charged twice under fresh keys, and once under the
// job's.
func TestProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		naive, keyed := run(t.Context(), &out, serveDirect)
		require.Equal(t, 2, naive.count("slow"), "the trap is gone: %s", &out)
		for customer, want := range map[string]int{"ann": 1, "slow": 1, "busy": 1, "poor": 0} {
			require.Equal(t, want, keyed.count(customer), "%s\n%s", customer, &out)
		}
		require.Contains(t, out.String(), "slow/7 is done, its receipt ch_")
	})
}

// The program as it is, over a network.
func TestProgramOverHTTP(t *testing.T) {
	var out strings.Builder
	_, keyed := run(t.Context(), &out, func(a *api) (string, *http.Client) {
		s := httptest.NewServer(a)
		t.Cleanup(s.Close)
		return s.URL, s.Client()
	})
	require.Equal(t, 1, keyed.count("slow"), "%s", &out)
	require.Equal(t, 1, keyed.count("ann"), "%s", &out)
}

// worker is a rig with one order in its queue.
func worker(t *testing.T, a http.Handler, key func(*onceq.Job) string, customer string) *onceqtest.Rig {
	t.Helper()
	c := &charger{"http://bank.example", &http.Client{Transport: direct{a}}, key}
	rig := onceqtest.New(t, onceq.ProcessorConfig{Handler: onceq.JSONResult(c.charge)}, nil)
	rig.Send(message(order{customer, 100}))
	return rig
}

// A worker dies at any point, another takes over, the message comes once more: one charge.
func TestCrash(t *testing.T) {
	for _, at := range []onceqtest.Fault{
		{Op: onceqtest.Claim, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Claim, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Ack, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Ack, Kind: onceqtest.CrashAfter},
	} {
		t.Run(at.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bank := newAPI()
				rig := worker(t, bank, effectKey, "ann")
				rig.At(at)
				require.True(t, rig.Deliver().Crashed)
				rig.Advance(time.Minute)
				if at.Op != onceqtest.Ack || at.Kind != onceqtest.CrashAfter {
					rig.Deliver()
				}
				got := rig.Redeliver()
				require.Equal(t, onceq.OutcomeAlreadyDone, got.Outcome)
				require.Equal(t, 1, bank.count("ann"))
				require.JSONEq(t, `{"Charge": "ch_1"}`, string(got.Stored.Result))
			})
		})
	}
}

// Without the job's key the same crash charges twice: TestCrash can fail.
func TestFreshKeyDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bank := newAPI()
		rig := worker(t, bank, freshKey, "ann")
		rig.At(onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore})
		require.True(t, rig.Deliver().Crashed)
		rig.Advance(time.Minute)
		require.Equal(t, onceq.OutcomeDone, rig.Deliver().Outcome)
		require.Equal(t, 2, bank.count("ann"))
	})
}

// What the API answers, and what becomes of the job.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bank := newAPI()
		rig := worker(t, bank, effectKey, "busy")
		got := rig.Deliver()
		require.Equal(t, onceq.OutcomeRetried, got.Outcome)
		require.Equal(t, time.Second, got.Delay, "429: when the API says")
		rig.Advance(time.Second)
		require.Equal(t, onceq.OutcomeDone, rig.Deliver().Outcome)

		rig = worker(t, bank, effectKey, "poor")
		got = rig.Deliver()
		require.Equal(t, onceq.OutcomeFailed, got.Outcome)
		require.Equal(t, "declined", got.ErrClass)
		require.Len(t, got.Letters, 1)
		require.Equal(t, "declined", got.Letters[0].Meta.Dead.Class)

		rig = worker(t, bank, effectKey, "slow")
		got = rig.Deliver()
		require.Equal(t, onceq.OutcomeRetried, got.Outcome)
		require.Contains(t, got.Err, "charged or not?")
		require.Zero(t, bank.count("slow"), "not yet")
		require.Equal(t, onceq.OutcomeRetried, rig.Redeliver().Outcome, "409: the first call still runs")
		rig.Advance(time.Minute)
		require.Equal(t, 1, bank.count("slow"))
		require.Equal(t, onceq.OutcomeDone, rig.Deliver().Outcome)
		require.Equal(t, 1, bank.count("slow"))
	})
}

// statuses answers the status that it is.
type status int

func (s status) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(s)) }

func TestOtherAnswers(t *testing.T) {
	for code, want := range map[status]onceq.Outcome{500: "retried", 503: "retried", 400: "failed", 401: "failed", 200: "retried"} {
		synctest.Test(t, func(t *testing.T) {
			require.Equal(t, want, worker(t, code, effectKey, "ann").Deliver().Outcome, "%d", code)
		})
	}
}

// A job that lay in a dead-letter queue until the API had forgotten its key is not charged again:
// it has expired. Without an expiry it would be.
func TestForgottenKey(t *testing.T) {
	for _, expires := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			bank := newAPI()
			c := &charger{"http://bank.example", &http.Client{Transport: lossy{direct{bank}}}, effectKey}
			rig := onceqtest.New(t, onceq.ProcessorConfig{
				Handler: onceq.JSONResult(c.charge), Defaults: onceq.JobOptions{MaxAttempts: 1},
			}, nil)
			m := message(order{"ann", 100})
			if !expires {
				m.Meta.Expires = time.Time{}
			}
			rig.Send(m)
			got := rig.Deliver()
			require.Equal(t, onceq.OutcomeFailed, got.Outcome)
			require.Equal(t, 1, bank.count("ann"))
			rig.Advance(keysLive + time.Hour)
			letter := got.Letters[0]
			m.Meta = letter.Meta // replayed
			rig.Send(m)
			got = rig.Deliver()
			if expires {
				require.Equal(t, onceq.ClassExpired, got.ErrClass)
				require.Equal(t, 1, bank.count("ann"))
			} else {
				require.Equal(t, 2, bank.count("ann"), "the API has forgotten the key")
			}
		})
	}
}

// lossy loses every answer.
type lossy struct{ http.RoundTripper }

func (l lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	return nil, errors.New("connection reset by peer")
}
