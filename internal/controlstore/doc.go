// Package controlstore reads and writes the records of package control: rules, workers' seats and
// their cards, the list of schedules, and the audit. Workers, schedulers and package ops use it.
//
//   - [Change] edits the rules, [Read] reads them.
//   - A [Seat] is a worker's place. Its lease says that the worker lives, and its card what it
//     does. [Seats] reads the seats of a queue.
//   - [ShowScopes] keeps where a queue's workers have had their keys.
//   - [ChangeSchedules] edits the list of schedules, [AllSchedules] reads it.
//   - [Begin] and [Act.End] write the audit: who did what, and why. [Acts] reads it.
package controlstore

// The scopes of these records. A scope that begins with a ':' is nobody else's: package control has
// ":once", and ":probe" is kept for messages by which an operator asks whether a worker answers.
const (
	// ScopeControl has the rules, under the key "rules", and the parts of the list of schedules,
	// under "schedules/" and a number from 0. Under "scopes/" and a queue's name it has where its
	// workers have had their keys.
	ScopeControl = ":control"
	// ScopeWorker has the seats. Their keys are the queue's name, '/' and a number from 0.
	ScopeWorker = ":worker"
	// ScopeAudit has the acts. Their keys are the day in UTC, '/' and a number from 0.
	ScopeAudit = ":audit"
)
