package controlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/storecall"
)

// This file owns the audit: who did what, and why. Whoever acts calls Begin before the act and End
// after it; readers call Acts and ReadAct. Nothing is locked.
//
// An act is one record. Begin claims it and saves what is intended, End settles it with what came
// of it. So an act that never ended stays visible as such.

const (
	// auditKept is for how long an act that has ended is kept. One that has not is kept for ever.
	auditKept = 400 * 24 * time.Hour
	// auditTTL is longer than the days on which the lowest free number of a day is looked for.
	auditTTL = 72 * time.Hour
	// auditBatch is how many numbers are read at once.
	auditBatch = 8
	auditDay   = "2006-01-02"
	// maxDetail bounds the Detail of an act and that of its end together, as JSON.
	maxDetail = 16 << 10
)

func validate(e *control.AuditEntry) error {
	for _, f := range []struct {
		name, text string
		most       int
		required   bool
	}{
		{"AuditEntry.Act", e.Act, 64, true},
		{"AuditEntry.By", e.By, MaxText, true},
		{"AuditEntry.Reason", e.Reason, MaxText, true},
		{"AuditEntry.Queue", e.Queue, MaxName, false},
	} {
		if err := checkText(f.name, f.text, f.most, f.required); err != nil {
			return err
		}
	}
	if most := dedupe.MaxKey + dedupe.MaxScope + 1; len(e.Object) > most {
		return invalid("AuditEntry.Object", "has %d bytes, the limit is %d", len(e.Object), most)
	}
	return nil
}

// Act is an act that has begun. Make one with [Begin].
type Act struct {
	s     dedupe.Store
	key   dedupe.Key
	token dedupe.Token
	e     control.AuditEntry
}

// ID is the act's in the audit, such as "2026-11-22/41".
func (a *Act) ID() string { return a.e.ID }

// Begin writes down what is about to be done. An error means that it is not known to be written, so
// it should not be done; one that wraps [ErrInvalid] names the field.
func Begin(ctx context.Context, s dedupe.Store, e control.AuditEntry) (*Act, error) {
	if err := validate(&e); err != nil {
		return nil, err
	}
	e.Began = time.Now().UTC().Truncate(time.Millisecond)
	e.Ended, e.Result, e.Err = time.Time{}, nil, ""
	state, err := json.Marshal(&e)
	if err != nil {
		return nil, fmt.Errorf("control: writing the audit: %w", err)
	}
	if most := min(maxDetail, s.Limits().MaxResult); len(state) > most {
		return nil, invalid("AuditEntry", "has %d bytes, the limit is %d", len(state), most)
	}
	day := e.Began.Format(auditDay)
	for n := 0; n < highest; n += auditBatch {
		rs, err := storecall.ReadAll(ctx, s, actKeys(day, n))
		if err != nil {
			return nil, fmt.Errorf("control: reading the audit: %w", err)
		}
		for i, r := range rs {
			if r != nil {
				continue
			}
			a, err := begin(ctx, s, day, n+i, e, state)
			if a != nil || err != nil {
				return a, err
			}
		}
	}
	return nil, fmt.Errorf("control: the audit of %s has no number left", day)
}

// begin takes a number; nil where another was faster.
func begin(ctx context.Context, s dedupe.Store, day string, n int, e control.AuditEntry, state []byte) (*Act, error) {
	a := &Act{s: s, key: actKey(day, n), token: storecall.NewToken(), e: e}
	a.e.ID = a.key.Key
	c, err := storecall.Claim(ctx, s, dedupe.ClaimRequest{Key: a.key, Token: a.token, TTL: auditTTL, Owner: e.By})
	switch {
	case err != nil:
		return nil, fmt.Errorf("control: writing the audit: %w", err)
	case c.Outcome != dedupe.Won:
		return nil, nil
	}
	if err := storecall.Renew(ctx, s, dedupe.Renewal{Key: a.key, Token: a.token, TTL: auditTTL, State: state, StateNo: c.StateNo + 1}); err != nil {
		return nil, fmt.Errorf("control: writing the audit: %w", err)
	}
	return a, nil
}

