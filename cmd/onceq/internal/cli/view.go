package cli

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// This file owns the values that JSON has. Fields are only added: programs read them. "onceq help
// json" lists them, and a test compares. What is not known is null; times are RFC 3339 in UTC, and
// durations are seconds.

type queueView struct {
	Queue    string     `json:"queue"`
	At       *string    `json:"at"`
	Visible  *int64     `json:"visible"`
	InFlight *int64     `json:"in_flight"`
	Delayed  *int64     `json:"delayed"`
	HeadWait *float64   `json:"head_wait"`
	PerMin   *float64   `json:"per_minute"`
	Failed   *float64   `json:"failed_ratio"`
	Workers  *int       `json:"workers"`
	Dead     *int       `json:"dead_workers"`
	Busy     *int       `json:"busy"`
	Slots    *int       `json:"slots"`
	Letters  *int64     `json:"letters"`
	State    string     `json:"state"`
	Rules    []ruleView `json:"rules"`
	Errors   []string   `json:"errors"`

	HeadLeast bool          `json:"head_wait_at_least"`
	RunsMin   *uint64       `json:"runs_last_minute"`
	ErrorsMin *uint64       `json:"errors_last_minute"`
	Types     []typeView    `json:"types"`
	Full      int           `json:"full_workers"`
	FullFor   *float64      `json:"full_for"`
	Scopes    []settingView `json:"scopes"`
	Versions  []settingView `json:"versions"`

	Paused   map[string]int    `json:"paused_workers"`
	Limited  map[string]int    `json:"limited_workers"`
	Limiters map[string]uint64 `json:"postponed_by_limiter"`
}

type typeView struct {
	Type      string `json:"type"`
	RunsMin   uint64 `json:"runs_last_minute"`
	ErrorsMin uint64 `json:"errors_last_minute"`
}

type settingView struct {
	Value   string   `json:"value"`
	Workers []string `json:"workers"`
}

type ruleView struct {
	ID     string  `json:"id"`
	Do     string  `json:"do"`
	Queue  string  `json:"queue"`
	Scope  string  `json:"scope"`
	Type   string  `json:"type"`
	Slots  *int    `json:"slots"`
	Made   *string `json:"made"`
	Until  *string `json:"until"`
	By     string  `json:"by"`
	Reason string  `json:"reason"`
}

type followedView struct {
	Rules   []ruleView `json:"rules"`
	Version uint64     `json:"version"`
	Live    int        `json:"live"`
	Behind  []string   `json:"behind"`
	Took    float64    `json:"took"`
	Audit   string     `json:"audit"`
}

type workerView struct {
	Worker   string   `json:"worker"`
	Seat     string   `json:"seat"`
	Queue    string   `json:"queue"`
	Host     string   `json:"host"`
	PID      int      `json:"pid"`
	Version  string   `json:"version"`
	State    string   `json:"state"`
	Busy     *int     `json:"busy"`
	Slots    *int     `json:"slots"`
	Held     *int     `json:"held"`
	PerMin   *float64 `json:"per_minute"`
	P95      *float64 `json:"p95"`
	Skew     *float64 `json:"skew"`
	Seen     *string  `json:"seen"`
	Started  *string  `json:"started"`
	Rules    *uint64  `json:"rules_version"`
	PausedBy []string `json:"paused_by"`
	Outage   string   `json:"outage"`

	Scope string `json:"scope"`
	// Scopes are those of types that have another.
	Scopes      map[string]string `json:"scopes"`
	Retention   *float64          `json:"retention"`
	Interrupted string            `json:"interrupted"`
	RunsMin     *uint64           `json:"runs_last_minute"`
	ErrorsMin   *uint64           `json:"errors_last_minute"`
	Types       []typeView        `json:"types"`
	FullFor     *float64          `json:"full_for"`

	ErrorClasses map[string]uint64  `json:"error_classes_last_minute"`
	MaxAttempts  *int               `json:"max_attempts"`
	Timeout      *float64           `json:"timeout"`
	Timeouts     map[string]float64 `json:"timeouts"`
	DrainTimeout *float64           `json:"drain_timeout"`

	Paused    []string          `json:"paused_for"`
	LimitedBy string            `json:"limited_by"`
	Limiters  map[string]uint64 `json:"postponed_by_limiter"`
}

