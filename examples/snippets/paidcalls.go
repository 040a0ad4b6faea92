package snippets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/onceq/onceq"
)

// This file owns the functions that docs/paid-calls.md shows. Handlers of the tests call them, one
// at a time, and nothing is locked.

// model is somebody's.
type model interface {
	Complete(ctx context.Context, idempotencyKey, prompt string) (text string, err error)
}

func asked(ctx context.Context, j *onceq.Job, m model, prompt string) (string, error) {
	return onceq.Step(ctx, j, "ask", func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return m.Complete(ctx, j.EffectKey("ask"), prompt)
	})
}

func answered(resp *http.Response) error {
	err := errors.New(resp.Status)
	switch code := resp.StatusCode; {
	case code < 300:
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusConflict:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return onceq.Postpone(time.Duration(max(1, seconds))*time.Second, errBusy)
	case code >= 500, code == http.StatusRequestTimeout:
		return err // done or not? The next attempt asks, by the same key
	default:
		return onceq.Permanent(err)
	}
}

var errBusy = errors.New("the provider is busy")

func dated(ctx context.Context, j *onceq.Job, m model, question string) (string, error) {
	today, err := onceq.Step(ctx, j, "today", func(context.Context) (string, error) {
		return time.Now().Format(time.DateOnly), nil
	})
	if err != nil {
		return "", err
	}
	return asked(ctx, j, m, "It is "+today+". "+question)
}

func refunded(ctx context.Context, j *onceq.Job, m model, b bank, complaint string) error {
	choice, err := asked(ctx, j, m, complaint)
	if err != nil || choice != "refund" {
		return err
	}
	_, err = onceq.Step(ctx, j, "refund", func(ctx context.Context) (string, error) {
		return b.Charge(ctx, j.EffectKey("refund"), -4999)
	})
	return err
}

// tools are what a model may ask for.
type tools interface {
	Run(ctx context.Context, idempotencyKey, call string) (result string, err error)
}

func looped(ctx context.Context, j *onceq.Job, m model, t tools) (string, error) {
	said := "What shall I do?"
	for n := range 20 {
		ask, act := fmt.Sprintf("ask/%d", n), fmt.Sprintf("act/%d", n)
		call, err := onceq.Step(ctx, j, ask, func(ctx context.Context) (string, error) {
			return m.Complete(ctx, j.EffectKey(ask), said)
		})
		if err != nil || call == "done" {
			return said, err
		}
		said, err = onceq.Step(ctx, j, act, func(ctx context.Context) (string, error) {
			return t.Run(ctx, j.EffectKey(act), call)
		})
		if err != nil {
			return "", err
		}
	}
	return "", onceq.Permanent(errors.New("the model does not come to an end"))
}

// postOffice takes no key, but a reference that can be searched for.
type postOffice interface {
	Send(ctx context.Context, reference string) (id string, err error)
	Find(ctx context.Context, reference string) (id string, found bool, err error)
}

func posted(ctx context.Context, j *onceq.Job, p postOffice) error {
	_, err := onceq.Step(ctx, j, "letter", func(ctx context.Context) (string, error) {
		reference := j.EffectKey("letter")
		begun, ok, err := onceq.Saved[time.Time](j, "letter begun")
		if err != nil {
			return "", err
		}
		if ok { // by an attempt that has not seen the answer
			if wait := time.Until(begun.Add(10 * time.Minute)); wait > 0 {
				return "", onceq.Postpone(wait, errors.New("the letter may be under way"))
			}
			if id, found, err := p.Find(ctx, reference); err != nil || found {
				return id, err
			}
		}
		if err := onceq.Save(ctx, j, "letter begun", time.Now()); err != nil {
			return "", err
		}
		return p.Send(ctx, reference)
	})
	return err
}

func texted(ctx context.Context, send func(context.Context) error) error {
	err := send(ctx)
	if errors.Is(err, errRefused) {
		return err // certain: nothing was sent
	}
	return onceq.Unknown(err) // nil stays nil
}

var errRefused = errors.New("refused")

// hotel is somebody's. What was booked by a key is cancelled by the key.
type hotel interface {
	Book(ctx context.Context, idempotencyKey string) (reference string, err error)
	Cancel(ctx context.Context, idempotencyKey string) error
}

func booked(ctx context.Context, j *onceq.Job, h hotel) error {
	_, givenUp, err := onceq.Saved[bool](j, "given up")
	if err != nil {
		return err
	}
	if !givenUp {
		_, err := onceq.Step(ctx, j, "book", func(ctx context.Context) (string, error) {
			return h.Book(ctx, j.EffectKey("book"))
		})
		if err == nil || errors.Is(err, errBusy) || !j.LastAttempt() {
			return err
		}
		if err := onceq.Save(ctx, j, "given up", true); err != nil {
			return err
		}
	}
	_, err = onceq.Step(ctx, j, "undo book", func(ctx context.Context) (bool, error) {
		return true, h.Cancel(ctx, j.EffectKey("book"))
	})
	if err != nil {
		return err
	}
	return onceq.Permanent(errors.New("no room, and nothing is booked"))
}
