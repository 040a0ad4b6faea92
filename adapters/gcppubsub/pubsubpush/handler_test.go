package pubsubpush_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	rigs "github.com/onceq/onceq/internal/rig"
)

// This file owns what becomes of a message that may be pushed. Each test has a rig and a bubble of
// its own, so nothing is locked. drain_test.go has what a Shutdown does.

// Each way to end, and what Pub/Sub is told.
func TestEnds(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		r.settle("done", r.occupy("done", time.Minute), dedupe.Done)
		for _, c := range []struct {
			body   string
			status int
			ran    int
			letter string
		}{
			{"ok", 204, 1, ""},
			{"done", 204, 0, ""},
			{"bad", 204, 1, "permanent"},
			{"retry", 503, 1, ""},
			{"panic", 503, 1, ""},
			{"cut", 503, 1, ""},
		} {
			w := r.serve(post(job(c.body)))
			if w.Code != c.status || s.of(c.body) != c.ran || (w.Body.Len() == 0) != (c.status == 204) || strings.Count(w.Body.String(), "\n") > 1 {
				r.Errorf("%s: %d %q, ran %d times; want %d, %d", c.body, w.Code, w.Body, s.of(c.body), c.status, c.ran)
			}
			if got := strings.Join(r.letters(), " "); got != c.letter {
				r.Errorf("%s: the letters are %q, want %q", c.body, got, c.letter)
			}
		}
		if rec := r.record("cut"); rec.Attempt != 1 || rec.ErrClass != onceq.ClassTimeout {
			r.Errorf("the record of what took too long is %+v", rec)
		}
		if text := r.log.String(); text != "" {
			r.Errorf("none was refused: %s", text)
		}
	})
}

// What can never succeed is a letter and a 204: its redeliveries would slow the subscription down.
func TestPoison(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		r.cfg.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{}, errBoom }
		bad := `{"message":{"data":"YQ==","attributes":{"onceq":"{"},"messageId":"1"}}`
		r.want(r.push([]byte(bad)), 204)
		r.want(r.push([]byte(`{"message":{"data":"YQ==","messageId":"2"}}`)), 204)
		if got := r.letters(); !slices.Equal(got, []string{"bad-meta", "no-key"}) {
			r.Errorf("the letters are %q", got)
		}
	})
}

// A response that is lost, and a duplicate long after: the job is found done.
func TestLostResponse(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		body := job("ok")
		for range 3 {
			r.want(r.push(body), 204)
			rigs.Takes(time.Hour)
		}
		if s.of("ok") != 1 {
			r.Errorf("it ran %d times", s.of("ok"))
		}
	})
}

// 1,000 redeliveries of one message at once: one effect, and each has an answer in time.
func TestThousandRedeliveries(t *testing.T) {
	for _, c := range []struct {
		body string
		most int // of 409
	}{{"slow", 0}, {"cut", 999}} {
		var s runs
		bubble(t, s.Handle, func(r *rig) {
			r.o.AckDeadline = 20 * time.Second
			begin, body := time.Now(), job(c.body)
			var answers []<-chan int
			for range 1000 {
				answers = append(answers, r.later(body))
			}
			got := map[int]int{}
			for _, a := range answers {
				got[<-a]++
			}
			r.took(begin, 0, 20*time.Second)
			switch {
			case s.of(c.body) != 1:
				r.Errorf("%s ran %d times", c.body, s.of(c.body))
			case c.body == "slow" && got[204] != 1000:
				r.Errorf("the answers are %v, want a 204 each", got)
			case c.body == "cut" && (got[503] != 1 || got[409] != 999):
				r.Errorf("the answers are %v, want one 503, and 409", got)
			}
			// however many wait, each asks a few times
			if n := r.store.Claims.Load(); n > 1000*12 {
				r.Errorf("%d claims", n)
			}
		})
	}
}

// A job that another process works on is waited for, and found done.
func TestWaitsForAnother(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		token := r.occupy("ok", time.Hour)
		begin, status := time.Now(), r.later(job("ok"))
		rigs.Takes(10 * time.Second)
		r.settle("ok", token, dedupe.Done)
		r.want(<-status, 204)
		r.took(begin, 10*time.Second, 25*time.Second)
		if s.of("ok") != 0 {
			r.Error("it ran")
		}
	})
}

// A job that goes on elsewhere gets a 409 before the deadline, and never after it.
func TestWaitEnds(t *testing.T) {
	for _, deadline := range []time.Duration{10 * time.Second, 20 * time.Second, time.Minute, 600 * time.Second} {
		var s runs
		bubble(t, s.Handle, func(r *rig) {
			r.o.AckDeadline = deadline
			r.occupy("ok", time.Hour)
			begin := time.Now()
			w := r.serve(post(job("ok")))
			r.want(w.Code, http.StatusConflict)
			// It waits for a good part of its time, and ends before the handlers' contexts would.
			r.took(begin, deadline/4, deadline-min(5*time.Second, deadline/4)-time.Second/2)
			if n := r.store.Claims.Load(); n < 3 || n > 15 {
				r.Errorf("%d claims in %v", n, deadline)
			}
		})
	}
}

