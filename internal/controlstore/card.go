package controlstore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/storecall"
)

// This file owns the card: what a worker says of itself, and its form. A worker makes one for each
// beat, and readers get copies. Nothing is locked.
//
// With eight jobs the item of a seat stays below 1 KB on DynamoDB, which is one write unit. So the
// names of the form are short, times are counted back from the card's own, a job's id is left out
// where it is the key, and what is too long is cut.

const (
	// itemMost bounds the item of a seat with eight jobs or fewer, and itemRest is what it has
	// beside the card, the owner's name and the key.
	itemMost = 1024
	itemRest = 240
	// cardLeast is what a card may have however long those are.
	cardLeast = 300
	cardJobs  = 8
	// cardJob is what each further job may add.
	cardJob = 80
)

// cardRoom is how many bytes a card may have in the seat of an owner under a key.
func cardRoom(owner, key string) int { return max(cardLeast, itemMost-itemRest-len(owner)-len(key)) }

// park is Card.Interrupted of a worker that parks what was interrupted.
const park = "park"

// wireCard is the form of a card. Fields are only added.
type wireCard struct {
	V        int                  `json:"v"`
	ID       string               `json:"i"`
	Host     string               `json:"h,omitempty"`
	PID      int                  `json:"p,omitempty"`
	Version  string               `json:"ver,omitempty"`
	Scope    string               `json:"s,omitempty"`
	Types    []string             `json:"t,omitempty"`
	Scopes   map[string]string    `json:"sc,omitempty"` // where they are not Scope:type
	At       int64                `json:"at"`           // ms since 1970; the other times are ms before it
	Up       int64                `json:"up,omitempty"`
	Slots    int                  `json:"n"`
	Busy     int                  `json:"b,omitempty"`
	Held     int                  `json:"hd,omitempty"`
	State    string               `json:"st,omitempty"`
	PausedBy []string             `json:"by,omitempty"`
	Paused   []string             `json:"pa,omitempty"`
	Bound    string               `json:"lb,omitempty"`
	Limiters map[string]uint64    `json:"lm,omitempty"`
	Rules    uint64               `json:"r,omitempty"`
	NoRules  string               `json:"nr,omitempty"`
	Outage   string               `json:"out,omitempty"`
	Since    int64                `json:"os,omitempty"`
	Outcomes map[string]uint64    `json:"o,omitempty"`
	Times    map[string][3]int64  `json:"d,omitempty"` // ms
	Wait     int64                `json:"w,omitempty"` // ms
	Rate     float64              `json:"rt,omitempty"`
	Minute   *[2]uint64           `json:"mn,omitempty"` // runs, errors
	ByType   map[string][2]uint64 `json:"mt,omitempty"`
	Classes  map[string]uint64    `json:"ec,omitempty"`
	Bounds   *[3]float64          `json:"cf,omitempty"` // MaxAttempts, Timeout and DrainTimeout in s
	Timeouts map[string]float64   `json:"tt,omitempty"` // s
	Full     int64                `json:"fl,omitempty"` // ms before At
	Retain   int64                `json:"rn,omitempty"` // s
	Park     bool                 `json:"pk,omitempty"`
	Requests map[string]uint64    `json:"rq,omitempty"`
	Jobs     []wireJob            `json:"j,omitempty"`
	More     int                  `json:"m,omitempty"`
	Probe    bool                 `json:"pr,omitempty"`
	Partial  bool                 `json:"pt,omitempty"`
}

