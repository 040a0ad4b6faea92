// Package machine is the state machine of package dedupe, for those who write a store. Users of a
// store never import it.
//
//	answer, changed := machine.ApplyClaim(&record, &request, now, nextFence) // under the record's lock
//
// [ClaimTable], [RenewTable] and [SettleTable] are the whole of the machine, as data. A store in Go
// runs them: [ApplyClaim], [ApplyRenew], [ApplySettle] and [ApplyForget] change a record in place
// and give the answer. A store in a database writes the same rows as conditional statements. Either
// way the proof is package dedupetest, which plays each row. The exhaustive model of the workers
// runs these tables, too.
//
// The functions keep nothing and lock nothing: the caller holds the record's lock, or writes the
// result only where the record is still what it was.
package machine
