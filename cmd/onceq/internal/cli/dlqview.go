package cli

import (
	"unicode/utf8"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns the values that JSON has of dead letters. As in view.go, fields are only added.

type letterView struct {
	Key        string            `json:"key"`
	Job        string            `json:"job"`
	Type       string            `json:"type"`
	Class      string            `json:"error_class"`
	Group      string            `json:"group"`
	Failed     *string           `json:"failed"`
	Attempts   int               `json:"attempts"`
	FirstErr   string            `json:"first_error"`
	LastErr    string            `json:"last_error"`
	Saved      string            `json:"saved"`
	Source     string            `json:"source"`
	Scope      string            `json:"scope"`
	Record     string            `json:"record_key"`
	Fence      uint64            `json:"fence"`
	Signed     bool              `json:"signed"`
	Copies     int               `json:"copies"`
	Message    string            `json:"message"`
	Receives   int               `json:"receives"`
	Attributes map[string]string `json:"attributes"`
	Body       *string           `json:"body"`
	Base64     []byte            `json:"body_base64,omitempty"`
}

type groupView struct {
	Group   string         `json:"group"`
	Class   string         `json:"error_class"`
	Types   map[string]int `json:"types"`
	Sources map[string]int `json:"sources"`
	Letters int            `json:"letters"`
	Copies  int            `json:"copies"`
	First   *string        `json:"first"`
	Last    *string        `json:"last"`
	Error   string         `json:"error"`
	Sample  string         `json:"sample"`
	Key     string         `json:"sample_key"`
}

type planView struct {
	Plan      string         `json:"plan"`
	Act       string         `json:"act"`
	Queue     string         `json:"queue"`
	Dead      string         `json:"dead"`
	Frozen    *string        `json:"frozen"`
	Letters   int            `json:"letters"`
	Reopen    *int           `json:"reopen"`
	Ordinary  *int           `json:"ordinary"`
	Unknown   *int           `json:"unknown"`
	Done      *int           `json:"done_already"`
	Moved     *int           `json:"failed_anew"`
	Skipped   map[string]int `json:"skipped"`
	Unchosen  int            `json:"unchosen"`
	Elsewhere int            `json:"elsewhere"`
	Unsigned  int            `json:"unsigned"`
	Unseen    *int           `json:"not_looked_at"` // about how many; null: all were looked at
	File      string         `json:"file"`
}

type replayedView struct {
	Plan      string         `json:"plan"`
	Queue     string         `json:"queue"`
	Sent      int            `json:"sent"`
	Purged    int            `json:"purged"`
	Removed   int            `json:"removed"`
	Copies    int            `json:"copies"`
	Skipped   map[string]int `json:"skipped"`
	Failed    map[string]int `json:"failed"`
	Missing   int            `json:"missing"`
	Unacked   int            `json:"unacked"`
	Unsigned  int            `json:"unsigned"`
	Back      []string       `json:"came_back"`
	Batches   []batchView    `json:"batches"`
	File      string         `json:"file"`
	Audit     string         `json:"audit"`
	Completed bool           `json:"completed"`
}

type batchView struct {
	Sent    int      `json:"sent"`
	Done    int      `json:"done"`
	Running int      `json:"running"`
	Waiting int      `json:"not_begun"`
	Unknown int      `json:"not_known"`
	Watched *float64 `json:"watched"`
	Back    int      `json:"came_back"`
}

type importedView struct {
	Queue     string   `json:"queue"`
	File      string   `json:"file"`
	Sent      int      `json:"sent"`
	Refused   []string `json:"refused"`
	Audit     string   `json:"audit"`
	Completed bool     `json:"completed"`
}

type redriveView struct {
	Handle  string  `json:"handle"`
	Status  string  `json:"status"`
	Moved   int64   `json:"moved"`
	Total   int64   `json:"total"`
	Started *string `json:"started"`
	Failure string  `json:"failure"`
	Audit   string  `json:"audit"`
}

func viewLetter(e dlq.Entry) letterView {
	r, m := e.Ref(), e.Message
	v := letterView{
		Key: r.Key, Type: r.Type, Class: r.Class, Group: e.Fingerprint(), Failed: out.Stamp(e.At()), Source: r.Source, Scope: r.Record.Scope,
		Record: r.Record.Key, Fence: r.Fence, Signed: !e.Unsigned, Copies: e.Copies, Message: m.ID, Receives: m.Attempt, Attributes: m.Attributes,
	}
	if v.Attributes == nil {
		v.Attributes = map[string]string{}
	}
	if m.Meta != nil {
		v.Job = m.Meta.ID
		if d := m.Meta.Dead; d != nil {
			v.Attempts, v.FirstErr, v.LastErr, v.Saved = d.Attempts, d.FirstErr, d.LastErr, d.Saved
		}
	}
	if utf8.Valid(m.Body) {
		v.Body = new(string(m.Body))
	} else {
		v.Base64 = m.Body
	}
	return v
}

func viewGroup(g *dlq.Group) groupView {
	return groupView{
		Group: g.Group, Class: g.Class, Types: g.Types, Sources: g.Sources, Letters: g.Count, Copies: g.Copies,
		First: out.Stamp(g.Oldest), Last: out.Stamp(g.Newest), Error: g.Error, Sample: g.Sample, Key: g.Key,
	}
}

func viewPlan(queue string, p *dlq.Plan, of *ops.ReplayPlan, file string) planView {
	v := planView{
		Plan: p.ID, Act: string(p.Act), Queue: queue, Dead: p.Queue, Frozen: out.Stamp(p.Made), Letters: len(p.Letters), Skipped: p.Skipped,
		Unchosen: p.Unchosen, Elsewhere: p.Elsewhere, Unsigned: p.Unsigned, File: file,
	}
	if v.Skipped == nil {
		v.Skipped = map[string]int{}
	}
	if p.Rest != nil {
		v.Unseen = &p.Rest.About
	}
	if of != nil {
		v.Reopen, v.Ordinary, v.Unknown, v.Done, v.Moved = &of.Reopen, &of.Ordinary, &of.Unknown, &of.Done, &of.Moved
	}
	return v
}

func viewReport(queue string, p *dlq.Plan, r *dlq.Report, audit string) replayedView {
	return replayedView{
		Plan: p.ID, Queue: queue, Sent: r.Replayed, Purged: r.Purged, Removed: r.Removed, Copies: r.Copies, Skipped: reasons(r.Skipped),
		Failed: reasons(r.Failed), Missing: r.Missing, Unacked: r.Unacked, Unsigned: r.Unsigned, Back: []string{}, Batches: []batchView{}, Audit: audit,
	}
}

func reasons(ls []dlq.Left) map[string]int {
	m := map[string]int{}
	for _, l := range ls {
		m[l.Reason]++
	}
	return m
}