// cuts make a card shorter, one after the other, until it fits. Each reports whether it can do more
// of the same.
var cuts = []func(*wireCard) (more bool){
	func(w *wireCard) bool { w.Requests, w.Limiters = nil, frequent(w.Limiters, 3); return false },
	func(w *wireCard) bool {
		w.ByType = failing(w.ByType, 3)
		w.Classes = frequent(w.Classes, 3)
		return false
	},
	func(w *wireCard) bool { // a job's key leads to its id
		for i := range w.Jobs {
			if w.Jobs[i].Key != "" {
				w.Jobs[i].ID = ""
			}
		}
		return false
	},
	func(w *wireCard) bool { w.cutText(40); return false },
	func(w *wireCard) bool {
		w.Times, w.Outcomes, w.Timeouts = mostly(w.Times, 3), mostly(w.Outcomes, 6), mostly(w.Timeouts, 3)
		return false
	},
	func(w *wireCard) bool {
		w.cutText(24)
		w.Types = w.Types[:min(len(w.Types), cardJobs)]
		w.Scopes = mostly(w.Scopes, cardJobs)
		return false
	},
	func(w *wireCard) bool {
		w.Times, w.Outcomes, w.Timeouts, w.Scopes = nil, mostly(w.Outcomes, 3), nil, mostly(w.Scopes, 3)
		return false
	},
	func(w *wireCard) bool {
		w.ByType = failing(w.ByType, 1)
		w.Classes = frequent(w.Classes, 1)
		return false
	},
	func(w *wireCard) bool { // the last minute tells more at night than all the time before
		if w.Minute != nil {
			w.Outcomes = nil
		}
		w.Classes, w.Limiters = nil, nil
		return false
	},
	func(w *wireCard) bool { // the newest job
		if n := len(w.Jobs); n > 0 {
			w.Jobs = w.Jobs[:n-1]
			w.More++
		}
		return len(w.Jobs) > 0
	},
	func(w *wireCard) bool {
		w.Types, w.Scopes, w.PausedBy, w.Outcomes, w.ByType, w.Classes = nil, nil, nil, nil, nil, nil
		return false
	},
}

// encodeCard is the card of the worker with an id and a name, as short as it must be for room.
func encodeCard(c *control.WorkerStatus, id, owner string, room int) ([]byte, error) {
	w := wireOf(c, id)
	if owner == processOf(c.Host, c.PID) {
		w.Host, w.PID = "", 0 // the name says it
	}
	most := room + cardJob*max(0, len(c.Jobs)-cardJobs)
	b, err := json.Marshal(w)
	for i := 0; err == nil && len(b) > most && i < len(cuts); {
		if !cuts[i](w) {
			i++
		}
		w.Partial = !slices.Equal(w.Types, typesOf(c)) || len(w.Scopes) < len(c.Scopes)
		b, err = json.Marshal(w)
	}
	if err != nil {
		return nil, fmt.Errorf("control: writing a card: %w", err)
	}
	return b, nil
}

// processOf is the name that a worker has where its configuration gives it none.
func processOf(host string, pid int) string { return host + "/" + strconv.Itoa(pid) }

// named fills in what the seat says: the owner, and with it the process.
func named(c *control.WorkerStatus, owner, queue string) {
	c.Owner, c.Queue = owner, queue
	if at := strings.LastIndexByte(owner, '/'); c.Host == "" && at >= 0 {
		if pid, err := strconv.Atoi(owner[at+1:]); err == nil {
			c.Host, c.PID = owner[:at], pid
		}
	}
}

