package dlq

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// CanaryError ends a replay because some of its first letters came back: what made these jobs fail
// is still there. The replay has not sent the others.
type CanaryError struct {
	// Back are the letters that came back, as they are now.
	Back []Ref
	// Sent is how many letters had been sent.
	Sent int
}

// Error names the letters that came back.
func (e *CanaryError) Error() string {
	const most = 5
	var names []string
	for _, r := range e.Back[:min(most, len(e.Back))] {
		names = append(names, r.String())
	}
	more := ""
	if n := len(e.Back) - most; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("dlq: of %d letters sent as canaries %d came back: %s%s", e.Sent, len(e.Back), strings.Join(names, ", "), more)
}

// suspect notes a letter of a job that this replay has sent already. It does so until the canaries
// have been watched.
func (r *replay) suspect(l *item) {
	if !r.watched && r.cameBack(l) {
		r.back = append(r.back, refOf(l.m))
	}
}

// cameBack reports whether the letter shows that a job which was sent has failed again. Such a
// letter has a higher fence than the one that was sent, or is newer than this replay. A job without
// metadata is known by its body.
func (r *replay) cameBack(l *item) bool {
	newer := !failedAt(l.m).Before(r.start)
	name := jobName(l.m.Meta)
	if fence, ok := r.sent[name]; ok && (newer || fence != 0 && fenceOf(l.m.Meta) > fence) {
		return true
	}
	body := identify("body", 0, string(l.m.Body))
	return newer && (r.nameless[body] || name == "" && r.bodies[body])
}

// watch waits for CanaryWait, or until a canary has come back. It holds what else comes, to be sent
// afterwards.
func (r *replay) watch(ctx context.Context) error {
	for end := time.Now().Add(r.o.CanaryWait); len(r.back) == 0; {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		if _, err := r.step(ctx, min(left, r.q.o.Wait)); err != nil {
			return err
		}
	}
	r.watched = true
	if len(r.back) > 0 {
		return &CanaryError{Back: r.back, Sent: r.report.Replayed}
	}
	return nil
}
