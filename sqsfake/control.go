package sqsfake

import (
	"time"

	"github.com/onceq/onceq/internal/fakeserver"
)

// faultDocument is a Fault in JSON: durations are texts such as "200ms".
type faultDocument struct {
	Action     string          `json:"action,omitempty"`
	Queue      string          `json:"queue,omitempty"`
	Skip       int             `json:"skip,omitempty"`
	Count      int             `json:"count,omitempty"`
	Rate       float64         `json:"rate,omitempty"`
	For        fakeserver.Span `json:"for,omitzero"`
	Delay      fakeserver.Span `json:"delay,omitzero"`
	ReplyDelay fakeserver.Span `json:"replyDelay,omitzero"`
	Code       string          `json:"code,omitempty"`
	Message    string          `json:"message,omitempty"`
	Status     int             `json:"status,omitempty"`
	Reset      bool            `json:"reset,omitempty"`
	Silence    bool            `json:"silence,omitempty"`
	Applied    bool            `json:"applied,omitempty"`
	Entries    []int           `json:"entries,omitempty"`
	Stale      bool            `json:"stale,omitempty"`
	BadMD5     []int           `json:"badMD5,omitempty"`
	Most       int             `json:"most,omitempty"`
	Duplicate  bool            `json:"duplicate,omitempty"`
}

func (d *faultDocument) fault() Fault {
	return Fault{
		Action: d.Action, Queue: d.Queue, Skip: d.Skip, Count: d.Count, Rate: d.Rate, For: time.Duration(d.For),
		Delay: time.Duration(d.Delay), ReplyDelay: time.Duration(d.ReplyDelay), Code: d.Code, Message: d.Message,
		Status: d.Status, Reset: d.Reset, Silence: d.Silence, Applied: d.Applied, Entries: d.Entries,
		Stale: d.Stale, BadMD5: d.BadMD5, Most: d.Most, Duplicate: d.Duplicate,
	}
}

// putFaults replaces the faults by what came over HTTP.
func (s *Server) putFaults(docs []faultDocument) error {
	fs := make([]Fault, len(docs))
	for i := range docs {
		fs[i] = docs[i].fault()
	}
	if err := checkFaults(fs); err != nil {
		return err
	}
	s.SetFaults(fs...)
	return nil
}
