package pubsubpush

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns the handler: what becomes of a request, and the drain. The server's goroutines
// call ServeHTTP, for many requests at once, and whoever ends the process calls Shutdown. The lock
// mu has the count of requests; all else never changes after New.

// A Handler runs pushed messages through a Processor. Its methods may be called from many
// goroutines.
type Handler struct {
	b    *onceq.Batches
	o    Options
	auth checker

	draining context.Context // ends with the first Shutdown
	drain    context.CancelFunc
	cut      context.Context // of the handlers
	cutOff   context.CancelFunc

	mu     sync.Mutex
	open   int           // requests that are under way
	closed bool          // no more may begin
	idle   chan struct{} // closed when none is left after that
}

// New makes a handler for the push endpoint. It reports mistakes in o, and does no I/O.
func New(b *onceq.Batches, o Options) (*Handler, error) {
	o, err := o.complete(b)
	if err != nil {
		return nil, err
	}
	auth, err := o.Auth.checker()
	if err != nil {
		return nil, err
	}
	h := &Handler{b: b, o: o, auth: auth, idle: make(chan struct{})}
	h.draining, h.drain = context.WithCancel(context.Background())
	h.cut, h.cutOff = context.WithCancel(context.Background())
	return h, nil
}

// ServeHTTP answers one push:
//
//	204  done, or found done; failed or parked, with its dead letter stored
//	409  in progress elsewhere for half of the request's time or more, or in a drain
//	503  to be tried again: the handler has failed or was cut off, or has postponed its job for
//	     longer than the request lasts; the store does not answer, the body came too slowly, or the
//	     Handler drains
//	4xx  no message of Pub/Sub, or not from one who may push; one record is logged
//
// Pub/Sub takes a 204 for an acknowledgement, and sends the message again after any other answer.
// Each of those slows the whole subscription down, so what can never succeed is a dead letter and
// a 204.
//
// It goes on when the client has gone, because the job's end is recorded all the same: the message
// comes again, and is found done.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	if !h.enter() {
		answer(w, http.StatusServiceUnavailable, "the server is shutting down")
		return
	}
	defer h.leave()
	m, no := h.admit(w, r, begin)
	if no != nil {
		h.refuse(w, r, no)
		return
	}
	switch d := h.run(r, m, h.o.plan(begin)); {
	case d.Action == onceq.Ack:
		w.WriteHeader(http.StatusNoContent)
	case d.Claimed == dedupe.InProgress:
		answer(w, http.StatusConflict, "the message's job is in progress")
	default:
		answer(w, http.StatusServiceUnavailable, "the message's job is not done; send it again")
	}
}

// admit finds out who sends, before it reads what is sent.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request, begin time.Time) (*broker.Message, *refusal) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, refused(http.StatusMethodNotAllowed, "the method is %.40q, not POST", r.Method)
	}
	if no := h.auth.mayPush(r); no != nil {
		return nil, no
	}
	enough := h.hurry(w, begin)
	p, no := h.o.read(w, r)
	enough()
	if no != nil {
		return nil, no
	}
	if want := h.o.Subscription; want != "" && p.subscription != want {
		return nil, refused(http.StatusForbidden, "the subscription is %.400q, which may not push here", p.subscription)
	}
	return p.message, nil
}

// hurry ends the reading of a body when nothing may begin any more, or in a drain: a client that
// sends a byte a second would hold both up. enough stops that. A ResponseWriter that knows no
// deadlines reads on, until the server's own ReadTimeout.
func (h *Handler) hurry(w http.ResponseWriter, begin time.Time) (enough func()) {
	ctx, cancel := context.WithDeadline(h.draining, h.o.plan(begin).start)
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-over // the ResponseWriter ends with the request
		}
		cancel()
	}
}

