package ops

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/digest"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns the way back of jobs that a reconciliation found missing, or failed without a
// letter. Tools call Resend with the Evidence. Nothing is locked: a missing key absorbs whatever
// comes second, and a failure is reopened once, by its fence.

// ResendSpec says how the jobs of an Evidence are sent.
type ResendSpec struct {
	Evidence *Evidence
	// PerSecond is how many are sent a second at most; 0 = as fast as the queue takes them.
	PerSecond float64
	// By is who acts; default: Options.By. Reason is why. Both are required.
	By, Reason string
}

// Resent counts what a resend did.
type Resent struct {
	// Sent are the jobs that were sent. Moved are those that were left, because a worker has begun
	// them since, or because their Due is older than the retention by now.
	Sent, Moved int
	// Failed are the errors of jobs that may not have been sent. To send them again is safe.
	Failed []error
}

// Resend sends the jobs that Reconcile found missing, and lost failures, which it reopens by their
// fence. It asks the store for each once more before. Where there is none, nothing is done. It is
// safe beside another resend, beside a replay, and where the job's own message still waits: the key
// runs once.
//
// It sends nothing, with an error that wraps [ErrRefused], where there are more than
// ReconcileOptions.Max, and where the store went back in time within the retention and there was no
// ledger, or one without an effect of an expected key: what the store has forgotten looks missing.
// Workers note that they have seen it go back; after a restore that nobody noticed give a ledger as
// well.
func (o *Ops) Resend(ctx context.Context, spec ResendSpec) (r Resent, audit string, err error) {
	e := spec.Evidence
	if e != nil && e.t != nil && e.sends == 0 {
		return r, "", nil
	}
	if err := o.CheckResend(ctx, e); err != nil {
		return r, "", err
	}
	if !(spec.PerSecond >= 0) {
		return r, "", fmt.Errorf("%w: ResendSpec.PerSecond is %v, want 0 or more", ErrRefused, spec.PerSecond)
	}
	var keys []string
	for _, c := range e.toSend {
		keys = append(keys, c.Key.String())
	}
	entry := AuditEntry{Act: "resend", By: spec.By, Reason: spec.Reason, Queue: e.t.known, Detail: map[string]string{
		"jobs": strconv.Itoa(len(keys)), "keys": cutTo(strings.Join(keys, " "), 4<<10), "ledger": strconv.FormatBool(e.Ledger),
	}}
	if e.sendLost {
		entry.Detail["send lost"] = word(true)
	}
	if rate := rate(spec.PerSecond); rate != "" {
		entry.Detail["rate"] = rate
	}
	audit, err = o.act(ctx, e.t.Store, entry, func(ctx context.Context) (map[string]string, error) {
		err := resend(ctx, e, spec.PerSecond, &r)
		return map[string]string{"sent": strconv.Itoa(r.Sent), "left": strconv.Itoa(r.Moved), "failed": strconv.Itoa(len(r.Failed))}, err
	})
	return r, audit, err
}

// CheckResend is the error with which Resend would refuse; nil = none is known of. It reads the
// rules and the audit.
func (o *Ops) CheckResend(ctx context.Context, e *Evidence) error {
	if e == nil || e.t == nil {
		return fmt.Errorf("%w: ResendSpec.Evidence is not one of Reconcile", ErrRefused)
	}
	if _, err := e.t.queue(); err != nil {
		return err
	}
	if e.sends > e.max {
		return fmt.Errorf("%w: %d jobs would be sent, and at most %d may be: so many are rather a wrong list, queue or scope; look, and then raise Max", ErrRefused, e.sends, e.max)
	}
	if e.Effects > 0 {
		return nil
	}
	why, err := e.t.wentBack(ctx, e.retention)
	switch {
	case err != nil:
		return err
	case why != "" && e.Ledger:
		return fmt.Errorf("%w: %s, and the ledger has no effect of any key that is expected, so it tells nothing of what was forgotten: is it the right one, and whole?", ErrRefused, why)
	case why != "":
		return fmt.Errorf("%w: %s, and what it has forgotten looks missing although it was done: give a ledger of the effects", ErrRefused, why)
	}
	return nil
}

