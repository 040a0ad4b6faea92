// Package dlq looks after dead letters: messages that could not be done, with the reason why and
// the permission to try exactly that failure once more. A [Queue] lists, groups, replays and purges
// them, on any broker. The worker makes them.
package dlq

import "github.com/onceq/onceq/internal/letter"

// UnreadableAttribute is where a letter keeps our metadata attribute when it could not be read, as
// it came. The name is ours, as that of the attribute is: a user's attribute of this name is left
// out of a letter.
const UnreadableAttribute = letter.UnreadableAttribute

// The classes of letters that a replay treats in a way of their own; package onceq names all
// classes.
const (
	ClassBadMeta   = "bad-meta"  // our metadata could not be read: the replay restores it
	ClassExpired   = "expired"   // these four have no fence, for nothing failed; their replay's claim is an ordinary one
	ClassUnproven  = "unproven"  //
	ClassTooEarly  = "too-early" //
	ClassDuplicate = "duplicate" //

	// The worker's configuration was wrong, and not the message: one that was mended takes it.
	classNoKey     = "no-key"
	classBadKey    = "bad-key"
	classNoHandler = "no-handler"
	classConfig    = "config"

	classMismatch = "mismatch" // another message has its key
)
