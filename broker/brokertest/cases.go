package brokertest

import (
	"fmt"

	"github.com/onceq/onceq/broker"
)

// This file owns the table of the rules: each with its name, its sentence, what it needs and how it
// is checked. Run reads it through cases. It never changes, so nothing is locked.

// redriveAfter is how many receives the cases of native redrive ask for: the fewest that
// Pub/Sub allows.
const redriveAfter = 5

// staleRule is the end of each rule about receipts of earlier deliveries.
const staleRule = "answered ErrReceiptExpired, or where Harness.StaleReceiptsVoid is set, it changes nothing"

// maxTestBody is the largest body that the suite sends.
const maxTestBody = 16 << 20

// What some cases need.
var (
	extends      = need{func(e *env) bool { return e.l.Extends }, "Limits.Extends is false"}
	extendsNot   = need{func(e *env) bool { return !e.l.Extends }, "Limits.Extends is true"}
	delays       = need{func(e *env) bool { return e.l.MaxDelay > 0 }, "Limits.MaxDelay is 0"}
	nackDelays   = need{func(e *env) bool { return e.l.MaxNack > 0 }, "Limits.MaxNack is 0"}
	totalHold    = need{func(e *env) bool { return e.l.MaxTotal > 0 }, "Limits.MaxTotal is 0"}
	ordered      = need{func(e *env) bool { return e.l.OrderedGroups }, "Limits.OrderedGroups is false"}
	needsGroup   = need{func(e *env) bool { return e.l.RequireGroup }, "Limits.RequireGroup is false"}
	bodyLimit    = need{func(e *env) bool { return e.l.MaxBody > 0 }, "Limits.MaxBody is 0"}
	smallLimit   = need{func(e *env) bool { return e.l.MaxBody <= maxTestBody }, fmt.Sprintf("Limits.MaxBody is over %d", maxTestBody)}
	attrLimit    = need{func(e *env) bool { return e.l.MaxAttributes > 0 }, "Limits.MaxAttributes is 0"}
	settlesMany  = need{func(e *env) bool { return e.l.SettleBatch >= 5 }, "Limits.SettleBatch is below 5"}
	sendsMany    = need{func(e *env) bool { return e.l.SendBatch >= 3 }, "Limits.SendBatch is below 3"}
	dedups       = need{func(e *env) bool { return e.h.DedupWindow > 0 }, "Harness.DedupWindow is 0"}
	virtual      = need{func(e *env) bool { return e.h.Virtual }, "Harness.Virtual is false: it would take hours"}
	hasRaw       = need{func(e *env) bool { return e.queue.SendRaw != nil }, "Queue.SendRaw is nil"}
	hasClose     = need{func(e *env) bool { return e.queue.Close != nil }, "Queue.Close is nil"}
	hasMissing   = need{func(e *env) bool { return e.h.Missing != nil }, "Harness.Missing is nil"}
	hasLetters   = need{func(e *env) bool { return e.queue.DeadLetters != nil }, "Queue.DeadLetters is nil"}
	countsDepth  = need{func(e *env) bool { _, ok := e.b.(broker.Depther); return ok }, "the broker is no Depther"}
	exactDepth   = need{func(e *env) bool { return e.h.Virtual }, "Harness.Virtual is false: real services count approximately"}
	receivesMany = need{func(e *env) bool { return e.l.ReceiveBatch >= 2 }, "Limits.ReceiveBatch is 1"}
)

var (
	grouped  = QueueOptions{Groups: true}
	redrives = QueueOptions{MaxReceives: redriveAfter}
)