// wentBack is the mark that the store went back in time within the retention; empty = there is
// none. A worker's rule has it while it holds, and the act that ended the rule afterwards.
// The act that made the rule has it as well: a rule ends by itself before the retention does.
func (t *target) wentBack(ctx context.Context, retention time.Duration) (string, error) {
	rules, err := controlstore.Read(ctx, t.Store)
	if err != nil {
		return "", err
	}
	for _, r := range rules.Rules {
		if strings.HasPrefix(r.Reason, controlstore.WentBack) {
			return r.Reason, nil
		}
	}
	now := clock(ctx, t.Store)
	for a, err := range controlstore.Acts(ctx, t.Store, now.Add(-retention), now.Add(time.Hour)) {
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(a.Reason, controlstore.WentBack) {
			return a.Reason, nil
		}
		if why := a.Result[resultWentBack]; why != "" {
			return why, nil
		}
	}
	return "", nil
}

// resultWentBack is in the result of a resume that ended a worker's rule.
const resultWentBack = "went back"

func resend(ctx context.Context, e *Evidence, perSecond float64, r *Resent) error {
	q, once := e.t.Queue, rand.Text()
	most := min(max(1, q.Limits().SendBatch), max(1, e.t.Store.Limits().MaxBatch))
	if perSecond > 0 {
		most = int(max(1, min(float64(most), perSecond)))
	}
	for from := 0; from < len(e.toSend); from += most {
		part := e.toSend[from:min(from+most, len(e.toSend))]
		ks := make([]dedupe.Key, len(part))
		for i := range part {
			ks[i] = part[i].Key
		}
		rs, err := getAll(ctx, e.t.Store, ks)
		if err != nil {
			return err
		}
		gone := clock(ctx, e.t.Store).Add(-e.retention)
		var ms []broker.Outgoing
		for i := range part {
			if c := &part[i]; c.stands(rs[i], gone) {
				ms = append(ms, c.message(e, once))
			} else {
				r.Moved++
			}
		}
		if len(ms) == 0 {
			continue
		}
		err = onceq.Send(ctx, q, ms)
		for i := range ms {
			if err := broker.ErrAt(err, i); err != nil {
				r.Failed = append(r.Failed, fmt.Errorf("%s: %w", ms[i].Meta.Key, err))
			} else {
				r.Sent++
			}
		}
		if perSecond > 0 && from+most < len(e.toSend) {
			retry.Rest(ctx, time.Duration(float64(len(ms))/perSecond*float64(time.Second)))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if n := len(r.Failed); n > 0 {
		return fmt.Errorf("%d jobs may not have been sent: %w", n, r.Failed[0])
	}
	return nil
}

// stands reports whether the record is as it was found. Of a job that was due before gone it may
// have come and expired since.
func (c *candidate) stands(now *dedupe.Record, gone time.Time) bool {
	if c.Kind == FoundMissing {
		return now == nil && c.Due.After(gone)
	}
	return now != nil && now.Status == dedupe.Failed && now.Fence == c.Fence && !IsCancelled(now)
}

// message is what brings the job again. Its ID is the same each time. A queue that takes a second
// message with one DedupID for the first would swallow it for minutes, although the first one may
// be gone by now, so each call of Resend has its own, once. The key absorbs what comes twice.
func (c *candidate) message(e *Evidence, once string) broker.Outgoing {
	t := e.t
	m := broker.Outgoing{Body: c.send.Body, Attributes: maps.Clone(c.send.Attributes), Group: c.send.Group}
	meta := c.send.Meta.Clone()
	if meta == nil {
		meta = new(broker.Meta)
	}
	name := digest.Of("resend", c.Key.Scope, c.Key.Key, strconv.FormatUint(c.Fence, 10))
	meta.ID, meta.Key, meta.Created, meta.Dead, meta.NotBefore = name, c.Key.Key, c.Due, nil, time.Time{}
	m.Meta, m.DedupID = meta, digest.Of(name, string(m.Body), once)
	if m.Group == "" && t.Queue.Limits().RequireGroup {
		m.Group = digest.Of("group", c.Key.Key)
	}
	if r := c.record; r != nil {
		scope, _, _ := strings.Cut(r.Key.Scope, ":")
		if all := e.State.Totals().Scopes; len(all) == 1 { // under JobOptions.Scope it is another
			for only := range all {
				scope = only
			}
		}
		meta.Created = cmp.Or(r.Sent, r.Created)
		meta.Dead = &broker.Letter{
			Fence: r.Fence, Class: r.ErrClass, FirstErr: r.FirstErr, LastErr: r.LastErr, Attempts: r.Attempt,
			Source: scope + ":" + t.known, Scope: r.Key.Scope, Key: r.Key.Key, At: r.Finished,
		}
		if t.Letters != nil {
			t.Letters.SignReplay(&m)
		}
	}
	return m
}
