package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
)

// AuditEntry is an act: who did what, and why, and what came of it.
type AuditEntry = control.AuditEntry

// endPatience is how long the end of an act may take to be written, after the act's context has
// ended.
const endPatience = 5 * time.Second

// act does something with an audit record around it. The id is the record's; it is empty where
// Options.NoAudit let the act go on without one. The error is do's, or says that nothing was done.
func (o *Ops) act(ctx context.Context, s dedupe.Store, e AuditEntry, do func(context.Context) (result map[string]string, err error)) (id string, failed error) {
	e.By = cmp.Or(e.By, o.o.By)
	if e.By == "" {
		return "", fmt.Errorf("%w: Options.By is empty: say who acts", control.ErrInvalid)
	}
	var a *controlstore.Act
	var err error
	if s == nil {
		err = fmt.Errorf("%w: there is no Store", ErrMissing)
	} else {
		a, err = controlstore.Begin(ctx, s, e)
	}
	switch {
	case errors.Is(err, control.ErrInvalid):
		return "", err
	case err != nil && !o.o.NoAudit:
		return "", fmt.Errorf("%w: %w", ErrNoAudit, err)
	case err == nil:
		id = a.ID()
	}
	if o.hear.began != nil {
		o.hear.began(id)
	}
	result, err := map[string]string(nil), errPanicked
	defer func() { // also where do panics
		if o.hear.ended != nil {
			err = o.hear.ended(result, err)
		}
		if a != nil {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
			defer cancel()
			if failed := a.End(end, result, err); failed != nil {
				err = errors.Join(err, fmt.Errorf("what was done is not in the audit: %w", failed))
			}
		}
		o.log(ctx, &e, id, err)
		failed = err
	}()
	result, err = do(ctx)
	return id, err
}

// errPanicked is in the audit where an act's function panicked.
var errPanicked = errors.New("ops: the act has panicked")

func (o *Ops) log(ctx context.Context, e *AuditEntry, id string, err error) {
	if o.o.Logger == nil {
		return
	}
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("act", e.Act), slog.String("by", e.By), slog.String("reason", e.Reason), slog.String("queue", e.Queue),
		slog.String("object", e.Object), slog.String("audit", id),
	}
	if err != nil {
		level = slog.LevelError
		attrs = append(attrs, slog.Any("error", err))
	}
	o.o.Logger.LogAttrs(ctx, level, "onceq: an operator's act", attrs...)
}

// Audit reads the acts from one time to another in the order of their beginning, of each store that
// the targets have. It costs a read of eight numbers a day and store, and one more for each eight
// acts.
func (o *Ops) Audit(ctx context.Context, from, to time.Time) iter.Seq2[AuditEntry, error] {
	return func(yield func(AuditEntry, error) bool) {
		stores := o.stores()
		if len(stores) == 0 {
			yield(AuditEntry{}, fmt.Errorf("%w: no target has a Store", ErrMissing))
			return
		}
		for _, s := range stores {
			for e, err := range controlstore.Acts(ctx, s, from, to) {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}
