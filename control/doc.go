// Package control has what operators and workers say to each other through the store of idempotency
// keys that is there already. It needs no server and no table of its own.
//
//   - A [Rule] is an operator's word: pause a queue, a scope or a type of job, or limit a queue,
//     until a time, with a name and a reason. Make one with ops.Ops.Pause and ops.Ops.Limit: each
//     rule has an audit record then. A [Cost] says what a pause costs.
//   - A [WorkerStatus] is what a worker says of itself, as package ops shows it.
//   - An [AuditEntry] is an act in the audit: who did what, and why.
//   - [RunOnce] runs something in one of many processes, and [WithLock] in at most one at a time.
//
// A pause of all workers of a queue, for an hour:
//
//	followed, err := o.Pause(ctx, control.Rule{ // o is an *ops.Ops
//		Queue: "orders", Until: time.Now().Add(time.Hour), By: "ana", Reason: "the bank is down",
//	}, nil)
//
// All of this is kept in records whose scopes begin with ':'. No user's scope does. Safety rests
// on the tokens of the store, as for jobs: an operator who dies in the middle of a change leaves
// the rules as they were, and a dead worker is a dead lease.
//
// Whoever may write the store's table can pause its workers.
package control