// An instance that died holds its key for a Lease, and not for AckDeadline: the claim is renewed
// while the job runs.
func TestAnOwnerThatDied(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		r.o.AckDeadline = 600 * time.Second
		r.cfg.Lease = 20 * time.Second
		begin, status := time.Now(), r.later(job("long"))
		rigs.Takes(time.Second)
		if d := r.record("long").LeaseUntil.Sub(begin); d > 21*time.Second {
			r.Errorf("the claim is held for %v, want a Lease", d)
		}
		rigs.Takes(30 * time.Second)
		if d := time.Until(r.record("long").LeaseUntil); d <= 0 || d > 20*time.Second {
			r.Errorf("after 31 s the claim is held for %v more", d)
		}
		r.want(<-status, 204)
		if n := r.store.Renews.Load(); n == 0 {
			r.Error("the claim was never renewed")
		}
		// the owner of this one is dead
		r.occupy("ok", 20*time.Second)
		begin = time.Now()
		r.want(r.push(job("ok")), 204)
		r.took(begin, 20*time.Second, 25*time.Second)
		if s.of("ok") != 1 {
			r.Errorf("it ran %d times", s.of("ok"))
		}
	})
}

// A job that is short costs its store two writes.
func TestTwoWritesAJob(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		r.want(r.push(job("slow")), 204)
		if c, n, e := r.store.Claims.Load(), r.store.Renews.Load(), r.store.Settles.Load(); c != 1 || n != 0 || e != 1 {
			r.Errorf("%d claims, %d renewals, %d settlements", c, n, e)
		}
	})
}

// The handler's context ends early enough, and says when.
func TestHandlersDeadline(t *testing.T) {
	for _, c := range []struct{ ack, reserve, want time.Duration }{
		{10 * time.Second, 0, 7500 * time.Millisecond},
		{time.Minute, 0, 55 * time.Second},
		{600 * time.Second, 20 * time.Second, 580 * time.Second},
	} {
		var left, ran time.Duration
		bubble(t, func(ctx context.Context, _ *onceq.Job) error {
			end, _ := ctx.Deadline()
			begin := time.Now()
			left = end.Sub(begin)
			<-ctx.Done()
			ran = time.Since(begin)
			return ctx.Err()
		}, func(r *rig) {
			r.o.AckDeadline, r.o.Reserve = c.ack, c.reserve
			r.want(r.push(job("x")), 503)
			if left != c.want || ran != c.want {
				r.Errorf("%v: the context says %v and ended after %v, want %v", c.ack, left, ran, c.want)
			}
		})
	}
}

// slowly is a body that takes its time.
type slowly struct {
	io.Reader
	takes time.Duration
}

func (s *slowly) Read(p []byte) (int, error) {
	rigs.Takes(s.takes)
	s.takes = 0
	return s.Reader.Read(p)
}

// The time of a request counts from its beginning. What has too little of it left does not begin.
func TestTooLate(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		r.o.AckDeadline = 10 * time.Second
		for body, late := range map[string]time.Duration{"ok": 6 * time.Second, "ok-late": 7 * time.Second, "ok-later": 8 * time.Second} {
			req := httptest.NewRequest(http.MethodPost, "/", &slowly{bytes.NewReader(job(body)), late})
			status, ran := http.StatusNoContent, 1
			if late > 6750*time.Millisecond {
				status, ran = http.StatusServiceUnavailable, 0
			}
			if r.want(r.serve(req).Code, status); s.of(body) != ran {
				r.Errorf("%s ran %d times", body, s.of(body))
			}
		}
	})
}

// A handler that ignores its context is given up before the deadline.
func TestDeafHandler(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		begin := time.Now()
		r.want(r.push(job("deaf")), 503)
		r.took(begin, 55*time.Second, 58500*time.Millisecond) // its end can be recorded
		rigs.Takes(2 * time.Hour)
	})
}

// A job that may not start yet is waited for where the time is there.
func TestEarly(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		early := func(body string, in time.Duration) []byte {
			now := time.Now()
			return envelope(broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{ID: body, Created: now, NotBefore: now.Add(in)}})
		}
		begin := time.Now()
		r.want(r.push(early("ok", 12*time.Second)), 204)
		r.took(begin, 12*time.Second, 13*time.Second)
		begin = time.Now()
		r.want(r.push(early("ok-2", time.Hour)), 503)
		r.took(begin, 0, time.Second)
		if s.of("ok") != 1 || s.of("ok-2") != 0 {
			r.Errorf("they ran %d and %d times", s.of("ok"), s.of("ok-2"))
		}
	})
}

