// Package dlq looks after dead letters. A dead letter is a message that could not be done. It
// carries two things:
//
//   - the reason why;
//   - the permission to try exactly that failure once more.
//
// The worker makes letters. A [Queue] lists, groups, replays and purges them, on any broker:
//
//	letters, err := dlq.New(dead, nil)              // dead is the dead-letter queue
//	groups, err := letters.Group(ctx, dlq.Filter{}) // what went wrong, how often, since when
//	report, err := letters.Replay(ctx, dlq.ReplayOptions{
//		Filter: dlq.Filter{Group: groups[0].Group}, To: orders, Canary: 5,
//	})
package dlq

import "github.com/onceq/onceq/internal/letter"

// UnreadableAttribute is where a letter keeps our metadata attribute, as it came, when the worker
// could not read it. The name is ours, like that of the metadata attribute: a letter leaves out a
// user's attribute of this name.
const UnreadableAttribute = letter.UnreadableAttribute

// A replay treats letters of these classes in ways of their own. Package onceq names all classes.
const (
	classBadMeta = "bad-meta" // the worker could not read our metadata: the replay restores it

	// Nothing failed in these four, so their letters have no fence. The claim of their replay is an
	// ordinary one.

	classExpired   = "expired"
	classUnproven  = "unproven"
	classTooEarly  = "too-early"
	classDuplicate = "duplicate"

	// The worker's configuration was wrong, not the message. A worker that was mended takes it.
	classNoKey     = "no-key"
	classBadKey    = "bad-key"
	classNoHandler = "no-handler"
	classConfig    = "config"
	classError     = "error" // where no claim was won: ProcessorConfig.Fingerprint panicked

	// The store refused the claim, because of the key's row. Once the row is mended, a worker can
	// claim it.
	classClaimRefused = "claim-refused"

	classMismatch = "mismatch" // another message has its key
)
