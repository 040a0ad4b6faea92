package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/onceqtest"
)

// The program: what was cut off is sent twice under Rerun, and each mail once under Park, or with
// keys.
func TestProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		rerun, park, keyed := run(t.Context(), &out)
		for _, s := range []*server{park, keyed} {
			for _, subject := range []string{"welcome", "invoice", "reminder", "ticket"} {
				require.Equal(t, 1, s.count(subject), "%s\n%s", subject, &out)
			}
		}
		require.Equal(t, 2, rerun.count("invoice"), "the trap is gone: %s", &out)
		require.Equal(t, 1, rerun.count("welcome"), "%s", &out)
		require.Contains(t, out.String(), "invoice bob@example.com  the log has it: mark it done")
		require.Contains(t, out.String(), "reminder cem@example.com the log has nothing: it shall run again")
	})
}

// worker is a rig with one mail in its queue.
func worker(t *testing.T, s *server, policy dedupe.Policy) *onceqtest.Rig {
	t.Helper()
	rig := onceqtest.New(t, onceq.ProcessorConfig{
		Handler: sender(s), Scope: "mails", Defaults: onceq.JobOptions{Interrupted: policy},
	}, nil)
	body, err := json.Marshal(mail{"ann@example.com", "welcome"})
	require.NoError(t, err)
	rig.Send(broker.Outgoing{Body: body, Meta: &broker.Meta{Key: "welcome ann@example.com"}})
	return rig
}

// deliverAll delivers until the queue is empty, and once more.
func deliverAll(t *testing.T, rig *onceqtest.Rig) {
	t.Helper()
	for {
		rig.Advance(time.Hour)
		d, err := rig.Queue.Depth(t.Context())
		require.NoError(t, err)
		if d.Visible == 0 {
			break
		}
		rig.Deliver()
	}
	rig.Redeliver()
}

// A worker that dies at the worst points never sends a second mail under Park. After the operator's
// decision the mail was sent, once.
func TestCrashUnderPark(t *testing.T) {
	for _, at := range []onceqtest.Fault{
		{Op: onceqtest.Claim, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Claim, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Start, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Start, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Ack, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Ack, Kind: onceqtest.CrashAfter},
	} {
		t.Run(at.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(false)
				rig := worker(t, s, dedupe.Park)
				rig.At(at)
				require.True(t, rig.Deliver().Crashed)
				deliverAll(t, rig)
				require.LessOrEqual(t, s.count("welcome"), 1)

				if operator(t.Context(), io.Discard, rig.Queue, rig.DeadLetters, rig.Store, s) > 0 {
					deliverAll(t, rig)
				}
				require.Equal(t, 1, s.count("welcome"))
				_, status, err := onceq.Result[any](t.Context(), rig.Store, dedupe.Key{Scope: "mails", Key: "welcome ann@example.com"})
				require.NoError(t, err)
				require.Equal(t, dedupe.Done, status)
			})
		})
	}
}

// The worker dies when the mail has just gone out, before the handler returns.
func TestKilledAfterTheMail(t *testing.T) {
	for policy, want := range map[dedupe.Policy]int{
		dedupe.Park:  1,
		dedupe.Rerun: 2, // the naive way doubles: without this the test could not fail
	} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(false)
				var rig *onceqtest.Rig
				kill := func() { rig.Kill() }
				rig = onceqtest.New(t, onceq.ProcessorConfig{
					Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
						err := sender(s).Handle(ctx, j)
						kill()
						kill = func() {}
						return err
					}),
					Scope: "mails", Defaults: onceq.JobOptions{Interrupted: policy},
				}, nil)
				rig.Send(broker.Outgoing{Body: []byte(`{"Subject": "welcome"}`), Meta: &broker.Meta{Key: "w"}})
				require.True(t, rig.Deliver().Crashed)
				deliverAll(t, rig)
				require.Equal(t, want, s.count("welcome"))
				if policy == dedupe.Park {
					require.Equal(t, 1, operator(t.Context(), io.Discard, rig.Queue, rig.DeadLetters, rig.Store, s))
					require.Equal(t, onceq.OutcomeAlreadyDone, rig.Deliver().Outcome, "what the operator has marked done is done")
					require.Equal(t, want, s.count("welcome"))
				}
			})
		})
	}
}

// What the server does with the first try, and what becomes of the job under Park: only a refusal
// is tried again.
func TestUnknown(t *testing.T) {
	for fault, want := range map[string]struct {
		outcome onceq.Outcome
		sent    int
	}{"refuses": {"retried", 0}, "reset": {"parked", 1}, "silent": {"parked", 0}} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(false)
				s.faults["welcome"] = fault
				rig := onceqtest.New(t, onceq.ProcessorConfig{
					Handler:  sender(s),
					Defaults: onceq.JobOptions{Interrupted: dedupe.Park, Timeout: time.Minute},
				}, nil)
				rig.Send(broker.Outgoing{Body: []byte(`{"Subject": "welcome"}`), Meta: &broker.Meta{Key: "w"}})
				require.Equal(t, want.outcome, rig.Deliver().Outcome)
				deliverAll(t, rig)
				if fault == "refuses" {
					require.Equal(t, 1, s.count("welcome"))
				} else {
					require.Equal(t, want.sent, s.count("welcome"))
				}
			})
		})
	}
}

// A letter that is replayed twice sends one mail: its permission reopens the failure once.
func TestReplayedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(false)
		rig := worker(t, s, dedupe.Park)
		// The handler has not begun; the record says that it may have.
		rig.At(onceqtest.Fault{Op: onceqtest.Start, Kind: onceqtest.CrashAfter})
		rig.Deliver()
		rig.Advance(time.Minute)
		require.Equal(t, onceq.OutcomeParked, rig.Deliver().Outcome)
		letters, err := rig.DeadLetters.Receive(t.Context(), broker.ReceiveOptions{Max: 10})
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, onceq.ClassInterrupted, letters[0].Meta.Dead.Class)
		for range 2 {
			_, err := rig.Queue.Send(t.Context(), []broker.Outgoing{{Body: letters[0].Body, Meta: letters[0].Meta}})
			require.NoError(t, err)
		}
		require.Equal(t, onceq.OutcomeDone, rig.Deliver().Outcome)
		require.Equal(t, onceq.OutcomeAlreadyDone, rig.Deliver().Outcome)
		require.Equal(t, 1, s.count("welcome"))
	})
}
