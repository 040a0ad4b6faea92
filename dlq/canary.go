package dlq

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// This file owns how a replay watches what it has sent: the canaries, and under Ramp each batch.
// replay.go calls it in the goroutine of Replay, and no lock is held. What a watch receives is
// held, and goes the way of all letters of the replay.

// CanaryError ends a replay because its canaries did not prove that the others may go: jobs that it
// sent failed again, or nobody can tell yet whether they are done. The replay has not sent the
// others.
type CanaryError struct {
	// Back are the letters that came back, as they are now, and the letters of jobs that failed
	// again, as they were sent. It is empty where the time was over: Became says what was known
	// then.
	Back []Ref
	// Sent is how many letters had been sent.
	Sent int
	// Batch is how many of these were watched, Became what had become of them, and Watched for
	// how long they were watched.
	Batch   int
	Became  Became
	Watched time.Duration
}

// Error names the letters that came back, or says what is known of those that were watched.
func (e *CanaryError) Error() string {
	if len(e.Back) == 0 {
		return fmt.Sprintf("dlq: of %d letters watched for %v %s: so nobody knows whether the others may go", e.Batch, e.Watched.Round(time.Millisecond), &e.Became)
	}
	const most = 5
	var names []string
	for _, r := range e.Back[:min(most, len(e.Back))] {
		names = append(names, r.String())
	}
	more := ""
	if n := len(e.Back) - most; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("dlq: of %d letters sent %d came back: %s%s", e.Sent, len(e.Back), strings.Join(names, ", "), more)
}

// Became is what became of the jobs of a batch. Each job is counted once.
type Became struct {
	// Done are done. Running are claimed by a worker, Waiting not yet. Of those that are Unknown
	// nobody can tell: their letters name no record, Edit gave them another key, or the store did
	// not answer.
	Done, Running, Waiting, Unknown int
	// Failed are those that failed since they were sent, also where they are to be tried again.
	Failed []Ref
}

// String is what became of the jobs in a few words, such as "2 are done, 3 not begun".
func (b *Became) String() string {
	parts := []string{fmt.Sprintf("%d are done", b.Done)}
	for _, p := range [...]struct {
		n    int
		what string
	}{{len(b.Failed), "failed again"}, {b.Running, "running"}, {b.Waiting, "not begun"}, {b.Unknown, "not known"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

// Progress is a part of a replay that was sent and watched: the canaries, or a step of a ramp.
type Progress struct {
	// Number counts the batches from 1.
	Number int
	// Sent is how many letters the batch had, and Total how many were sent so far.
	Sent, Total int
	// Became is what ReplayOptions.Done said last of the batch's jobs; zero without it.
	Became
	// Watched is how long the batch was watched.
	Watched time.Duration
	// Back are the letters that came back. If there are any, the replay ends.
	Back []Ref
}

// Watch is a word on a batch that is watched.
type Watch uint8

// What ReplayOptions.Watching may answer.
const (
	WatchToEnd Watch = iota // it is watched until the end of CanaryWait at most
	WatchOn                 // it is also watched beyond that end
	GoOn                    // it has passed, though not all of its jobs are done
)

// ramp is the batch that follows one of n letters.
func ramp(n int) int {
	const most = 1 << 30
	next := 10
	for next <= n && next < most {
		next *= 5
	}
	return next
}

// watchFor notes that a letter was sent.
func (r *replay) watchFor(l *item) {
	if r.quota > 0 {
		r.quota--
	}
	ref := refOf(l.m)
	if keyOf(l.out.Meta) != keyOf(l.m.Meta) || typeOf(l.out.Meta) != typeOf(l.m.Meta) {
		ref.Record = RecordKey{} // the job has another one now
	}
	r.batch = append(r.batch, ref)
}

// suspect notes a letter of a job that this replay has sent already.
func (r *replay) suspect(l *item) {
	if r.cameBack(l) {
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

// watch waits until all jobs of the batch are known to be done, until one of them came back or has
// failed, or for CanaryWait. It holds what else comes, to be sent afterwards. Where somebody can
// tell what is done, the time alone proves nothing: jobs that nobody runs do not fail either.
func (r *replay) watch(ctx context.Context) error {
	b := Progress{Number: r.count + 1, Sent: len(r.batch), Total: r.report.Replayed}
	began, most := time.Now(), r.q.o.Wait
	var ask time.Time
	proven := r.o.Done == nil || r.o.CanaryAny
	if r.o.Done != nil {
		most = max(most/3, time.Millisecond)
	}
	word := WatchToEnd
	for end := began.Add(r.o.CanaryWait); len(r.back) == 0; {
		if r.isStopped() {
			return ErrStopped
		}
		if now := time.Now(); r.o.Done != nil && !now.Before(ask) {
			ask = now.Add(most)
			var err error
			if b.Became, err = r.o.Done(ctx, r.batch); err != nil {
				return fmt.Errorf("dlq: ReplayOptions.Done: %w", err)
			}
			if b.Done >= len(r.batch) {
				proven = true
				break
			}
			if len(b.Failed) > 0 && !r.o.CanaryAny {
				r.back = append(r.back, b.Failed...)
				break
			}
			if r.o.Watching != nil {
				b.Watched = time.Since(began)
				word = r.o.Watching(b)
			}
			if word == GoOn {
				proven = true
				break
			}
		}
		left := time.Until(end)
		if word == WatchOn {
			left = max(left, most)
		}
		if left <= 0 {
			break
		}
		if _, err := r.step(ctx, min(left, most)); err != nil {
			return err
		}
	}
	r.looked = time.Now()
	b.Watched, b.Back = time.Since(began), r.back
	if r.o.EachBatch != nil {
		r.o.EachBatch(b)
	}
	if len(r.back) > 0 || !proven {
		e := r.cameBackError()
		e.Batch, e.Became, e.Watched = b.Sent, b.Became, b.Watched
		return e
	}
	r.count++
	r.batch = nil
	if r.o.Ramp {
		r.quota = ramp(b.Sent)
	} else {
		r.meet = nil
	}
	return nil
}

func (r *replay) cameBackError() *CanaryError {
	return &CanaryError{Back: r.back, Sent: r.report.Replayed}
}