// run has the Processor run the message. A job that is in progress elsewhere is asked about again
// until nothing may begin any more: each time after as long as has been waited already, so that
// the claims stay few, or when the owner's lease is over. So is one that may not start yet, and one
// that was postponed, because each answer but a 204 slows the subscription down.
func (h *Handler) run(r *http.Request, m *broker.Message, t times) (d onceq.Disposition) {
	// The job goes on when the client has gone. The values of the request stay.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	defer context.AfterFunc(h.cut, cancel)()
	for pause := firstPause; ; pause *= 2 {
		deadline := t.cut
		switch now := time.Now(); {
		case now.After(t.start):
			return d
		case now.After(t.half):
			// Process knows of this call's time alone, and at a Deadline would blame the job.
			deadline = time.Time{}
			defer time.AfterFunc(t.cut.Sub(now), cancel).Stop()
		}
		h.b.Process(ctx, []onceq.Delivery{{Message: clone(m), Until: t.until}}, &onceq.BatchOptions{
			Deadline: deadline, MinTime: t.least, Outage: outage,
		}, func(_ int, end onceq.Disposition) { d = end })
		busy, early := d.Claimed == dedupe.InProgress, d.Report.Outcome == onceq.OutcomeEarly
		postponed := d.Report.Outcome == onceq.OutcomePostponed && d.Delay > 0 // 0: it drains, for one
		if d.Action != onceq.Nack || !busy && !early && !postponed {
			return d
		}
		wait := d.Delay
		switch {
		case busy:
			wait = min(wait, pause+rand.N(pause/4))
		case postponed:
			wait = max(wait, pause)
		}
		if !h.rest(r.Context(), wait, t.start) {
			return d
		}
	}
}

const (
	// firstPause is how long a request waits before it asks again about a job in progress.
	firstPause = 250 * time.Millisecond
	// outage is how long a store that does not answer is asked for a claim: two calls of the
	// Processor's default.
	outage = 2 * onceq.DefaultCallTimeout
)

// rest waits. It is false at once where that would not end before the time last. It is false when
// the client has gone or the handler drains, because nothing may begin then.
func (h *Handler) rest(client context.Context, d time.Duration, last time.Time) bool {
	if !time.Now().Add(d).Before(last) {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-client.Done():
	case <-h.draining.Done():
	}
	return false
}

// clone is a message for one claim: the Processor may change what it is given.
func clone(m *broker.Message) *broker.Message {
	c := *m
	c.Attributes, c.Meta = maps.Clone(m.Attributes), m.Meta.Clone()
	return &c
}

// refuse answers a request that brings no job, and says so in the log.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, no *refusal) {
	as := []slog.Attr{slog.Int("status", no.status), slog.String("reason", no.reason), slog.String("remote", r.RemoteAddr)}
	if no.err != nil {
		as = append(as, slog.Any("error", no.err))
	}
	h.o.Logger.LogAttrs(r.Context(), slog.LevelWarn, "pubsubpush: a request is refused", as...)
	answer(w, no.status, no.reason)
}

func answer(w http.ResponseWriter, status int, reason string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, reason+"\n")
}

func (h *Handler) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.open++
	return true
}

func (h *Handler) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open--; h.open == 0 && h.closed {
		close(h.idle)
	}
}

// close lets no request begin any more.
func (h *Handler) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	h.drain()
	if h.open == 0 {
		close(h.idle)
	}
}

// Shutdown drains: new requests get a 503 and those that wait a 409, and what runs may end. Near
// the deadline of ctx, by Options.Reserve or a quarter of what is left at first, it ends the
// handlers' contexts. Their jobs are handed back uncounted, and Pub/Sub sends the messages again.
//
// It returns nil when each request has been answered, and the cause of ctx's end where that comes
// first. Without a deadline it waits for the handlers, and cuts them off when ctx ends. It may be
// called more than once. Call it before http.Server.Shutdown, which then finds no request left.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.close()
	var cut <-chan time.Time
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		timer := time.NewTimer(left - h.o.reserve(left))
		defer timer.Stop()
		cut = timer.C
	}
	for {
		select {
		case <-h.idle:
			h.cutOff()
			return nil
		case <-cut:
			h.cutOff()
			cut = nil
		case <-ctx.Done():
			var answered bool
			select {
			case <-h.idle: // the select above takes either of two that are ready
				answered = true
			default:
			}
			h.cutOff() // after the look: what it ends may be answered at once
			if answered {
				return nil
			}
			return context.Cause(ctx)
		}
	}
}
