package snippets

import (
	"context"
	"errors"
	"time"

	"github.com/onceq/onceq"
)

// compared refuses the jobs that were made between a backup and its restore.
func compared(backup, restored time.Time, handle onceq.HandlerFunc) onceq.HandlerFunc {
	return func(ctx context.Context, j *onceq.Job) error {
		if m := j.Message.Meta; m != nil && m.Created.After(backup) && m.Created.Before(restored) {
			return onceq.Permanent(errors.New("made between backup and restore: compare first"))
		}
		return handle(ctx, j)
	}
}