func wireOf(c *control.WorkerStatus, id string) *wireCard {
	ago := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return max(1, c.At.Sub(t).Milliseconds())
	}
	w := &wireCard{
		V: 1, ID: id, Host: c.Host, PID: c.PID, Version: c.Version, Scope: c.Scope, Types: typesOf(c), Scopes: maps.Clone(c.Scopes), At: c.At.UnixMilli(), Up: ago(c.Started),
		Slots: c.Slots, Busy: c.Busy, Held: c.Held, State: c.State, PausedBy: c.PausedBy, Rules: c.Rules, NoRules: c.NoRules,
		Outage: c.Outage, Since: ago(c.OutageSince), Outcomes: maps.Clone(c.Outcomes), Wait: c.HeadWait.Milliseconds(), Rate: float64(int64(c.Rate*10)) / 10,
		Requests: c.Requests, More: c.More, Probe: c.Probe, Paused: c.Paused, Bound: c.LimitedBy, Limiters: maps.Clone(c.Limiters),
	}
	if len(c.Durations) > 0 {
		w.Times = make(map[string][3]int64, len(c.Durations))
		for typ, q := range c.Durations {
			w.Times[typ] = [3]int64{q.P50.Milliseconds(), q.P95.Milliseconds(), q.Max.Milliseconds()}
		}
	}
	w.Full, w.Retain, w.Park = ago(c.FullSince), int64(c.Retention/time.Second), c.Interrupted == park
	w.Classes = maps.Clone(c.MinuteErrors)
	if c.MaxAttempts != 0 || c.Timeout != 0 || c.DrainTimeout != 0 {
		w.Bounds = &[3]float64{float64(c.MaxAttempts), c.Timeout.Seconds(), c.DrainTimeout.Seconds()}
	}
	for typ, d := range c.Timeouts {
		if w.Timeouts == nil {
			w.Timeouts = make(map[string]float64, len(c.Timeouts))
		}
		w.Timeouts[typ] = d.Seconds()
	}
	if c.Minute != nil {
		w.Minute = &[2]uint64{c.Minute.Runs, c.Minute.Errors}
	}
	if len(c.MinuteTypes) > 0 {
		w.ByType = make(map[string][2]uint64, len(c.MinuteTypes))
		for typ, n := range c.MinuteTypes {
			w.ByType[typ] = [2]uint64{n.Runs, n.Errors}
		}
	}
	for i := range c.Jobs {
		j := &c.Jobs[i]
		k := wireJob{Key: j.Key, ID: j.ID, Type: j.Type, Ago: c.At.Sub(j.At), Attempt: j.Attempt, Fence: j.Fence, Overdue: j.Overdue}
		if k.Nth = slices.Index(w.Types, j.Type) + 1; k.Nth > 0 {
			k.Type = ""
		}
		if k.Key == k.ID {
			k.ID = ""
		}
		w.Jobs = append(w.Jobs, k)
	}
	return w
}

// typesOf are the types that the worker knows, those of its running jobs first.
func typesOf(c *control.WorkerStatus) []string {
	ts := slices.Clone(c.Types)
	first := 0
	for i := range c.Jobs {
		if at := slices.Index(ts, c.Jobs[i].Type); at >= first {
			ts[at], ts[first] = ts[first], ts[at]
			first++
		}
	}
	return ts
}

// cutText cuts what people have named.
func (w *wireCard) cutText(most int) {
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if len(pack(j.Key)) > most {
			j.Key = storecall.Cut(j.Key, most)
		}
		if len(pack(j.ID)) > most {
			j.ID = storecall.Cut(j.ID, most)
		}
		j.Type = storecall.Cut(j.Type, most)
	}
	for i, t := range w.Types {
		w.Types[i] = storecall.Cut(t, most)
	}
	w.Host, w.Version, w.NoRules = storecall.Cut(w.Host, most), storecall.Cut(w.Version, most), storecall.Cut(w.NoRules, 2*most)
	shorten(w.Times, most)
	shorten(w.ByType, most)
	shorten(w.Classes, most)
	shorten(w.Timeouts, most)
}

func shorten[V any](m map[string]V, most int) {
	for _, t := range slices.Collect(maps.Keys(m)) {
		if short := storecall.Cut(t, most); short != t {
			m[short] = m[t]
			delete(m, t)
		}
	}
}

// mostly keeps some entries of a map, in the order of their names.
func mostly[V any](m map[string]V, most int) map[string]V {
	if len(m) <= most {
		return m
	}
	some := make(map[string]V, most)
	for _, k := range slices.Sorted(maps.Keys(m))[:most] {
		some[k] = m[k]
	}
	return some
}

// failing keeps the counts with the most errors.
func failing(m map[string][2]uint64, most int) map[string][2]uint64 {
	if len(m) <= most {
		return m
	}
	types := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b][1], m[a][1]), cmp.Compare(m[b][0], m[a][0]), cmp.Compare(a, b))
	})
	some := make(map[string][2]uint64, most)
	for _, typ := range types[:most] {
		some[typ] = m[typ]
	}
	return some
}

