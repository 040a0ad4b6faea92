package steering

import (
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/engine"
)

// This file owns what a Worker's card says. The goroutine that keeps the seat calls
// Steward.describe; cards is its own, so there is no lock.

// cards is what one card knows of those before it.
type cards struct {
	began time.Time
	ends  []ended // the oldest first
	wait  time.Duration
	last  time.Time // when the job began whose wait that is
	looks map[string]*looks
	ran   []tally // the oldest first
}

// tally is how many handlers had ended at a time, by the type of job, and how many errors there
// were of each class.
type tally struct {
	at      time.Time
	of      map[string]control.Runs
	classes map[string]uint64
}

// minute is how many handlers have ended since about a minute ago: beats are seconds apart.
func (c *cards) minute(all Sketches, now time.Time) (total control.Runs, byType map[string]control.Runs, byClass map[string]uint64) {
	t := tally{now, make(map[string]control.Runs, len(all)), all.byClass()}
	for typ, s := range all {
		runs, errors := s.ran()
		t.of[typ] = control.Runs{Runs: uint64(runs), Errors: uint64(errors)}
	}
	c.ran = append(c.ran, t)
	for len(c.ran) > 2 && now.Sub(c.ran[1].at) >= time.Minute {
		c.ran = c.ran[1:]
	}
	byType = make(map[string]control.Runs)
	for typ, n := range t.of {
		was := c.ran[0].of[typ]
		r := control.Runs{Runs: uint64(uint32(n.Runs - was.Runs)), Errors: uint64(uint32(n.Errors - was.Errors))}
		if r.Runs == 0 {
			continue
		}
		r.Errors = min(r.Errors, r.Runs)
		byType[typ] = r
		total.Runs += r.Runs
		total.Errors += r.Errors
	}
	for class, n := range t.classes {
		if n -= c.ran[0].classes[class]; n > 0 {
			if byClass == nil {
				byClass = make(map[string]uint64)
			}
			byClass[class] = n
		}
	}
	return total, byType, byClass
}

// ended is how many deliveries had ended at a time.
type ended struct {
	at time.Time
	n  uint64
}

// rate is how many deliveries end a minute.
func (c *cards) rate(now time.Time, n uint64) float64 {
	c.ends = append(c.ends, ended{now, n})
	for len(c.ends) > 2 && now.Sub(c.ends[1].at) >= rateOver {
		c.ends = c.ends[1:]
	}
	first := c.ends[0]
	if over := now.Sub(first.at); over > 0 {
		return float64(n-first.n) / over.Minutes()
	}
	return 0
}

// durations are those of the handlers that ended in the last five minutes.
func (c *cards) durations(all Sketches, now time.Time) map[string]control.Quantiles {
	if c.looks == nil {
		c.minute(all, now) // what an earlier Run has counted is not this one's
		c.looks = make(map[string]*looks, len(all))
	}
	qs := make(map[string]control.Quantiles)
	for typ, s := range all {
		ls := c.looks[typ]
		if ls == nil {
			ls = new(looks)
			c.looks[typ] = ls
		}
		if q, ok := ls.quantiles(s, now); ok {
			qs[typ] = q
		}
	}
	return qs
}

// head notes how long the newest first attempt has waited, of those that run.
func (c *cards) head(js []engine.Job) {
	for i := range js {
		if w, ok := waited(&js[i]); ok && js[i].Began.After(c.last) {
			c.wait, c.last = w, js[i].Began
		}
	}
}

// headWait is what head has noted. A wait of long ago says nothing of what waits now.
func (c *cards) headWait(now time.Time) time.Duration {
	if now.Sub(c.last) >= rateOver {
		return 0
	}
	return c.wait
}

// waited is how long a job waited that runs for the first time, where the broker tells.
func waited(j *engine.Job) (time.Duration, bool) {
	if j.Attempt > 1 || j.Message == nil || j.Message.Published.IsZero() {
		return 0, false
	}
	from := j.Message.Published
	if m := j.Message.Meta; m != nil && m.NotBefore.After(from) {
		from = m.NotBefore
	}
	return max(0, j.Began.Sub(from)), true
}

// fullSince is when the newest of the running jobs began, where each slot has one; else zero.
func fullSince(g *Glance, js []engine.Job) (since time.Time) {
	if g.Slots == 0 || g.Busy < g.Slots {
		return since
	}
	for i := range js {
		if js[i].Began.After(since) {
			since = js[i].Began
		}
	}
	return since
}

func cardJob(j *engine.Job, noKeys bool) control.RunningJob {
	c := control.RunningJob{Key: j.Key.Key, At: j.Began, Attempt: j.Attempt, Fence: j.Fence, Overdue: j.Overdue}
	if m := metaOf(j.Message); m != nil {
		c.ID, c.Type = m.ID, m.Type
	}
	if noKeys {
		c.Key = ""
	}
	return c
}

func metaOf(m *broker.Message) *broker.Meta {
	if m == nil {
		return nil
	}
	return m.Meta
}

// seatText is what of a name a seat takes.
func seatText(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	for len(s) > controlstore.MaxName {
		s = strings.ToValidUTF8(s[:controlstore.MaxName], "")
	}
	return s
}

var hostName = sync.OnceValue(func() string {
	h, _ := os.Hostname()
	return h
})

// version is that of this module in the program; empty where it was not built from modules.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	const path = "github.com/onceq/onceq"
	if info.Main.Path == path {
		return info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return ""
})
