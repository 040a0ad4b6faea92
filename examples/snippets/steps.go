package snippets

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/onceq/onceq"
)

// mailer is somebody's.
type mailer interface {
	Receipt(ctx context.Context, key, charge string) (id string, err error)
}

func charged(ctx context.Context, j *onceq.Job, b bank, m mailer) error {
	charge, err := onceq.Step(ctx, j, "charge", func(ctx context.Context) (string, error) {
		return b.Charge(ctx, j.EffectKey("charge"), 4999)
	})
	if err != nil {
		return err
	}
	_, err = onceq.Step(ctx, j, "mail", func(ctx context.Context) (string, error) {
		return m.Receipt(ctx, j.EffectKey("mail"), charge)
	})
	return err
}

func moveRows(ctx context.Context, j *onceq.Job, rows int, move func(from, to int) error) error {
	from, _, err := onceq.Saved[int](j, "row")
	for ; err == nil && from < rows; from += 1000 {
		if err = move(from, from+1000); err == nil {
			err = onceq.Save(ctx, j, "row", from+1000)
		}
	}
	return err
}

func limited(resp *http.Response) error {
	if resp.StatusCode != http.StatusTooManyRequests {
		return nil
	}
	return onceq.Postpone(time.Minute, errors.New(resp.Status))
}

func trial(ctx context.Context, j *onceq.Job, end func(context.Context) error) error {
	if err := onceq.Sleep(ctx, j, "trial", 40*24*time.Hour); err != nil {
		return err
	}
	return end(ctx)
}
