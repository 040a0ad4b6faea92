// Package model is onceq's protocol as small pure code, explored exhaustively: one job, sent twice,
// two workers, a store, a queue with a dead-letter queue, and an operator who replays dead letters.
// Every order of their steps is tried, with crashes, lost replies, late packets, leases that run
// out and transactions that commit late. The explorer checks the promises in every state, and
// prints the shortest way to a broken one.
//
// How to read it: state.go is what the world looks like at one instant. worker.go, handler.go and
// environment.go are the steps from one instant to the next. store.go is the record, changed
// through [machine.ApplyClaim], [machine.ApplyRenew] and [machine.ApplySettle] alone, the functions
// that the stores run, so that model and stores cannot drift apart. What a handler's end is settled
// to is decided by [verdict.Judge], the table that the worker runs, so that neither can model and
// worker. property.go names what must hold, rules.go each rule of the protocol that can be left
// out, and what it is good for. explore.go searches.
//
// timed.go has three small worlds beside it, in which time goes by: windows.go has a block of
// starts, which limit.Shared divides among processes, instants.go the instants of schedule.Run, and
// fans.go a parent of fan.Out with its children.
//
// # What is abstracted
//
//   - Time. A lease is live or dead, and may die whenever it likes, also while its owner works. So
//     nothing that the model proves rests on a clock.
//   - Visibility. A message that is in a queue may be received at any moment, also while a worker
//     has it. Extending and giving back can only delay that, so they are no steps; what is proved
//     holds for any queue, however badly it hides messages.
//   - Receives. The queue may dead-letter any message at any moment, whatever it counts.
//   - Fences and tokens. Only equality and order matter, so they are relabelled in every state: a
//     fence is that of the record or an older one, a token is that of the worker, of the late
//     packet, or nobody's. This makes the state space finite without a bound on the number of
//     claims.
//   - Giving up, leaving a message and losing a nack look to all others like a crash, and are one
//     step.
//   - Equal messages that nobody has received are not told apart from one: whatever can be done
//     with the second can be done with the first. A replay waits while there are many messages;
//     Report.Pruned counts that.
//
// A step is a fault when something goes wrong in it: a crash, a lost or late packet, a lease that
// dies while its owner lives. Safety is checked over all steps; that done can be reached is checked
// over those without a fault, so that nothing needs a second accident to recover from the first.
package model
