package webonceq

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns the page's values as JSON, for scripts. They are what the screens show, under the
// same permissions; what nobody knows is absent.

func (a *ask) json(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	a.w.Header().Set("Content-Type", "application/json")
	_, _ = a.w.Write(append(text, '\n')) // who asked may be gone
	return nil
}

type queueJSON struct {
	Queue     string     `json:"queue"`
	At        time.Time  `json:"at"`
	Waiting   *int64     `json:"waiting,omitempty"`
	Delayed   *int64     `json:"delayed,omitempty"`
	InFlight  *int64     `json:"in_flight,omitempty"`
	Letters   *int64     `json:"letters,omitempty"`
	PerMinute *float64   `json:"per_minute,omitempty"`
	Runs      *uint64    `json:"runs_last_minute,omitempty"`
	Errors    *uint64    `json:"errors_last_minute,omitempty"`
	Live      int        `json:"live"`
	Dead      int        `json:"dead"`
	Busy      int        `json:"busy"`
	Slots     int        `json:"slots"`
	Rules     []ruleJSON `json:"rules"`
	Warnings  []string   `json:"warnings"`
}

type ruleJSON struct {
	ID     string    `json:"id,omitempty"`
	Do     string    `json:"do"`
	Queue  string    `json:"queue,omitempty"`
	Scope  string    `json:"scope,omitempty"`
	Type   string    `json:"type,omitempty"`
	Slots  int       `json:"slots,omitempty"`
	Until  time.Time `json:"until"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

func (p *Page) queuesJSON(a *ask) error {
	s, err := p.board.Look(a.ctx())
	if err != nil {
		return err
	}
	all := []queueJSON{}
	for i := range s.Queues {
		q := &s.Queues[i]
		if !a.who.sees(q.Queue) {
			continue
		}
		w := &q.Sum
		x := queueJSON{
			Queue: q.Queue, At: q.At, Letters: q.Letters, PerMinute: w.PerMinute, Live: w.Live, Dead: w.Dead, Busy: w.Busy, Slots: w.Slots,
			Rules: []ruleJSON{}, Warnings: append([]string{}, a.warningList(q)...),
		}
		if d := q.Depth; d != nil {
			x.Waiting, x.Delayed, x.InFlight = &d.Visible, &d.Delayed, &d.InFlight
		}
		if m := w.Minute; m != nil {
			x.Runs, x.Errors = &m.Runs, &m.Errors
		}
		for _, r := range q.Rules {
			r = a.ruleSeen(r, q.Queue)
			x.Rules = append(x.Rules, ruleJSON{r.ID, string(r.Do), r.Queue, r.Scope, r.Type, r.Slots, r.Until, r.By, r.Reason})
		}
		all = append(all, x)
	}
	return a.json(all)
}

type groupJSON struct {
	Group  string         `json:"group"`
	Class  string         `json:"class"`
	Error  string         `json:"error,omitempty"`
	Count  int            `json:"count"`
	Copies int            `json:"copies"`
	Types  map[string]int `json:"types"`
	Oldest time.Time      `json:"oldest"`
	Newest time.Time      `json:"newest"`
}

// lettersJSON gives the last pass; it begins none.
func (p *Page) lettersJSON(a *ask) error {
	name, err := a.queue()
	if err != nil {
		return err
	}
	look, err := p.board.Letters(name)
	if err != nil {
		return err
	}
	if look == nil {
		return &sayError{http.StatusNotFound, fmt.Errorf("nobody has looked through the letters of %s yet", name)}
	}
	x := struct {
		Queue  string      `json:"queue"`
		Began  time.Time   `json:"began"`
		Ended  time.Time   `json:"ended,omitzero"`
		Seen   int         `json:"seen"`
		About  int         `json:"about,omitempty"`
		Whole  bool        `json:"whole"`
		Groups []groupJSON `json:"groups"`
	}{name, look.Began, look.Ended, look.Seen, look.About, !look.Ended.IsZero() && look.Err == nil && look.More == 0, []groupJSON{}}
	for i := range look.Groups {
		g := &look.Groups[i]
		one := groupJSON{g.Group.Group, g.Class, "", g.Count, g.Copies, g.Types, g.Oldest, g.Newest}
		if a.can(Bodies) {
			one.Error = g.Group.Error
		}
		x.Groups = append(x.Groups, one)
	}
	return a.json(x)
}

type actJSON struct {
	ID      string    `json:"id"`
	Audit   string    `json:"audit,omitempty"`
	Act     string    `json:"act"`
	Queue   string    `json:"queue"`
	Plan    string    `json:"plan"`
	By      string    `json:"by"`
	Reason  string    `json:"reason"`
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended,omitzero"`
	Letters int       `json:"letters"`
	Sent    int       `json:"sent"`
	Removed int       `json:"removed"`
	Purged  int       `json:"purged"`
	Skipped int       `json:"skipped"`
	Failed  int       `json:"failed"`
	Asks    bool      `json:"asks"`
	Stopped bool      `json:"stopped"`
	Error   string    `json:"error,omitempty"`
}

func (p *Page) actListJSON(a *ask) error {
	all := []actJSON{}
	for _, x := range p.running.Acts() {
		if !a.seesActOf(x.Queue) {
			continue
		}
		one := actJSON{
			x.ID, x.Audit, string(x.Act), x.Queue, x.Plan, x.By, x.Reason, x.Began, x.Ended, x.Letters,
			x.Sent, x.Removed, x.Purged, x.Skipped, x.Failed, x.Asks, errors.Is(x.Err, dlq.ErrStopped), "",
		}
		if x.Err != nil && !one.Stopped {
			one.Error = a.told(x.Err)
		}
		all = append(all, one)
	}
	return a.json(all)
}

func (p *Page) auditJSON(a *ask) error {
	back, err := since(a.r.URL.Query().Get("since"))
	if err != nil {
		return err
	}
	ctx, cancel := a.within()
	defer cancel()
	type named struct {
		ID string `json:"id"`
		ops.AuditEntry
	}
	all, now := []named{}, time.Now()
	for e, err := range a.ops.Audit(ctx, now.Add(-back), now.Add(time.Minute)) {
		if err != nil {
			return err
		}
		if a.seesAct(&e) {
			all = append(all, named{e.ID, a.entrySeen(e)})
		}
	}
	return a.json(all)
}
