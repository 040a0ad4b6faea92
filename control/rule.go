package control

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// This file owns a rule: what it says, and its form in JSON. Operators make rules through package
// ops. A rule is a value, and nothing is locked.

// ErrInvalid is wrapped by each error that says what is wrong with a rule, with its field's name
// and the limit. Nothing was written.
var ErrInvalid = errors.New("control: not valid")

// ErrUnknown is wrapped by the error of a change of the rules that may have been made or not: the
// store gave no answer to the write. Look first. To make the same change again is safe where it
// names its rules by their ids.
var ErrUnknown = errors.New("control: it is not known whether the change was made")

// ErrSeatLost is wrapped by the error of the event that tells that a worker lost its place among
// the workers of its queue: another one has it, or its record was written by something else. The
// worker goes on, and takes another place.
var ErrSeatLost = errors.New("control: the seat is lost")

// Action is what a rule does.
type Action string

// The actions. A worker leaves rules with an action that it does not know alone.
const (
	// Pause lets nothing start.
	Pause Action = "pause"
	// Limit bounds how many handlers each worker of a queue runs at once.
	Limit Action = "limit"
)

// A Rule is an operator's word to workers. An empty Queue, Scope and Type mean any; all that are
// given must fit. A rule without Scope and Type speaks of whole queues: their workers stop
// receiving. Such a rule without a Queue holds for all that have this store.
type Rule struct {
	// ID names the rule. ops.Ops gives a short one where it is empty; at most 64 bytes.
	ID string `json:"id"`
	// Do is Pause or Limit. Required.
	Do Action `json:"do"`
	// Queue is ProcessorConfig.Queue of the workers that are meant; at most 255 bytes.
	Queue string `json:"queue,omitempty"`
	// Scope is as records have it: "orders:charge", or a ProcessorConfig.Scope with all its types.
	// At most 255 bytes, without a ':' at its start. Not with Limit.
	Scope string `json:"scope,omitempty"`
	// Type is the type of job; at most 255 bytes. Not with Limit.
	Type string `json:"type,omitempty"`
	// Slots is for Limit: handlers at once in each worker; 0 is Pause; at most 100,000.
	Slots int `json:"slots,omitempty"`
	// Made is when the rule was made. ops.Ops fills it in.
	Made time.Time `json:"made"`
	// Until is when the rule ends by itself, by the workers' clocks. Required; at most 30 days
	// ahead.
	Until time.Time `json:"until"`
	// By is who made the rule, and Reason why. Both are required; at most 256 bytes of UTF-8 each,
	// without control characters.
	By     string `json:"by"`
	Reason string `json:"reason"`

	more string // fields of later versions, as JSON, so that an edit keeps them
}

// OfQueue reports whether the rule speaks of whole queues, and not of single jobs.
func (r *Rule) OfQueue() bool { return r.Scope == "" && r.Type == "" }

// Fits reports whether the rule speaks of a job of this queue, scope and type, and is not over. For
// a queue as a whole, scope and typ are empty. A call of Do has no queue.
func (r *Rule) Fits(queue, scope, typ string, now time.Time) bool {
	return now.Before(r.Until) && (r.Queue == "" || r.Queue == queue) && (r.Type == "" || r.Type == typ) && r.covers(scope)
}

// covers reports whether scope is the rule's, or that of a type below it.
func (r *Rule) covers(scope string) bool {
	rest, ok := strings.CutPrefix(scope, r.Scope)
	return r.Scope == "" || ok && (rest == "" || rest[0] == ':')
}

// Verdict is what the rules say of a queue, or of a job.
type Verdict struct {
	// Do is Pause or Limit.
	Do Action
	// Slots bounds the handlers of each worker; Limit alone.
	Slots int
	// Until is when it ends. Of several pauses it is the last end.
	Until time.Time
	// Rule is the id of the rule that decides: of several pauses the one that ends last, of several
	// limits the lowest. A pause goes before a limit.
	Rule string
	// By and Reason are that rule's.
	By, Reason string
}

// MarshalJSON writes the rule, with the fields of later versions that it came with.
func (r Rule) MarshalJSON() ([]byte, error) {
	type plain Rule
	b, err := json.Marshal(plain(r))
	if err != nil || r.more == "" {
		return b, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(r.more), &all); err != nil {
		return nil, err
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(b, &own); err != nil {
		return nil, err
	}
	maps.Copy(all, own)
	return json.Marshal(all)
}

// UnmarshalJSON reads a rule. Fields that this version does not know are kept for MarshalJSON.
func (r *Rule) UnmarshalJSON(b []byte) error {
	type plain Rule
	var p plain
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	known := []string{"id", "do", "queue", "scope", "type", "slots", "made", "until", "by", "reason"}
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool {
		// encoding/json takes "SCOPE" for "scope". Kept beside it, the next reader might take that.
		return slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
	})
	if len(all) > 0 {
		more, err := json.Marshal(all)
		if err != nil {
			return err
		}
		p.more = string(more)
	}
	*r = Rule(p)
	return nil
}
