package dlq

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// CanaryError ends a replay whose first letters came back: what killed these jobs is still there.
// The others were not sent.
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

// suspect notes a letter of a job that this replay has sent already, until the canaries have been
// watched.
func (r *replay) suspect(l *item) {
	if !r.watched && r.cameBack(l) {
		r.back = append(r.back, refOf(l.m))
	}
}

// cameBack tells whether a letter is of a job that was sent. A job without metadata is known by its
// body.
func (r *replay) cameBack(l *item) bool {
	newer := !failedAt(l.m).Before(r.start)
	name := jobName(l.m.Meta)
	if fence, ok := r.sent[name]; ok && (newer || fence != 0 && fenceOf(l.m.Meta) > fence) {
		return true
	}
	body := identify("body", 0, string(l.m.Body))
	return newer && (r.nameless[body] || name == "" && r.bodies[body])
}

// watch waits for canaries to come back. What else comes is held, to be sent afterwards.
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
