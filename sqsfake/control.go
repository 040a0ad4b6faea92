package sqsfake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// controlPath is where the server tells about itself and takes faults, for tests in other
// processes and languages.
const controlPath = "/_sqsfake/"

// faultDocument is a Fault in JSON: durations are texts such as "200ms".
type faultDocument struct {
	Action     string  `json:"action,omitempty"`
	Queue      string  `json:"queue,omitempty"`
	Skip       int     `json:"skip,omitempty"`
	Count      int     `json:"count,omitempty"`
	Rate       float64 `json:"rate,omitempty"`
	For        span    `json:"for,omitzero"`
	Delay      span    `json:"delay,omitzero"`
	ReplyDelay span    `json:"replyDelay,omitzero"`
	Code       string  `json:"code,omitempty"`
	Message    string  `json:"message,omitempty"`
	Status     int     `json:"status,omitempty"`
	Reset      bool    `json:"reset,omitempty"`
	Silence    bool    `json:"silence,omitempty"`
	Applied    bool    `json:"applied,omitempty"`
	Entries    []int   `json:"entries,omitempty"`
	Stale      bool    `json:"stale,omitempty"`
	BadMD5     []int   `json:"badMD5,omitempty"`
	Most       int     `json:"most,omitempty"`
	Duplicate  bool    `json:"duplicate,omitempty"`
}

// health is the answer to who asks whether the server serves. The seed is Options.Seed, or the one
// that was drawn.
type health struct {
	Status string `json:"status"`
	Seed   uint64 `json:"seed,string"`
}

type span time.Duration

func (s *span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = span(d)
	return err
}

func (d *faultDocument) fault() Fault {
	return Fault{
		Action: d.Action, Queue: d.Queue, Skip: d.Skip, Count: d.Count, Rate: d.Rate, For: time.Duration(d.For),
		Delay: time.Duration(d.Delay), ReplyDelay: time.Duration(d.ReplyDelay), Code: d.Code, Message: d.Message,
		Status: d.Status, Reset: d.Reset, Silence: d.Silence, Applied: d.Applied, Entries: d.Entries,
		Stale: d.Stale, BadMD5: d.BadMD5, Most: d.Most, Duplicate: d.Duplicate,
	}
}

// serveControl serves what is not SQS; false means that the request is none of that.
func (s *Server) serveControl(w http.ResponseWriter, r *http.Request, body []byte) bool {
	if len(r.URL.Path) < len(controlPath) || r.URL.Path[:len(controlPath)] != controlPath {
		return false
	}
	switch r.Method + " " + r.URL.Path[len(controlPath):] {
	case "GET health":
		writeJSON(w, health{"ok", s.Seed()})
	case "GET requests":
		writeJSON(w, s.Counts())
	case "DELETE requests":
		s.ResetLog()
		writeJSON(w, struct{}{})
	case "PUT faults":
		var docs []faultDocument
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(&docs); err != nil {
			http.Error(w, fmt.Sprintf("sqsfake: the faults must be a JSON array: %v", err), http.StatusBadRequest)
			return true
		}
		fs := make([]Fault, len(docs))
		for i := range docs {
			fs[i] = docs[i].fault()
		}
		if err := checkFaults(fs); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return true
		}
		s.SetFaults(fs...)
		writeJSON(w, map[string]int{"faults": len(fs)})
	default:
		http.Error(w, "sqsfake: known are GET health, GET requests, DELETE requests and PUT faults", http.StatusNotFound)
	}
	return true
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the caller has gone away
}