// cases are all rules, in the order in which they are run.
func cases() []testCase {
	return []testCase{
		{
			name: "limits-are-sane",
			rule: "Limits do no I/O, never change, allow batches of at least 1, and have no bound below another one's",
			run:  limitsAreSane,
		},
		// Receipts and time.
		{
			name: "acked-is-gone",
			rule: "an acked message is removed for good",
			run:  ackedIsGone,
		},
		{
			name: "expiry-redelivers",
			rule: "a message that is not settled is delivered again when its visibility timeout ends, not before and not much later",
			run:  expiryRedelivers,
		},
		{
			name: "deadline-is-early",
			rule: "Deadline is the time of the answer, less the smaller of the poll's length, 5 s and a quarter of the timeout, " +
				"plus the timeout: early, never late",
			run: deadlineIsEarly,
		},
		{
			name: "receive-chooses-visibility",
			rule: "ReceiveOptions.Visibility is the messages' first timeout, or is ignored; Deadline tells what holds",
			run:  receiveChoosesVisibility,
		},
		{
			name: "extension-keeps-hidden", needs: []need{extends},
			rule: "an extension before the deadline hides the message for its For, counted from then",
			run:  extensionKeepsHidden,
		},
		{
			name: "settles-after-extension", needs: []need{extends},
			rule: "the receipt of a message that was extended acks it and gives it back as before",
			run:  settlesAfterExtension,
		},
		{
			name: "longest-extension", needs: []need{extends, virtual},
			rule: "an extension of MaxHold is honoured",
			run:  longestExtension,
		},
		{
			name: "late-extension-never-hides", needs: []need{extends},
			rule: "an extension that comes after the deadline must never hide the message: it is answered ErrReceiptExpired, or does nothing",
			run:  lateExtensionNeverHides,
		},
		{
			name: "hold-beyond-limits", needs: []need{extends},
			rule: "an extension outside MinHold and MaxHold is answered ErrUnsupported and changes nothing",
			run:  holdBeyondLimits,
		},
		{
			name: "hold-ends-at-max-total", needs: []need{extends, totalHold, virtual},
			rule: "no delivery is held longer than Limits.MaxTotal, however often it is extended",
			run:  holdEndsAtMaxTotal,
		},
		{
			name: "extension-unsupported", needs: []need{extendsNot},
			rule: "where Limits.Extends is false, every extension is answered ErrUnsupported and changes nothing",
			run:  extensionUnsupported,
		},
		{
			name: "stale-ack",
			rule: "once a message was delivered again, an ack with the old receipt removes it or changes nothing; " + staleRule,
			run:  staleAck,
		},
		{
			name: "stale-nack",
			rule: "once a message was delivered again, a nack with the old receipt gives it back or changes nothing; " + staleRule,
			run:  staleNack,
		},
		{
			name: "stale-extension", needs: []need{extends},
			rule: "once a message was delivered again, an extension with the old receipt hides it for its For or changes nothing; " + staleRule,
			run:  staleExtension,
		},
		{
			name: "late-ack-tells-the-truth",
			rule: "an ack after the deadline, while nobody else has the message, removes it or is answered ErrReceiptExpired",
			run:  lateAckTellsTheTruth,
		},
		{
			name: "settled-stays-settled",
			rule: "nothing that is done with the receipt of an acked message brings it back, or touches another message",
			run:  settledStaysSettled,
		},
		{
			name: "attempts-rise",
			rule: "Attempt counts the deliveries from 1 where Limits.Attempts is true, and is 0 where it is false",
			run:  attemptsRise,
		},
		{
			name: "nack-zero-is-immediate",
			rule: "a message nacked with delay 0 is delivered again at once",
			run:  nackZeroIsImmediate,
		},
		{
			name: "nack-delay-honoured", needs: []need{nackDelays},
			rule: "a nacked message is delivered again after its delay, not before and not much later",
			run:  nackDelayHonoured,
		},
		{
			name: "longest-nack", needs: []need{nackDelays, virtual},
			rule: "a nack of MaxNack is honoured",
			run:  longestNack,
		},
		{
			name: "nack-beyond-limit",
			rule: "a nack above MaxNack (any delay, where that is 0) is answered ErrUnsupported and changes nothing",
			run:  nackBeyondLimit,
		},
		{
			name: "delay-on-send", needs: []need{delays},
			rule: "a message sent with a delay is not delivered before it and not much later; its neighbours come at once",
			run:  delayOnSend,
		},
		{
			name: "longest-delay", needs: []need{delays, virtual},
			rule: "a send delay of MaxDelay is honoured",
			run:  longestDelay,
		},
		{
			name: "delay-beyond-limit",
			rule: "a send delay above MaxDelay (any, where that is 0) is answered ErrUnsupported and the message is not sent",
			run:  delayBeyondLimit,
		},
		// Batches.
		{
			name: "ids-are-stable",
			rule: "ID is what Send answered at the message's position, and the same in every delivery; Receipt is new in each",
			run:  idsAreStable,
		},
		{
			name: "batch-ack-by-position", needs: []need{settlesMany},
			rule: "a bad receipt in a batch is answered at its own position, and its neighbours are acked",
			run:  batchAckByPosition,
		},
		{
			name: "batch-nack-by-position", needs: []need{settlesMany},
			rule: "a bad receipt in a batch is answered at its own position, and its neighbours are given back",
			run:  batchNackByPosition,
		},
		{
			name: "batch-extend-by-position", needs: []need{settlesMany, extends},
			rule: "a bad receipt in a batch is answered at its own position, and its neighbours are extended",
			run:  batchExtendByPosition,
		},
		{
			name: "full-batches",
			rule: "batches of exactly SendBatch, ReceiveBatch and SettleBatch entries are taken",
			run:  fullBatches,
		},
		{
			name: "full-extension", needs: []need{extends},
			rule: "an extension of exactly SettleBatch entries hides every message of them",
			run:  fullExtension,
		},
		{
			name: "receipt-twice-in-a-batch", needs: []need{settlesMany},
			rule: "a batch with a receipt twice settles it once and its other entries as well; the second may be answered ErrReceiptExpired",
			run:  receiptTwice,
		},
		{
			name: "empty-batch",
			rule: "an empty batch is applied without a call",
			run:  emptyBatch,
		},
		{
			name: "oversize-batch",
			rule: "a batch above the limit is answered ErrUnsupported with nothing applied",
			run:  oversizeBatch,
		},
		{
			name: "receive-max",
			rule: "Receive brings at most Max messages, and leaves the others to be received",
			run:  receiveMax,
		},
		{
			name: "receive-takes-no-more",
			rule: "what a Receive does not hand out stays in the queue, neither held nor counted as delivered",
			run:  takesNoMore,
		},
		{
			name: "receive-wait",
			rule: "an empty Receive lasts about Wait and no error says that it was empty; a message ends the wait at once",
			run:  receiveWait,
		},
		// Groups.
		{
			name: "groups-in-order", queue: grouped, needs: []need{ordered},
			rule: "messages of one group are delivered in the order in which they were sent, and Message.Group names it",
			run:  groupsInOrder,
		},
		{
			name: "failed-head-holds-group", queue: grouped, needs: []need{ordered},
			rule: "while the head of a group is held, and while it waits for its nack delay, its followers are not delivered; other groups go on",
			run:  failedHeadHoldsGroup,
		},
		{
			name: "expired-head-comes-first", queue: grouped, needs: []need{ordered},
			rule: "when the head of a group expires, it is delivered again before its followers",
			run:  expiredHeadComesFirst,
		},
		{
			name: "hidden-message-blocks-later-ones-only", queue: grouped, needs: []need{ordered, receivesMany},
			rule: "an invisible message holds the later ones of its group and not the earlier ones",
			run:  hiddenBlocksLaterOnly,
		},
		{
			name: "missing-group", queue: grouped, needs: []need{needsGroup, sendsMany},
			rule: "where Limits.RequireGroup is true, a message without a group is refused at its position and its neighbours are sent",
			run:  missingGroup,
		},
		{
			name: "dedup-id", queue: grouped,
			rule: "within Harness.DedupWindow a second send with the same DedupID succeeds and delivers nothing; without a window DedupID is ignored",
			run:  dedupID,
		},
		{
			name: "dedup-scope", queue: grouped, needs: []need{dedups, ordered},
			rule: "the same DedupID in two groups is one message, or where Harness.DedupPerGroup is set two",
			run:  dedupScope,
		},
		{
			name: "equal-messages", queue: grouped,
			rule: "messages without a DedupID are never taken for duplicates, however equal they are",
			run:  equalMessages,
		},
		// Content.
		{
			name: "body-at-limit", needs: []need{bodyLimit, smallLimit},
			rule: "a message of exactly Limits.MaxBody is carried whole",
			run:  bodyAtLimit,
		},
		{
			name: "body-over-limit", needs: []need{bodyLimit, smallLimit, sendsMany},
			rule: "a message above Limits.MaxBody is answered ErrTooLarge at its position, and its neighbours are sent",
			run:  bodyOverLimit,
		},
		{
			name: "attributes-at-limit", needs: []need{attrLimit},
			rule: "Limits.MaxAttributes attributes are carried, ours among them",
			run:  attributesAtLimit,
		},
		{
			name: "attributes-over-limit", needs: []need{attrLimit, sendsMany},
			rule: "more than Limits.MaxAttributes attributes are answered ErrTooLarge at the message's position, and its neighbours are sent",
			run:  attributesOverLimit,
		},
		{
			name: "letter-that-does-not-fit", needs: []need{bodyLimit, smallLimit, sendsMany},
			rule: "a dead letter that does not fit is answered ErrTooLarge at its position, never cut or dropped without a word; its neighbours are sent",
			run:  letterThatDoesNotFit,
		},
		{
			name: "batch-keeps-entries-apart", needs: []need{sendsMany},
			rule: "each message of a batch comes with its own body, attributes and metadata",
			run:  batchKeepsApart,
		},
		{
			name: "empty-body",
			rule: "an empty body is carried",
			run:  emptyBody,
		},
		{
			name: "any-bytes-in-bodies",
			rule: "a body is carried byte for byte, whatever it holds",
			run:  anyBytesInBodies,
		},
		{
			name: "any-text-in-attributes",
			rule: "an attribute's value is carried unchanged, whatever UTF-8 it is",
			run:  anyTextInAttributes,
		},
		{
			name: "strange-attribute-names",
			rule: "an attribute with a strange name is carried unchanged, or the send is refused; it is never changed or dropped",
			run:  strangeAttributeNames,
		},
		{
			name: "redelivery-is-unchanged",
			rule: "every delivery of a message has the same body, attributes, metadata, group and time of publishing",
			run:  redeliveryIsUnchanged,
		},
		{
			name: "receiver-owns-message",
			rule: "what a receiver does to a message's body, attributes and metadata does not show in the next delivery",
			run:  receiverOwnsMessage,
		},
		{
			name: "sender-keeps-message",
			rule: "Send neither changes nor keeps what it is given: what the sender does to it later does not show",
			run:  senderKeepsMessage,
		},
		// Metadata.
		{
			name: "no-metadata",
			rule: "a message sent without metadata has Meta nil and MetaErr nil",
			run:  noMetadata,
		},
		{
			name: "foreign-message", needs: []need{hasRaw},
			rule: "a message of another producer comes with its body and attributes, Meta nil and MetaErr nil",
			run:  foreignMessage,
		},
		{
			name: "metadata-round-trip",
			rule: "every member of Meta is carried, times to the millisecond, the dead letter's too",
			run:  metadataRoundTrip,
		},
		{
			name: "newer-metadata-kept", needs: []need{hasRaw},
			rule: "members of a newer version's metadata are kept and written again",
			run:  newerMetadataKept,
		},
		{
			name: "encoded-body", needs: []need{hasRaw},
			rule: "a body whose metadata says base64 comes decoded, and Meta.BodyEncoding empty",
			run:  encodedBody,
		},
		{
			name: "bad-metadata", needs: []need{hasRaw},
			rule: "metadata that cannot be read, or a body encoding that cannot be undone, gives a MetaErr of ErrBadMeta, Meta nil, body and attributes as they came, and a message that can be settled",
			run:  badMetadata,
		},
		// Calls at the same time, and the ends of a broker.
		{
			name: "cancelled-receive-strands-nothing",
			rule: "a Receive whose context ends returns soon, with all that it brought or the context's error; no message is stranded until its timeout",
			run:  cancelledReceiveStrandsNothing,
		},
		{
			name: "ended-context",
			rule: "Send, Ack, Nack and Extend with a context that has ended are applied and say so, or are answered an error that wraps the context's",
			run:  endedContext,
		},
		{
			name: "concurrent-use",
			rule: "many senders and receivers at once lose no message, and no message is delivered while another receiver holds it",
			run:  concurrentUse,
		},
		{
			name: "closed", needs: []need{hasClose},
			rule: "every call on a closed broker is answered ErrClosed, and a Receive that waits ends at once",
			run:  closed,
		},
		{
			name: "missing-queue", needs: []need{hasMissing},
			rule: "Receive and Send on a queue that is not there are answered ErrNotFound",
			run:  missingQueue,
		},
		{
			name: "native-redrive", queue: redrives, needs: []need{hasLetters},
			rule: "a message received as often as the queue's own redrive allows is moved to its dead-letter queue, whole",
			run:  nativeRedrive,
		},
		{
			name: "depth", needs: []need{countsDepth, exactDepth},
			rule: "Depth counts visible, held and delayed messages apart",
			run:  depth,
		},
	}
}
