package fakeserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// maxControl is more than anybody needs to name faults.
const maxControl = 1 << 20

// Span is a duration in JSON, a text such as "200ms".
type Span time.Duration

// UnmarshalText reads the text.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = Span(d)
	return err
}

// Controlled is a server, as far as the control asks it.
type Controlled interface {
	Seed() uint64
	Counts() map[string]int
	ResetLog()
}

// ControlPath is where the server of this name tells about itself and takes faults, for tests in
// other processes and languages.
func ControlPath(name string) string { return "/_" + name + "/" }

// Control serves what is under ControlPath. A fault in JSON is a D; set replaces the server's
// faults, or says what is wrong with them.
func Control[D any](name string, s Controlled, set func([]D) error) http.Handler {
	path := ControlPath(name)
	m := http.NewServeMux()
	m.HandleFunc("GET "+path+"health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, struct {
			Status string `json:"status"`
			Seed   uint64 `json:"seed,string"` // that of the options, or the one that was drawn
		}{"ok", s.Seed()})
	})
	m.HandleFunc("GET "+path+"requests", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, s.Counts())
	})
	m.HandleFunc("DELETE "+path+"requests", func(w http.ResponseWriter, _ *http.Request) {
		s.ResetLog()
		writeJSON(w, struct{}{})
	})
	m.HandleFunc("PUT "+path+"faults", func(w http.ResponseWriter, r *http.Request) {
		var docs []D
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControl))
		d.DisallowUnknownFields()
		if err := d.Decode(&docs); err != nil {
			http.Error(w, fmt.Sprintf("%s: the faults must be a JSON array: %v", name, err), http.StatusBadRequest)
			return
		}
		if err := set(docs); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		writeJSON(w, map[string]int{"faults": len(docs)})
	})
	m.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, name+": known are GET health, GET requests, DELETE requests and PUT faults, under "+path, http.StatusNotFound)
	})
	return m
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the caller has gone away
}
