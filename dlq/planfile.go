package dlq

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// This file owns the form in which a plan is kept and sent: JSON, with a checksum over all of it.
// encoding/json calls it. The checksum finds what was edited or cut off; it keeps nobody out who
// can compute one, because whoever can write the plan may run the replay as well.

// The versions of the form. A plan that lists all of its letters is of the first one, so that an
// older program can read it.
const (
	planVersion = 1
	restVersion = 2 // with a rest
)

type planFile struct {
	Version   int            `json:"v"`
	ID        string         `json:"id"`
	Act       Act            `json:"act"`
	Queue     string         `json:"queue"`
	Made      time.Time      `json:"made"`
	Note      string         `json:"note,omitempty"`
	Seen      int            `json:"seen"`
	Unchosen  int            `json:"unchosen,omitempty"`
	Elsewhere int            `json:"elsewhere,omitempty"`
	Unsigned  int            `json:"unsigned,omitempty"`
	Skipped   map[string]int `json:"skipped,omitempty"`
	Letters   []planLetter   `json:"letters"`
	Rest      *planRest      `json:"rest,omitempty"`
	Sum       string         `json:"sum,omitempty"` // of the JSON without it
}

type planRest struct {
	Class   string     `json:"class,omitempty"`
	Group   string     `json:"group,omitempty"`
	Type    string     `json:"type,omitempty"`
	Key     string     `json:"key,omitempty"`
	Source  string     `json:"source,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Until   *time.Time `json:"until,omitempty"`
	Matched bool       `json:"matched,omitempty"`
	Match   string     `json:"match,omitempty"`
	Max     int        `json:"max,omitempty"`
	About   int        `json:"about,omitempty"`
}

func restFile(r *Rest) *planRest {
	f := &r.Filter
	return &planRest{
		Class: f.Class, Group: f.Group, Type: f.Type, Key: f.Key, Source: f.Source, Since: moment(f.Since), Until: moment(f.Until),
		Matched: r.matched, Match: r.Match, Max: f.Max, About: r.About,
	}
}

func (r *planRest) read() *Rest {
	got := &Rest{
		Filter: Filter{Class: r.Class, Group: r.Group, Type: r.Type, Key: r.Key, Source: r.Source, Max: r.Max},
		Match:  r.Match, About: r.About, matched: r.Matched,
	}
	if r.Since != nil {
		got.Filter.Since = *r.Since
	}
	if r.Until != nil {
		got.Filter.Until = *r.Until
	}
	return got
}

// moment is a time, or nothing for the zero one.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

type planLetter struct {
	Message string   `json:"m"`
	Source  string   `json:"s,omitempty"`
	Type    string   `json:"t,omitempty"`
	Key     string   `json:"k,omitempty"`
	Class   string   `json:"c,omitempty"`
	Fence   uint64   `json:"f,omitempty"`
	Scope   string   `json:"sc,omitempty"`
	Record  *string  `json:"rk,omitempty"` // the record's key, where it is not Key
	Copies  []string `json:"copies,omitempty"`
	Judged  Decision `json:"j,omitempty"`
	Why     string   `json:"why,omitempty"`
}

func (f *planFile) sum() (string, error) {
	c := *f
	c.Sum = ""
	b, err := json.Marshal(&c)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16]), nil
}

// MarshalJSON writes the plan with its checksum.
func (p Plan) MarshalJSON() ([]byte, error) {
	f := planFile{
		Version: planVersion, ID: p.ID, Act: p.Act, Queue: p.Queue, Made: p.Made, Note: p.Note, Seen: p.Seen,
		Unchosen: p.Unchosen, Elsewhere: p.Elsewhere, Unsigned: p.Unsigned, Skipped: p.Skipped,
		Letters: make([]planLetter, len(p.Letters)),
	}
	for i := range p.Letters {
		l := &p.Letters[i]
		f.Letters[i] = planLetter{
			Message: l.MessageID, Source: l.Source, Type: l.Type, Key: l.Key, Class: l.Class, Fence: l.Fence,
			Scope: l.Record.Scope, Copies: l.Copies, Judged: l.Decision, Why: l.Why,
		}
		if l.Record != (RecordKey{}) && (l.Record.Key != l.Key || l.Record.Scope == "") {
			f.Letters[i].Record = &l.Record.Key
		}
	}
	if p.Rest != nil {
		f.Version, f.Rest = restVersion, restFile(p.Rest)
	}
	// What JSON cannot hold, such as bytes that are not UTF-8, must not look edited afterwards.
	b, err := json.Marshal(&f)
	if err != nil {
		return nil, err
	}
	f = planFile{}
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	if f.Sum, err = f.sum(); err != nil {
		return nil, err
	}
	return json.Marshal(&f)
}

// UnmarshalJSON reads a plan. An error wraps [ErrPlan] where the text is no plan, is one of a newer
// version, or was edited.
func (p *Plan) UnmarshalJSON(b []byte) error {
	var f planFile
	if err := json.Unmarshal(b, &f); err != nil || f.Version == 0 {
		return fmt.Errorf("%w: it is no plan, or was edited: make it again", ErrPlan)
	}
	if f.Version > restVersion {
		return fmt.Errorf("%w: it is of version %d, and this program reads version %d", ErrPlan, f.Version, restVersion)
	}
	// A member that is not ours was written by somebody else.
	in := json.NewDecoder(bytes.NewReader(b))
	in.DisallowUnknownFields()
	f = planFile{}
	known := in.Decode(&f)
	got := Plan{
		ID: f.ID, Act: f.Act, Queue: f.Queue, Made: f.Made, Note: f.Note, Seen: f.Seen, Unchosen: f.Unchosen,
		Elsewhere: f.Elsewhere, Unsigned: f.Unsigned, Skipped: f.Skipped, Letters: make([]Planned, len(f.Letters)),
	}
	for i := range f.Letters {
		l := &f.Letters[i]
		got.Letters[i] = Planned{
			Ref:    Ref{MessageID: l.Message, Source: l.Source, Type: l.Type, Key: l.Key, Class: l.Class, Fence: l.Fence},
			Copies: l.Copies, Decision: l.Judged, Why: l.Why,
		}
		switch r := &got.Letters[i].Record; {
		case l.Record != nil:
			*r = RecordKey{l.Scope, *l.Record}
		case l.Scope != "":
			*r = RecordKey{l.Scope, l.Key}
		}
	}
	if f.Rest != nil {
		got.Rest = f.Rest.read()
	}
	sum, err := f.sum()
	if err != nil {
		return err
	}
	if known != nil || f.Sum != sum || got.ID != got.name() {
		return got.refuse("and was edited")
	}
	*p = got
	return nil
}
