// Package engine claims, runs, settles and dead-letters jobs, for whoever brings them. It knows no
// Job, no Config and no Worker. A [Host] answers what differs between those who bring runs. J is
// what the host keeps with a run, in the same allocation.
//
//	      Worker, Batches, Do (package onceq: hosts.go)
//	         │ Offer                                  ▲ Start, Handle      ▲ Observe, Ended
//	         ▼                                        │                    │
//	┌─ Flow ───────────────┐   ┌─ Engine ─────────────┴────────────────────┴──────┐
//	│ slots, groups,       │──▶│ claim ──▶ work ──▶ verdict ──▶ settle ──▶ letter  │
//	│ pause, drain         │   │   │                               │         │    │
//	│                      │◀──│   └──────────────▶ finish ◀───────┴─────────┘    │
//	└──────────────────────┘   └──────▲─────────────────────▲─────────────────────┘
//	                           beat: claims         hold: deliveries
//	                                  └─ visibility.Manager ─┘
//
// # The life of a message
//
//  1. A poller takes room and receives (onceq: poll.go, poller.poll; slots.go, Flow.Reserve).
//  2. Each message becomes a run, one allocation (run.go, Flow.NewRun). From Offer on its delivery
//     is held (slots.go, Flow.Offer; visibility: Manager.Hold).
//  3. It waits for a slot. Of a group only the head does (slots.go, Flow.ahead, Flow.pump).
//  4. Its host says what it asks for, or why no claim is made (claim.go, beginClaims; Host.Admit).
//  5. Claims go out together, each key once, each with a token of its own (claim.go, claimBatch,
//     ask).
//  6. The answer decides (claim.go, answered). Won: the job goes on. Done: it is acked. In
//     progress: it is given back or handed over. Failed: its letter is put again. A claim whose
//     answer is lost is sent again with its token (unanswered). When the flow stops, that claim is
//     given back by its token (giveUnbegun).
//  7. From the claim on beats renew it, and its delivery after it (beat.go, extend; hold.go,
//     holdBatch), until the end is known.
//  8. Its host gives it a goroutine (Host.Start), which runs the handler (work.go, Work). Under
//     Park the handler starts only when the store has noted the start (confirmStart). A handler
//     that waits before it does anything has it noted when it begins (starts.go, ConfirmStarts).
//  9. What the handler returned, and what cut it off, is judged (work.go, handled; verdict.Of). The
//     slot is free (slots.go, Flow.returned).
//  10. The end is settled under the token until the store has answered (settle.go, settleBatch,
//     settled): the status that is stored decides. Where the job waits, and its message comes for
//     the last time, that is sent anew before (Host.Carry; work.go, Carried).
//  11. What failed or is parked gets its dead letter first (letter.go, letter, putBatch).
//  12. It gets its one disposition (finish.go, finish): the host observes it, the flow moves its
//     group on, and the host acks, nacks or leaves the message (Host.Ended; onceq: worker.go),
//     while beats go on. Then the flow forgets it (slots.go, Flow.Gone).
//
// # Who may write what
//
// A run's phase only rises, by one compare-and-swap (run.go, advance, giveUp). Whoever raises it
// goes on with the run. Whoever had it before may still write the fields of the row that names it,
// until it finds that it is late. So nobody reads those of a run that was abandoned (timing.go,
// timingUpTo). DESIGN.md has the same table.
//
//	phase              who has the run, one after the other       writes
//	waiting            its maker until the offer; then nobody     Index, came, known; Do: Key,
//	                                                              Opts, too
//	claiming           who gave it a slot, through Admit          Key, Opts, known, Verdict, later,
//	                                                              tries
//	                   the carrier of claims                      Token, Fence, Attempt, Said, asked,
//	                                                              known, Verdict, later, tries
//	                   if turned away: carrier of letters, copies later, tries
//	                   if handed back: who does that              Outcome
//	claimed, running   the handler's goroutine                    whole, Ran, began, later
//	settling, settled  who has raised it to settling              Verdict, ended, later, tries
//	                   the carrier of copies (Host.Carry)         Verdict, later, tries
//	                   the carrier of settlements                 Verdict, later, tries
//	                   the carrier of letters                     later, tries
//	over               who has raised it, before Host.Ended       Action, Outcome, Verdict.Delay,
//	                                                              tries
//	                   a Worker's carrier of acks or nacks        tries, later
//
// Where a run is alone (alone.go, isAlone) there is no carrier: who has the run before it makes the
// call, and writes what the carrier would.
//
// Some fields do not go by the phase:
//
//   - phase and Joined are atomic, and ctx has a lock of its own. The user sets Joined.
//   - missed belongs to the beat; at most one is in flight for a run.
//   - left is written by who abandons the run.
//   - held, the lease, is its maker's until the offer, and then under mu. Where the claim is not
//     renewed (lease.go, hasOneLease), no beat knows held, and who has the run writes it.
//   - Message is the driver's. Its maker may change it before the offer (onceq: mux.go, unfold).
//   - The place of a run (lane, queue, slot) is under the flow's lock.
//
// Beats, extensions and a redelivery meet a run in any phase. What they read and write is under the
// run's own lock (receipt, deliveryEnds, keeping, claimHeld), or was written before the claim was
// held (known). The flow's lock comes before the run's; the manager's comes last. No host, store or
// broker is called under any of them. There are two exceptions, both under the flow's lock:
// Host.Start, and the function that a host gives to Flow.HandOver.
package engine