// End writes down what came of the act; err is nil where it was done. What is too long is left out.
// It may be called again after an error.
func (a *Act) End(ctx context.Context, result map[string]string, err error) error {
	e := a.e
	e.Ended = time.Now().UTC().Truncate(time.Millisecond)
	e.Result = result
	if err != nil {
		e.Err = storecall.Text(err)
	}
	b, failed := json.Marshal(&e)
	if most := min(2*maxDetail, a.s.Limits().MaxResult); failed == nil && len(b) > most {
		e.Result = map[string]string{"cut": strconv.Itoa(len(b)) + " bytes"}
		if b, failed = json.Marshal(&e); len(b) > most {
			e.Detail = nil
			b, failed = json.Marshal(&e)
		}
	}
	if failed == nil {
		failed = storecall.Settle(ctx, a.s, dedupe.Settlement{Key: a.key, Token: a.token, To: dedupe.Done, Result: b, Retain: auditKept})
	}
	if failed != nil {
		return fmt.Errorf("control: writing the end of %s into the audit: %w", a.e.ID, failed)
	}
	return nil
}

// Acts reads the audit from one time to another, day by day. It yields acts in the order in which
// they were written down, and ends after the first error. It reads eight numbers at a time: on
// DynamoDB eight read units for a day without acts.
func Acts(ctx context.Context, s dedupe.Store, from, to time.Time) iter.Seq2[control.AuditEntry, error] {
	return func(yield func(control.AuditEntry, error) bool) {
		first := from.UTC().Truncate(24 * time.Hour)
		for day := first; !day.After(to); day = day.Add(24 * time.Hour) {
			if !actsOf(ctx, s, day.Format(auditDay), func(e control.AuditEntry, err error) bool {
				if err == nil && (e.Began.Before(from) || e.Began.After(to)) {
					return true
				}
				return yield(e, err)
			}) {
				return
			}
		}
	}
}

// LeastRead is how many records Acts reads where there are no acts.
func LeastRead(from, to time.Time) int64 {
	const day = 24 * time.Hour
	return auditBatch * (1 + int64(to.UTC().Truncate(day).Sub(from.UTC().Truncate(day))/day))
}

// actsOf goes through one day, and reports whether to go on.
func actsOf(ctx context.Context, s dedupe.Store, day string, yield func(control.AuditEntry, error) bool) bool {
	for n := 0; n < highest; n += auditBatch {
		rs, err := storecall.ReadAll(ctx, s, actKeys(day, n))
		if err != nil {
			yield(control.AuditEntry{}, fmt.Errorf("control: reading the audit: %w", err))
			return false
		}
		some := false
		for _, r := range rs {
			if r == nil {
				continue
			}
			some = true
			e, err := entryOf(r)
			if !yield(e, err) || err != nil {
				return false
			}
		}
		if !some {
			return true
		}
	}
	return true
}

// ReadAct reads one act; nil = there is none of this id.
func ReadAct(ctx context.Context, s dedupe.Store, id string) (*control.AuditEntry, error) {
	r, err := storecall.Read(ctx, s, dedupe.Key{Scope: ScopeAudit, Key: id})
	if err != nil {
		return nil, fmt.Errorf("control: reading the audit: %w", err)
	}
	if r == nil {
		return nil, nil
	}
	e, err := entryOf(r)
	if err != nil {
		return nil, err
	}
	return &e, nil
}

func entryOf(r *dedupe.Record) (control.AuditEntry, error) {
	e := control.AuditEntry{ID: r.Key.Key, By: r.Owner, Began: r.ClaimedAt}
	b := r.Result
	if r.Status != dedupe.Done {
		b = r.State
	}
	if len(b) == 0 {
		return e, nil // who acted died before he had said what he would do, so he did nothing
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, fmt.Errorf("control: the act %s cannot be read: %w", r.Key.Key, err)
	}
	return e, nil
}

func actKey(day string, n int) dedupe.Key {
	return dedupe.Key{Scope: ScopeAudit, Key: day + "/" + strconv.Itoa(n)}
}

func actKeys(day string, from int) []dedupe.Key {
	ks := make([]dedupe.Key, auditBatch)
	for i := range ks {
		ks[i] = actKey(day, from+i)
	}
	return ks
}
