// Command saga books a flight, a hotel and a car, or none of them.
//
// The trap: the car is sold out, and flight and hotel are booked. Code that cancels them in the
// same attempt may crash half-way. The next attempt then finds a car after all, beside a flight
// that is cancelled; or it cancels the flight again and forgets the hotel.
//
// The answer: each booking is a Step, and so is each cancellation. That the trip is given up is
// saved before the first of them, so there is no way back. The trip is given up when a part is sold
// out, and when the attempts are used up: LastAttempt. A booking whose answer did not come may have
// been made. So each part is cancelled by the key that it was booked with, answered or not.
//
// A crash of the last attempt leaves nobody to undo: its dead letter has the class "attempts". What
// was saved is kept, so a replay of that letter goes on, or undoes.
//
//	go run ./examples/saga
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/examples/internal/screen"
)

// This file owns the job, and the scene. main and the tests call run, and the worker calls handle,
// one at a time. Nothing is locked here: agency.go, where trips are booked, has a lock of its own.

const maxAttempts = 3

// booker is where parts are booked, by a key of the caller's. A call with a key that it knows does
// nothing more. An error says that the part is not booked only where it is errSoldOut or errBusy.
type booker interface {
	Book(ctx context.Context, key, part string) (reference string, err error)
	Cancel(ctx context.Context, key string) error
}

// trips is the program's own work.
type trips struct{ at booker }

// handle books all parts, or none.
func (t *trips) handle(ctx context.Context, j *onceq.Job) error {
	why, givenUp, err := onceq.Saved[string](j, "given up")
	if err != nil {
		return err
	}
	if !givenUp {
		switch err := t.book(ctx, j); {
		case err == nil:
			return nil
		case errors.Is(err, errBusy): // never the end, in the last attempt neither
			return onceq.Postpone(time.Minute, err)
		case !errors.Is(err, errSoldOut) && !j.LastAttempt():
			return err
		default:
			why = err.Error()
		}
		if err := onceq.Save(ctx, j, "given up", why); err != nil {
			return err
		}
	}
	if err := t.undo(ctx, j); err != nil {
		return err
	}
	return onceq.Permanent(undone{why})
}

func (t *trips) book(ctx context.Context, j *onceq.Job) error {
	for _, part := range parts {
		_, err := onceq.Step(ctx, j, part, func(ctx context.Context) (string, error) {
			return t.at.Book(ctx, j.EffectKey(part), part)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// undo cancels in the opposite order. A part whose step was not saved may be booked all the same.
func (t *trips) undo(ctx context.Context, j *onceq.Job) error {
	for _, part := range slices.Backward(parts) {
		_, err := onceq.Step(ctx, j, "undo "+part, func(ctx context.Context) (bool, error) {
			return true, t.at.Cancel(ctx, j.EffectKey(part))
		})
		switch {
		case errors.Is(err, errBusy):
			return onceq.Postpone(time.Minute, err)
		case err != nil:
			return err // before an error of ours: it may say that the job is given back
		}
	}
	return nil
}

// undone has a class of its own: such a letter needs nobody, and others may be half-way.
type undone struct{ why string }

func (u undone) Error() string    { return "nothing is booked: " + u.why }
func (undone) ErrorClass() string { return "undone" }

// scene books the trips of three customers.
func scene(ctx context.Context, out io.Writer, a *agency) {
	queue, dead, store := must(membroker.New(nil)), must(membroker.New(nil)), must(memstore.New(nil))
	customers := []string{"ann", "bob", "cyd"}
	for _, customer := range customers {
		m := onceq.Message("", customer, nil)
		check(onceq.SendOne(ctx, queue, &m))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t := &trips{a}
	p := must(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			a.serve(j.Key().Key)
			return t.handle(ctx, j)
		}),
		Store: store, Scope: "trips",
		Defaults: onceq.JobOptions{MaxAttempts: maxAttempts, Backoff: func(int, error) time.Duration { return 50 * time.Millisecond }},
		Logger:   slog.New(slog.DiscardHandler),
		Observer: &screen.Screen{Out: out, Left: len(customers), Last: stop, Line: func(_ context.Context, r *onceq.JobReport) string {
			lines := []string{fmt.Sprintf("%s  attempt %d: %s", r.Key.Key, r.Attempt, r.Outcome)}
			lines = append(lines, a.told()...)
			if r.Outcome == onceq.OutcomeFailed {
				lines = append(lines, "class "+r.ErrClass+": "+dlq.Printable(r.Err))
			}
			return strings.Join(lines, "\n       ")
		}},
	}))
	w := must(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 1}))
	check(w.Run(ctx))
}

func main() {
	a := newAgency()
	a.soldOut["bob"] = "car"
	a.mute["cyd"] = "hotel"
	scene(context.Background(), os.Stdout, a)
	a.report(os.Stdout)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
