package outages

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/ops"
)

// steps has an effect in each of its steps, with a key of its own, and sleeps and postpones itself
// in between. What a step has saved once is what each later run gets, also after a crash and a
// replay.
func (s *soak) steps(ctx context.Context, j *onceq.Job) error {
	if err := s.work(ctx, j); err != nil {
		return err
	}
	for i, name := range stepNames {
		v, err := onceq.Step(ctx, j, name, func(context.Context) (int, error) {
			if s.n(8) == 0 {
				return 0, rig.ErrBoom
			}
			s.mu.Lock()
			s.charged[j.EffectKey(name)] = true
			s.mu.Unlock()
			return s.n(1 << 30), nil
		})
		if err != nil {
			return err
		}
		s.mu.Lock()
		at := j.Key().Key + "/" + name
		if was, ok := s.values[at]; ok && was != v {
			s.t.Errorf("%s was saved as %d, and a later run got %d", at, was, v)
		}
		s.values[at] = v
		s.mu.Unlock()
		switch {
		case i == 0 && strings.HasSuffix(j.Key().Key, "3"):
			if err := onceq.Sleep(ctx, j, "nap", 3*time.Minute); err != nil {
				return err
			}
		case s.n(12) == 0:
			return onceq.Postpone(time.Duration(s.n(90))*time.Second, rig.ErrBoom)
		}
	}
	return nil
}

var stepNames = []string{"charge", "book", "mail"}

// operator acts while everything goes wrong: cancels jobs, and replays letters. Park's jobs whose
// effect lies elsewhere are left alone, because a replay of them is a person's decision.
func (s *soak) operator(keys []string, until time.Time) {
	letters, err := dlq.New(s.dlq.Broker, nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	o, err := ops.New([]ops.Target{{Name: "q", Store: s.st.Store}}, &ops.Options{By: "ana"})
	if err != nil {
		s.t.Error(err)
		return
	}
	for {
		rig.Takes(time.Duration(10+s.n(50)) * time.Second)
		if time.Now().After(until) {
			return
		}
		if s.n(2) == 0 {
			_, err := letters.Replay(s.t.Context(), dlq.ReplayOptions{To: s.q.Broker, Filter: dlq.Filter{Type: replayed[s.n(len(replayed))]}})
			if err != nil && !errors.Is(err, dlq.ErrIncomplete) {
				s.t.Errorf("replay: %v", err)
			}
			continue
		}
		k := s.unfinished(keys)
		if _, err := o.Cancel(s.t.Context(), ops.CancelSpec{Key: k, Reason: "soak"}); err == nil {
			s.mu.Lock()
			s.cancelled[k.Key] = true
			s.mu.Unlock()
		} else if !errors.Is(err, ops.ErrRefused) {
			s.t.Errorf("cancel of %v: %v", k, err)
		}
	}
}

// unfinished draws a job that is not done, if it finds one soon.
func (s *soak) unfinished(keys []string) (k dedupe.Key) {
	for range 30 {
		i := s.n(len(keys))
		k = dedupe.Key{Scope: rig.Scope + ":" + typeOf(i), Key: keys[i]}
		rs, err := s.st.Store.Get(s.t.Context(), []dedupe.Key{k})
		if err == nil && (rs[0] == nil || rs[0].Status == dedupe.Claimed || rs[0].Status == dedupe.Released) {
			break
		}
	}
	return k
}

// replayed are the types whose letters may be replayed.
var replayed = []string{"tx-rerun", "tx-park", "steps"}

// typeOf is the type of the job of that number.
func typeOf(i int) string { return []string{"tx-rerun", "tx-park", "once", "steps"}[i%4] }

// checkSteps checks what a job of steps has left.
func (s *soak) checkSteps(k dedupe.Key) {
	for _, name := range stepNames {
		if !s.charged[onceq.EffectKey(k, name)] {
			s.t.Errorf("%s is done, and its step %s has had no effect", k.Key, name)
		}
	}
}

// timeLine tells what became of a key, for the one that reads a seed that failed.
func (s *soak) timeLine(k dedupe.Key) string {
	rs, err := s.st.Store.Get(context.Background(), []dedupe.Key{k})
	if err != nil || rs[0] == nil {
		return fmt.Sprintf("no record, %v", err)
	}
	r := rs[0]
	var b strings.Builder
	for _, a := range r.Past {
		fmt.Fprintf(&b, "\n\t%s attempt %d, fence %d, by %s: %v at %s %s %s", clock(a.Claimed), a.Number, a.Fence, a.Owner, a.End, clock(a.Ended), a.Class, a.Err)
		if a.Reopened {
			b.WriteString(", then replayed")
		}
	}
	fmt.Fprintf(&b, "\n\t%s attempt %d, fence %d, by %s: %v at %s %s %s", clock(r.ClaimedAt), r.Attempt, r.Fence, r.Owner, r.Status, clock(r.Updated), r.ErrClass, r.LastErr)
	return b.String()
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }
