package pubsubfake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
)

// controlPath is where the server tells about itself and takes faults, for tests in other
// processes and languages.
const controlPath = "/_pubsubfake/"

// maxControl is more than anybody needs to name faults.
const maxControl = 1 << 20

// faultDocument is a Fault in JSON: durations are texts such as "200ms", codes are gRPC's names.
type faultDocument struct {
	Method       string    `json:"method,omitempty"`
	Resource     string    `json:"resource,omitempty"`
	Skip         int       `json:"skip,omitempty"`
	Count        int       `json:"count,omitempty"`
	Rate         float64   `json:"rate,omitempty"`
	For          span      `json:"for,omitzero"`
	Delay        span      `json:"delay,omitzero"`
	ReplyDelay   span      `json:"replyDelay,omitzero"`
	Code         codeValue `json:"code,omitzero"`
	Message      string    `json:"message,omitempty"`
	Silence      bool      `json:"silence,omitempty"`
	Applied      bool      `json:"applied,omitempty"`
	Entries      []int     `json:"entries,omitempty"`
	EntryFailure string    `json:"entryFailure,omitempty"`
	Most         int       `json:"most,omitempty"`
	Duplicate    bool      `json:"duplicate,omitempty"`
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

// codeValue is a code by gRPC's name, such as UNAVAILABLE.
type codeValue codes.Code

func (c *codeValue) UnmarshalText(text []byte) error {
	return (*codes.Code)(c).UnmarshalJSON([]byte(`"` + string(text) + `"`))
}

func (d *faultDocument) fault() Fault {
	return Fault{
		Method: d.Method, Resource: d.Resource, Skip: d.Skip, Count: d.Count, Rate: d.Rate, For: time.Duration(d.For),
		Delay: time.Duration(d.Delay), ReplyDelay: time.Duration(d.ReplyDelay), Code: codes.Code(d.Code), Message: d.Message,
		Silence: d.Silence, Applied: d.Applied, Entries: d.Entries, EntryFailure: d.EntryFailure, Most: d.Most, Duplicate: d.Duplicate,
	}
}

// Control is an HTTP handler with which other processes set faults and ask what came; the
// package's comment has its paths. It has a port of its own, because gRPC's is taken.
func (s *Server) Control() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET "+controlPath+"health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, health{"ok", s.seed})
	})
	m.HandleFunc("GET "+controlPath+"requests", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, s.Counts())
	})
	m.HandleFunc("DELETE "+controlPath+"requests", func(w http.ResponseWriter, _ *http.Request) {
		s.ResetLog()
		writeJSON(w, struct{}{})
	})
	m.HandleFunc("PUT "+controlPath+"faults", s.putFaults)
	m.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "pubsubfake: known are GET health, GET requests, DELETE requests and PUT faults, under "+controlPath, http.StatusNotFound)
	})
	return m
}

func (s *Server) putFaults(w http.ResponseWriter, r *http.Request) {
	var docs []faultDocument
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControl))
	d.DisallowUnknownFields()
	if err := d.Decode(&docs); err != nil {
		http.Error(w, fmt.Sprintf("pubsubfake: the faults must be a JSON array: %v", err), http.StatusBadRequest)
		return
	}
	fs := make([]Fault, len(docs))
	for i := range docs {
		fs[i] = docs[i].fault()
	}
	if err := checkFaults(fs); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.SetFaults(fs...)
	writeJSON(w, map[string]int{"faults": len(fs)})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the caller has gone away
}