type checkupView struct {
	Check string `json:"check"`
	State string `json:"state"`
	Text  string `json:"text"`
	Mend  string `json:"mend"`
	Error string `json:"error"`
}

type scheduleView struct {
	Entry    string  `json:"entry"`
	Schedule string  `json:"schedule"`
	Born     *string `json:"born"`
	Seen     *string `json:"seen"`
	Silent   bool    `json:"silent"`
	Last     *string `json:"last"`
	Scope    string  `json:"scope"`
	Key      string  `json:"key"`
	Status   string  `json:"status"`
	Next     *string `json:"next"`
	Error    string  `json:"error"`
}

type jobView struct {
	Key     string   `json:"key"`
	ID      string   `json:"id"`
	Type    string   `json:"type"`
	Scope   string   `json:"scope"`
	Queue   string   `json:"queue"`
	Worker  string   `json:"worker"`
	State   string   `json:"state"`
	Running *float64 `json:"running"`
	Began   *string  `json:"began"`
	Attempt int      `json:"attempt"`
	Fence   uint64   `json:"fence"`
	Overdue bool     `json:"overdue"`
	DeadFor *float64 `json:"dead_for"`
}

type keyView struct {
	Scope     string            `json:"scope"`
	Key       string            `json:"key"`
	Status    string            `json:"status"`
	Attempt   int               `json:"attempt"`
	Fence     uint64            `json:"fence"`
	Owner     string            `json:"owner"`
	Class     string            `json:"error_class"`
	FirstErr  string            `json:"first_error"`
	LastErr   string            `json:"last_error"`
	Result    *int              `json:"result_bytes"`
	State     *int              `json:"state_bytes"`
	Sent      *string           `json:"sent"`
	Created   *string           `json:"created"`
	Claimed   *string           `json:"claimed"`
	Updated   *string           `json:"updated"`
	Finished  *string           `json:"finished"`
	Lease     *string           `json:"lease_until"`
	Expires   *string           `json:"expires"`
	Steps     []stepView        `json:"steps,omitempty"`
	Saved     []savedView       `json:"saved,omitempty"`
	Gaps      []string          `json:"gaps,omitempty"`
	EffectKey string            `json:"effect_key,omitempty"`
	Links     map[string]string `json:"links,omitempty"`
}

type stepView struct {
	At      *string `json:"at"`
	What    string  `json:"what"`
	Text    string  `json:"text"`
	Class   string  `json:"error_class"`
	Attempt int     `json:"attempt"`
	Fence   uint64  `json:"fence"`
	Owner   string  `json:"owner"`
	Source  string  `json:"source"`
	Audit   string  `json:"audit"`
}

type savedView struct {
	Name  string  `json:"name"`
	At    *string `json:"at"`
	Bytes *int    `json:"bytes"`
	Until *string `json:"until"`
}

type actView struct {
	ID     string            `json:"id"`
	Act    string            `json:"act"`
	By     string            `json:"by"`
	Reason string            `json:"reason"`
	Queue  string            `json:"queue"`
	Object string            `json:"object"`
	Began  *string           `json:"began"`
	Ended  *string           `json:"ended"`
	Detail map[string]string `json:"detail"`
	Result map[string]string `json:"result"`
	Error  string            `json:"error"`
}

type messageView struct {
	ID         string            `json:"id"`
	Key        string            `json:"key"`
	Type       string            `json:"type"`
	Job        string            `json:"job"`
	Group      string            `json:"group"`
	Attempt    int               `json:"receives"`
	Published  *string           `json:"published"`
	Created    *string           `json:"created"`
	Attributes map[string]string `json:"attributes"`
	Body       *string           `json:"body"`
	Base64     []byte            `json:"body_base64,omitempty"`
	MetaError  string            `json:"metadata_error"`
}

