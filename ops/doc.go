// Package ops is what operators' tools are made of: what waits, who works, what has failed, what
// became of a key; and the acts that others feel, each with a name, a reason and an audit record.
//
//	o, err := ops.New([]ops.Target{{Name: "orders", Queue: orders, DeadLetters: dead, Store: store}}, &ops.Options{By: "ana"})
//	states, err := o.Overview(ctx)
//	line, err := o.Key(ctx, "orders", dedupe.Key{Scope: "orders:charge", Key: "A-1"}, ops.KeyOptions{})
//	followed, err := o.Pause(ctx, control.Rule{Queue: "orders", Until: time.Now().Add(time.Hour), Reason: "the bank is down"})
//
// The command onceq is one user of it. It speaks to queues and stores alone: there is no server,
// and workers are reached through the store that they share.
//
// # What is read, and what is known
//
// What a service does not tell is absent (nil, or an error of that part), never 0. Each part of an
// answer has an error of its own, because in an outage the other parts are what one needs.
//
// # Acts
//
// A method that changes something writes an audit record before it (what is to be done, by whom,
// why) and completes it after it (what was done). Where the store takes no record it refuses with
// [ErrNoAudit], unless Options.NoAudit says otherwise. One Ops names one person; [Ops.As] makes one
// for another.
//
// # Pages
//
// A page has many viewers and short requests. A [Board] asks the queues once for all who look, and
// goes through dead letters once. A [Running] does replays and purges in the background: they go on
// when the request has ended, and are stopped in order.
//
// Experimental: it may change in any minor version. docs/release.md says what that means.
package ops