// A client that breaks off does not break the job: it goes on and is recorded.
func TestClientGone(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		ctx, gone := context.WithCancel(r.Context())
		h, ended := r.handler(), make(chan time.Time, 1)
		go func() {
			h.ServeHTTP(httptest.NewRecorder(), post(job("slow")).WithContext(ctx))
			ended <- time.Now()
		}()
		begin := time.Now()
		rigs.Takes(time.Second)
		gone()
		if d := (<-ended).Sub(begin); d != 5*time.Second {
			r.Errorf("the request ended after %v, and the job takes 5 s", d)
		}
		if rec := r.record("slow"); rec.Status != dedupe.Done || s.of("slow") != 1 {
			r.Errorf("the record is %+v after %d runs", rec, s.of("slow"))
		}
		r.want(r.push(job("slow")), 204)
		if s.of("slow") != 1 {
			r.Error("it ran again")
		}
		// one that only waits for another's job does not go on
		r.occupy("ok", time.Hour)
		ctx, gone = context.WithCancel(r.Context())
		go func() { rigs.Takes(3 * time.Second); gone() }()
		begin = time.Now()
		r.want(r.serve(post(job("ok")).WithContext(ctx)).Code, http.StatusConflict)
		r.took(begin, 3*time.Second, 3*time.Second)
	})
}

// A store that is away: nothing runs, and the answer comes soon.
func TestStoreAway(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		r.store.Fails(errBoom)
		begin := time.Now()
		r.want(r.push(job("ok")), 503)
		r.took(begin, 5*time.Second, 20*time.Second)
		r.store.Heals()
		r.want(r.push(job("ok")), 204)
		if s.of("ok") != 1 {
			r.Errorf("it ran %d times", s.of("ok"))
		}
	})
}

// A job that was cut off by a crash is parked, if the owner wants that: a letter and a 204.
func TestInterrupted(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		r.cfg.Defaults.Interrupted = dedupe.Park
		died := r.later(job("slow"))
		rigs.Takes(time.Second)
		r.store.Fails(errBoom)                // for this instance, for ever
		r.h, r.cfg.Store = nil, r.store.Store // another one
		begin := time.Now()
		r.want(r.push(job("slow")), 204)
		r.took(begin, 20*time.Second, 40*time.Second) // the rest of the lease
		if got := r.letters(); !slices.Equal(got, []string{onceq.ClassInterrupted}) || s.of("slow") != 1 {
			r.Errorf("the letters are %q, and it ran %d times", got, s.of("slow"))
		}
		r.want(r.push(job("slow")), 204)
		r.want(<-died, 503)
	})
}

// Pub/Sub sends the next message of a key when the one before was answered. What comes at once, as
// after a lost answer, is not ordered by this package: each request is a batch of its own.
func TestGroups(t *testing.T) {
	var order []string
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		order = append(order, j.Message.Group+"/"+string(j.Message.Body))
		return nil
	}, func(r *rig) {
		for _, body := range []string{"1", "2", "3"} {
			r.want(r.push(envelope(broker.Outgoing{Body: []byte(body), Group: "g"})), 204)
		}
		if want := []string{"g/1", "g/2", "g/3"}; !slices.Equal(order, want) {
			r.Errorf("they ran as %q", order)
		}
	})
}

// Nothing is left behind when all requests have been answered.
func TestQuiet(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		for _, body := range []string{"ok", "bad", "retry", "cut"} {
			r.push(job(body))
		}
		before := r.store.Claims.Load() + r.store.Renews.Load() + r.store.Settles.Load()
		rigs.Takes(24 * time.Hour)
		synctest.Wait()
		if n := r.store.Claims.Load() + r.store.Renews.Load() + r.store.Settles.Load() - before; n != 0 {
			r.Errorf("%d calls of the store after the answers", n)
		}
	})
}

// A request that has waited for another's job has less time for it. When that is over, the job has
// not failed: it is handed back uncounted, and the next push has all the time.
func TestLateStart(t *testing.T) {
	for _, c := range []struct {
		lease    time.Duration // of an owner that is dead
		attempts int           // that are counted after the owner's
	}{{5 * time.Second, 1}, {45 * time.Second, 0}, {60 * time.Second, 0}} {
		bubble(t, func(ctx context.Context, _ *onceq.Job) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, func(r *rig) {
			r.o.AckDeadline = 100 * time.Second
			r.o.Reserve = 20 * time.Second
			r.occupy("x", c.lease)
			owners := int(r.record("x").Attempt)
			begin := time.Now()
			r.want(r.push(job("x")), 503)
			r.took(begin, 70*time.Second, 96*time.Second)
			if n := int(r.record("x").Attempt) - owners; n != c.attempts {
				r.Errorf("after a lease of %v %d attempts were counted, want %d", c.lease, n, c.attempts)
			}
		})
	}
}