type sentView struct {
	Key   string `json:"key"`
	ID    string `json:"id"`
	Queue string `json:"queue"`
	Audit string `json:"audit"`
}

type doneView struct {
	Scope  string `json:"scope"`
	Key    string `json:"key"`
	Status string `json:"status"`
	Letter string `json:"letter"`
	Left   string `json:"not_touched"`
	Audit  string `json:"audit"`
}

type emptiedView struct {
	Queue   string `json:"queue"`
	DryRun  bool   `json:"dry_run"`
	Visible *int64 `json:"visible"`
	Removed int    `json:"removed"`
	Audit   string `json:"audit"`
}

func seconds(d time.Duration) *float64 { return new(d.Round(time.Microsecond).Seconds()) }

func viewRules(rs []control.Rule) []ruleView {
	l := []ruleView{}
	for _, r := range rs {
		v := ruleView{
			ID: r.ID, Do: string(r.Do), Queue: r.Queue, Scope: r.Scope, Type: r.Type, Made: out.Stamp(r.Made), Until: out.Stamp(r.Until), By: r.By, Reason: r.Reason,
		}
		if r.Do == control.Limit {
			v.Slots = &r.Slots
		}
		l = append(l, v)
	}
	return l
}

func viewRecord(r *dedupe.Record) keyView {
	v := keyView{
		Scope: r.Key.Scope, Key: r.Key.Key, Status: r.Status.String(), Attempt: r.Attempt, Fence: r.Fence, Owner: r.Owner,
		Class: r.ErrClass, FirstErr: r.FirstErr, LastErr: r.LastErr, Sent: out.Stamp(r.Sent), Created: out.Stamp(r.Created), Claimed: out.Stamp(r.ClaimedAt),
		Updated: out.Stamp(r.Updated), Finished: out.Stamp(r.Finished), Lease: out.Stamp(r.LeaseUntil), Expires: out.Stamp(r.Expires),
	}
	if r.Status == dedupe.Done {
		v.Result = new(len(r.Result))
	}
	if r.StateNo > 0 {
		v.State = new(len(r.State))
	}
	return v
}

func viewSaved(s ops.SavedStep) savedView {
	v := savedView{Name: s.Name, At: out.Stamp(s.At), Until: out.Stamp(s.Until)}
	if s.Until.IsZero() {
		v.Bytes = &s.Bytes
	}
	return v
}

func viewAct(e *ops.AuditEntry) actView {
	return actView{
		ID: e.ID, Act: e.Act, By: e.By, Reason: e.Reason, Queue: e.Queue, Object: e.Object, Began: out.Stamp(e.Began), Ended: out.Stamp(e.Ended),
		Detail: e.Detail, Result: e.Result, Error: e.Err,
	}
}

