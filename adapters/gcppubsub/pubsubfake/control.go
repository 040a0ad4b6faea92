package pubsubfake

import (
	"net/http"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq/internal/fakeserver"
)

// faultDocument is a Fault in JSON: durations are texts such as "200ms", codes are gRPC's names.
type faultDocument struct {
	Method       string          `json:"method,omitempty"`
	Resource     string          `json:"resource,omitempty"`
	Skip         int             `json:"skip,omitempty"`
	Count        int             `json:"count,omitempty"`
	Rate         float64         `json:"rate,omitempty"`
	For          fakeserver.Span `json:"for,omitzero"`
	Delay        fakeserver.Span `json:"delay,omitzero"`
	ReplyDelay   fakeserver.Span `json:"replyDelay,omitzero"`
	Code         codeValue       `json:"code,omitzero"`
	Message      string          `json:"message,omitempty"`
	Silence      bool            `json:"silence,omitempty"`
	Applied      bool            `json:"applied,omitempty"`
	Entries      []int           `json:"entries,omitempty"`
	EntryFailure string          `json:"entryFailure,omitempty"`
	Most         int             `json:"most,omitempty"`
	Duplicate    bool            `json:"duplicate,omitempty"`
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
	return fakeserver.Control("pubsubfake", s, func(docs []faultDocument) error {
		fs := make([]Fault, len(docs))
		for i := range docs {
			fs[i] = docs[i].fault()
		}
		if err := checkFaults(fs); err != nil {
			return err
		}
		s.SetFaults(fs...)
		return nil
	})
}
