package control

import (
	"time"
)

// AuditEntry is an act in the audit.
type AuditEntry struct {
	// ID is the day in UTC and a number, such as "2026-11-22/41". Begin gives it.
	ID string `json:"-"`
	// Act is what was done, such as "pause" or "replay". Required; at most 64 bytes.
	Act string `json:"act"`
	// By is who acted, and Reason why. Required; at most 256 bytes each, without control
	// characters.
	By     string `json:"by"`
	Reason string `json:"reason"`
	// Queue is the queue that is meant, and Object what in it: a key, a rule, a group. At most 255
	// and 1,280 bytes.
	Queue  string `json:"queue,omitempty"`
	Object string `json:"object,omitempty"`
	// Detail is what else is to be known of the intent, such as the numbers of a plan.
	Detail map[string]string `json:"detail,omitempty"`
	// Began is when the act began, by the clock of who acted.
	Began time.Time `json:"began"`
	// Ended is when it ended; zero where nobody has said so. Then it is under way, or who acted has
	// died.
	Ended time.Time `json:"ended,omitzero"`
	// Result is what came of it, and Err the error's text where it failed.
	Result map[string]string `json:"result,omitempty"`
	Err    string            `json:"err,omitempty"`
}