func viewWorker(queue string, s *ops.WorkerState) workerView {
	v := workerView{Worker: s.Owner, Seat: s.Name, Queue: queue, State: s.State, Seen: out.Stamp(s.Seen), PausedBy: []string{}, Types: []typeView{}, ErrorClasses: map[string]uint64{}, Timeouts: map[string]float64{}, Scopes: map[string]string{}, Paused: []string{}, Limiters: map[string]uint64{}}
	if s.Skew != nil {
		v.Skew = seconds(*s.Skew)
	}
	c := s.Status
	if c == nil {
		return v
	}
	v.Host, v.PID, v.Version, v.Started, v.Outage = c.Host, c.PID, c.Version, out.Stamp(c.Started), c.Outage
	v.Rules, v.Scope, v.Interrupted = &c.Rules, c.Scope, c.Interrupted
	if c.Retention > 0 {
		v.Retention = seconds(c.Retention)
	}
	if c.MaxAttempts != 0 {
		v.MaxAttempts = &c.MaxAttempts
	}
	if c.Timeout > 0 {
		v.Timeout = seconds(c.Timeout)
	}
	maps.Copy(v.Scopes, c.Scopes)
	for typ, d := range c.Timeouts {
		v.Timeouts[typ] = d.Seconds()
	}
	if c.DrainTimeout != 0 {
		v.DrainTimeout = seconds(max(0, c.DrainTimeout))
	}
	v.PausedBy = append(v.PausedBy, c.PausedBy...)
	if !s.Alive() {
		return v // its last numbers are nobody's any more
	}
	v.Paused, v.LimitedBy = append(v.Paused, c.Paused...), c.LimitedBy
	maps.Copy(v.Limiters, c.Limiters)
	if c.Minute != nil {
		v.RunsMin, v.ErrorsMin = &c.Minute.Runs, &c.Minute.Errors
	}
	maps.Copy(v.ErrorClasses, c.MinuteErrors)
	for _, typ := range slices.Sorted(maps.Keys(c.MinuteTypes)) {
		n := c.MinuteTypes[typ]
		v.Types = append(v.Types, typeView{Type: typ, RunsMin: n.Runs, ErrorsMin: n.Errors})
	}
	if !c.FullSince.IsZero() {
		v.FullFor = seconds(max(0, c.At.Sub(c.FullSince)))
	}
	v.Busy, v.Slots, v.Held, v.PerMin = &c.Busy, &c.Slots, &c.Held, &c.Rate
	if d, ok := worst(c); ok {
		v.P95 = seconds(d)
	}
	return v
}

// worst is the longest of a card's times by type.
func worst(c *control.WorkerStatus) (d time.Duration, ok bool) {
	for _, q := range c.Durations {
		d, ok = max(d, q.P95), true
	}
	return d, ok
}

// ruled is what a rule speaks of.
func ruled(r *control.Rule) string {
	var parts []string
	if r.Type != "" {
		parts = append(parts, "type "+out.Text(r.Type))
	}
	if r.Scope != "" {
		parts = append(parts, "scope "+out.Text(r.Scope))
	}
	switch {
	case r.Queue == "":
		parts = append(parts, "ALL queues")
	case len(parts) == 0:
		parts = append(parts, "the queue")
	}
	return strings.Join(parts, ", ")
}

type webView struct {
	URL string `json:"url"`
}

type evidenceView struct {
	Queue    string         `json:"queue"`
	At       *string        `json:"at"`
	By       string         `json:"by"`
	Version  string         `json:"version"`
	Store    string         `json:"store"`
	Workers  []settingView  `json:"workers"`
	Expect   string         `json:"expect_digest"`
	Ledger   string         `json:"effects_digest"`
	Expected int            `json:"expected"`
	Repeated int            `json:"repeated"`
	Older    int            `json:"older"`
	Young    int            `json:"young"`
	OK       int            `json:"ok"`
	Effects  int            `json:"effects"`
	Others   int            `json:"other_effects"`
	Reads    int            `json:"reads"`
	Counts   map[string]int `json:"counts"`
	Findings []findingView  `json:"findings"`
	More     int            `json:"more"`
	ToSend   int            `json:"to_send"`
	Sent     int            `json:"sent"`
	Left     int            `json:"left"`
	Failed   int            `json:"failed"`
	Audit    string         `json:"audit"`
}

type findingView struct {
	Kind    string       `json:"finding"`
	Scope   string       `json:"scope"`
	Key     string       `json:"key"`
	Ref     string       `json:"ref"`
	Due     *string      `json:"due"`
	Status  string       `json:"status"`
	Fence   uint64       `json:"fence"`
	Effects []effectView `json:"effects"`
	Sends   bool         `json:"sends"`
	Why     string       `json:"why"`
}

type effectView struct {
	ID    string  `json:"id"`
	At    *string `json:"at"`
	Fence uint64  `json:"fence"`
}