// frequent keeps the classes with the most errors, and counts the rest as "other".
func frequent(m map[string]uint64, most int) map[string]uint64 {
	if len(m) <= most+1 {
		return m
	}
	const other = "other"
	some := map[string]uint64{other: m[other]}
	delete(m, other)
	classes := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
	for i, class := range classes {
		if i < most {
			some[class] = m[class]
		} else {
			some[other] += m[class]
		}
	}
	return some
}

// span is a time in seconds; one above all Durations is the longest.
func span(seconds float64) time.Duration {
	if seconds >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(math.Round(max(-1, seconds) * float64(time.Second)))
}

// decodeCard reads the state of a seat, and the id of its worker. Fields that it does not know are
// left out, so that workers of a later version are shown, too.
func decodeCard(state []byte) (c *control.WorkerStatus, id string, err error) {
	var w wireCard
	if err := json.Unmarshal(state, &w); err != nil {
		return nil, "", fmt.Errorf("control: a card cannot be read: %w", err)
	}
	at := time.UnixMilli(w.At).UTC()
	back := func(ms int64) time.Time {
		if ms == 0 {
			return time.Time{}
		}
		return at.Add(-time.Duration(ms) * time.Millisecond)
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	c = &control.WorkerStatus{
		Host: w.Host, PID: w.PID, Version: w.Version, Scope: w.Scope, Types: w.Types, Scopes: w.Scopes, Partial: w.Partial, At: at, Started: back(w.Up),
		Slots: w.Slots, Busy: w.Busy, Held: w.Held, State: w.State, PausedBy: w.PausedBy, Rules: w.Rules, NoRules: w.NoRules,
		Outage: w.Outage, OutageSince: back(w.Since), Outcomes: w.Outcomes, HeadWait: ms(w.Wait), Rate: w.Rate, Requests: w.Requests,
		More: w.More, Probe: w.Probe, Paused: w.Paused, LimitedBy: w.Bound, Limiters: w.Limiters,
	}
	if len(w.Times) > 0 {
		c.Durations = make(map[string]control.Quantiles, len(w.Times))
		for typ, q := range w.Times {
			c.Durations[typ] = control.Quantiles{P50: ms(q[0]), P95: ms(q[1]), Max: ms(q[2])}
		}
	}
	c.FullSince, c.Retention = back(w.Full), time.Duration(w.Retain)*time.Second
	switch {
	case w.Park:
		c.Interrupted = park
	case w.Retain > 0:
		c.Interrupted = "rerun"
	}
	c.MinuteErrors = w.Classes
	if b := w.Bounds; b != nil {
		c.MaxAttempts, c.Timeout, c.DrainTimeout = int(max(-1, min(b[0], math.MaxInt32))), span(b[1]), span(b[2])
	}
	for typ, s := range w.Timeouts {
		if c.Timeouts == nil {
			c.Timeouts = make(map[string]time.Duration, len(w.Timeouts))
		}
		c.Timeouts[typ] = span(s)
	}
	if w.Minute != nil {
		c.Minute = &control.Runs{Runs: w.Minute[0], Errors: w.Minute[1]}
	}
	if len(w.ByType) > 0 {
		c.MinuteTypes = make(map[string]control.Runs, len(w.ByType))
		for typ, n := range w.ByType {
			c.MinuteTypes[typ] = control.Runs{Runs: n[0], Errors: n[1]}
		}
	}
	for _, j := range w.Jobs {
		k := control.RunningJob{Key: j.Key, ID: j.ID, Type: j.Type, At: at.Add(-j.Ago), Attempt: max(1, j.Attempt), Fence: j.Fence, Overdue: j.Overdue}
		if j.Nth > 0 && j.Nth <= len(w.Types) {
			k.Type = w.Types[j.Nth-1]
		}
		c.Jobs = append(c.Jobs, k)
	}
	return c, w.ID, nil
}
