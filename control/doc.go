// Package control is how operators and workers talk: through the store of idempotency keys that is
// there already, with the calls that it has already. It needs no server and no table of its own.
//
//   - [Rules] are an operator's word: pause a queue, a scope or a type of job, or limit a queue,
//     until a time, with a name and a reason. [Change] edits them, [Read] reads them.
//   - A [Seat] is a worker's place. Its lease says that the worker lives, and its [Card] what it
//     does. [Seats] reads the seats of a queue.
//   - [Begin] and [Act.End] write the audit: who did what, and why. [Acts] reads it.
//   - [Once] lets one of many processes do something.
//
// A pause of all workers of a queue, for an hour:
//
//	rules, err := control.Change(ctx, store, func(r *control.Rules) error {
//		r.Rules = append(r.Rules, control.Rule{
//			Do: control.Pause, Queue: "orders", Until: time.Now().Add(time.Hour),
//			By: "ana", Reason: "the bank is down",
//		})
//		return nil
//	})
//
// All of it are records in scopes that begin with a ':', which no user's scope does. Safety rests
// on the tokens of the store, as for jobs: an operator who dies in the middle of a change leaves
// the rules as they were, and a dead worker is a dead lease.
//
// Whoever may write the store's table can pause its workers.
package control

import "github.com/onceq/onceq/dedupe"

// The scopes of what this package keeps. A scope that begins with a ':' is nobody else's.
const (
	// ScopeControl has the rules, under the one key "rules".
	ScopeControl = ":control"
	// ScopeWorker has the seats. Their keys are the queue's name, '/' and a number from 0.
	ScopeWorker = ":worker"
	// ScopeAudit has the acts. Their keys are the day in UTC, '/' and a number from 0.
	ScopeAudit = ":audit"
	// ScopeOnce has what one of many processes does, under keys of its callers' choice.
	ScopeOnce = ":once"
	// ScopeProbe is kept for messages by which an operator asks whether a worker answers.
	ScopeProbe = ":probe"
)

// MaxName bounds the name of a queue, a scope or a type in a rule, and of a seat's queue, in bytes.
const MaxName = dedupe.MaxScope
