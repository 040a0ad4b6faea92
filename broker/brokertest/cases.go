package brokertest

import (
	"fmt"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/suite"
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

type (
	testCase = suite.Case[*env, QueueOptions]
	need     = suite.Need[*env]
)

// What some cases need.
var (
	extends      = need{Met: func(e *env) bool { return e.l.Extends }, Why: "Limits.Extends is false"}
	extendsNot   = need{Met: func(e *env) bool { return !e.l.Extends }, Why: "Limits.Extends is true"}
	delays       = need{Met: func(e *env) bool { return e.l.MaxDelay > 0 }, Why: "Limits.MaxDelay is 0"}
	nackDelays   = need{Met: func(e *env) bool { return e.l.MaxNack > 0 }, Why: "Limits.MaxNack is 0"}
	totalHold    = need{Met: func(e *env) bool { return e.l.MaxTotal > 0 }, Why: "Limits.MaxTotal is 0"}
	ordered      = need{Met: func(e *env) bool { return e.l.OrderedGroups }, Why: "Limits.OrderedGroups is false"}
	needsGroup   = need{Met: func(e *env) bool { return e.l.RequireGroup }, Why: "Limits.RequireGroup is false"}
	bodyLimit    = need{Met: func(e *env) bool { return e.l.MaxBody > 0 }, Why: "Limits.MaxBody is 0"}
	smallLimit   = need{Met: func(e *env) bool { return e.l.MaxBody <= maxTestBody }, Why: fmt.Sprintf("Limits.MaxBody is over %d", maxTestBody)}
	attrLimit    = need{Met: func(e *env) bool { return e.l.MaxAttributes > 0 }, Why: "Limits.MaxAttributes is 0"}
	settlesMany  = need{Met: func(e *env) bool { return e.l.SettleBatch >= 5 }, Why: "Limits.SettleBatch is below 5"}
	sendsMany    = need{Met: func(e *env) bool { return e.l.SendBatch >= 3 }, Why: "Limits.SendBatch is below 3"}
	dedups       = need{Met: func(e *env) bool { return e.h.DedupWindow > 0 }, Why: "Harness.DedupWindow is 0"}
	virtual      = need{Met: func(e *env) bool { return e.h.Virtual }, Why: "Harness.Virtual is false: it would take hours"}
	hasRaw       = need{Met: func(e *env) bool { return e.queue.SendRaw != nil }, Why: "Queue.SendRaw is nil"}
	hasClose     = need{Met: func(e *env) bool { return e.queue.Close != nil }, Why: "Queue.Close is nil"}
	hasMissing   = need{Met: func(e *env) bool { return e.h.Missing != nil }, Why: "Harness.Missing is nil"}
	hasThrottle  = need{Met: func(e *env) bool { return e.queue.Throttle != nil }, Why: "Queue.Throttle is nil"}
	hasLetters   = need{Met: func(e *env) bool { return e.queue.DeadLetters != nil }, Why: "Queue.DeadLetters is nil"}
	countsDepth  = need{Met: func(e *env) bool { _, ok := broker.As[broker.Depther](e.b); return ok }, Why: "the broker is no Depther"}
	exactDepth   = need{Met: func(e *env) bool { return e.h.Virtual }, Why: "Harness.Virtual is false: real services count approximately"}
	receivesMany = need{Met: func(e *env) bool { return e.l.ReceiveBatch >= 2 }, Why: "Limits.ReceiveBatch is 1"}
)

var (
	grouped  = QueueOptions{Groups: true}
	redrives = QueueOptions{MaxReceives: redriveAfter}
)

// cases are all rules, in the order in which they are run.
func cases() []testCase {
	return []testCase{
		{
			Name: "limits-are-sane",
			Rule: "Limits do no I/O, never change, allow batches of at least 1, and have no bound below another one's",
			Run:  limitsAreSane,
		},
		// Receipts and time.
		{
			Name: "acked-is-gone",
			Rule: "an acked message is removed for good",
			Run:  ackedIsGone,
		},
		{
			Name: "expiry-redelivers",
			Rule: "a message that is not settled is delivered again when its visibility timeout ends, not before and not much later",
			Run:  expiryRedelivers,
		},
		{
			Name: "deadline-is-early",
			Rule: "Deadline is the time of the answer, less the smaller of the poll's length, 5 s and a quarter of the timeout, " +
				"plus the timeout: early, never late",
			Run: deadlineIsEarly,
		},
		{
			Name: "receive-chooses-visibility",
			Rule: "ReceiveOptions.Visibility is the messages' first timeout, or is ignored; Deadline tells what holds",
			Run:  receiveChoosesVisibility,
		},
		{
			Name: "extension-keeps-hidden", Needs: []need{extends},
			Rule: "an extension before the deadline hides the message for its For, counted from then",
			Run:  extensionKeepsHidden,
		},
		{
			Name: "settles-after-extension", Needs: []need{extends},
			Rule: "the receipt of a message that was extended acks it and gives it back as before",
			Run:  settlesAfterExtension,
		},
		{
			Name: "longest-extension", Needs: []need{extends, virtual},
			Rule: "an extension of MaxHold is honoured",
			Run:  longestExtension,
		},
		{
			Name: "late-extension-never-hides", Needs: []need{extends},
			Rule: "an extension that comes after the deadline must never hide the message: it is answered ErrReceiptExpired, or does nothing",
			Run:  lateExtensionNeverHides,
		},
		{
			Name: "hold-beyond-limits", Needs: []need{extends},
			Rule: "an extension outside MinHold and MaxHold is answered ErrUnsupported and changes nothing",
			Run:  holdBeyondLimits,
		},
		{
			Name: "hold-ends-at-max-total", Needs: []need{extends, totalHold, virtual},
			Rule: "no delivery is held longer than Limits.MaxTotal, however often it is extended",
			Run:  holdEndsAtMaxTotal,
		},
		{
			Name: "extension-unsupported", Needs: []need{extendsNot},
			Rule: "where Limits.Extends is false, every extension is answered ErrUnsupported and changes nothing",
			Run:  extensionUnsupported,
		},
		{
			Name: "stale-ack",
			Rule: "once a message was delivered again, an ack with the old receipt removes it or changes nothing; " + staleRule,
			Run:  staleAck,
		},
		{
			Name: "stale-nack",
			Rule: "once a message was delivered again, a nack with the old receipt gives it back or changes nothing; " + staleRule,
			Run:  staleNack,
		},
		{
			Name: "stale-extension", Needs: []need{extends},
			Rule: "once a message was delivered again, an extension with the old receipt hides it for its For or changes nothing; " + staleRule,
			Run:  staleExtension,
		},
		{
			Name: "late-ack-tells-the-truth",
			Rule: "an ack after the deadline, while nobody else has the message, removes it or is answered ErrReceiptExpired",
			Run:  lateAckTellsTheTruth,
		},
		{
			Name: "settled-stays-settled",
			Rule: "nothing that is done with the receipt of an acked message brings it back, or touches another message",
			Run:  settledStaysSettled,
		},
		{
			Name: "attempts-rise",
			Rule: "Attempt counts the deliveries from 1 where Limits.Attempts is true, and is 0 where it is false",
			Run:  attemptsRise,
		},
		{
			Name: "nack-zero-is-immediate",
			Rule: "a message nacked with delay 0 is delivered again at once",
			Run:  nackZeroIsImmediate,
		},
		{
			Name: "nack-delay-honoured", Needs: []need{nackDelays},
			Rule: "a nacked message is delivered again after its delay, not before and not much later",
			Run:  nackDelayHonoured,
		},
		{
			Name: "longest-nack", Needs: []need{nackDelays, virtual},
			Rule: "a nack of MaxNack is honoured",
			Run:  longestNack,
		},
		{
			Name: "nack-beyond-limit",
			Rule: "a nack above MaxNack (any delay, where that is 0) is answered ErrUnsupported and changes nothing",
			Run:  nackBeyondLimit,
		},
		{
			Name: "delay-on-send", Needs: []need{delays},
			Rule: "a message sent with a delay is not delivered before it and not much later; its neighbours come at once",
			Run:  delayOnSend,
		},
		{
			Name: "longest-delay", Needs: []need{delays, virtual},
			Rule: "a send delay of MaxDelay is honoured",
			Run:  longestDelay,
		},
		{
			Name: "delay-beyond-limit",
			Rule: "a send delay above MaxDelay (any, where that is 0) is answered ErrUnsupported and the message is not sent",
			Run:  delayBeyondLimit,
		},
		// Batches.
		{
			Name: "ids-are-stable",
			Rule: "ID is what Send answered at the message's position, and the same in every delivery; Receipt is new in each",
			Run:  idsAreStable,
		},
		{
			Name: "batch-ack-by-position", Needs: []need{settlesMany},
			Rule: "a bad receipt in a batch is answered at its own position, and its neighbours are acked",
			Run:  batchAckByPosition,
		},
		{
			Name: "batch-nack-by-position", Needs: []need{settlesMany},
			Rule: "a bad receipt in a batch is answered at its own position, and its neighbours are given back",
			Run:  batchNackByPosition,
		},
		{
			Name: "batch-extend-by-position", Needs: []need{settlesMany, extends},
			Rule: "a bad receipt in a batch is answered at its own position, and its neighbours are extended",
			Run:  batchExtendByPosition,
		},
		{
			Name: "full-batches",
			Rule: "batches of exactly SendBatch, ReceiveBatch and SettleBatch entries are taken",
			Run:  fullBatches,
		},
		{
			Name: "full-extension", Needs: []need{extends},
			Rule: "an extension of exactly SettleBatch entries hides every message of them",
			Run:  fullExtension,
		},
		{
			Name: "receipt-twice-in-a-batch", Needs: []need{settlesMany},
			Rule: "a batch with a receipt twice settles it once and its other entries as well; the second may be answered ErrReceiptExpired",
			Run:  receiptTwice,
		},
		{
			Name: "empty-batch",
			Rule: "an empty batch is applied without a call",
			Run:  emptyBatch,
		},
		{
			Name: "oversize-batch",
			Rule: "a batch above the limit is answered ErrUnsupported with nothing applied",
			Run:  oversizeBatch,
		},
		{
			Name: "receive-max",
			Rule: "Receive brings at most Max messages, and leaves the others to be received",
			Run:  receiveMax,
		},
		{
			Name: "receive-takes-no-more",
			Rule: "what a Receive does not hand out stays in the queue, neither held nor counted as delivered",
			Run:  takesNoMore,
		},
		{
			Name: "receive-wait",
			Rule: "an empty Receive lasts about Wait and no error says that it was empty; a message ends the wait at once",
			Run:  receiveWait,
		},
		// Groups.
		{
			Name: "groups-in-order", Asks: grouped, Needs: []need{ordered},
			Rule: "messages of one group are delivered in the order in which they were sent, and Message.Group names it",
			Run:  groupsInOrder,
		},
		{
			Name: "failed-head-holds-group", Asks: grouped, Needs: []need{ordered},
			Rule: "while the head of a group is held, and while it waits for its nack delay, its followers are not delivered; other groups go on",
			Run:  failedHeadHoldsGroup,
		},
		{
			Name: "expired-head-comes-first", Asks: grouped, Needs: []need{ordered},
			Rule: "when the head of a group expires, it is delivered again before its followers",
			Run:  expiredHeadComesFirst,
		},
		{
			Name: "hidden-message-blocks-later-ones-only", Asks: grouped, Needs: []need{ordered, receivesMany},
			Rule: "an invisible message holds the later ones of its group and not the earlier ones",
			Run:  hiddenBlocksLaterOnly,
		},
		{
			Name: "missing-group", Asks: grouped, Needs: []need{needsGroup, sendsMany},
			Rule: "where Limits.RequireGroup is true, a message without a group is refused at its position and its neighbours are sent",
			Run:  missingGroup,
		},
		{
			Name: "dedup-id", Asks: grouped,
			Rule: "within Harness.DedupWindow a second send with the same DedupID succeeds and delivers nothing; without a window DedupID is ignored",
			Run:  dedupID,
		},
		{
			Name: "dedup-scope", Asks: grouped, Needs: []need{dedups, ordered},
			Rule: "the same DedupID in two groups is one message, or where Harness.DedupPerGroup is set two",
			Run:  dedupScope,
		},
		{
			Name: "equal-messages", Asks: grouped,
			Rule: "messages without a DedupID are never taken for duplicates, however equal they are",
			Run:  equalMessages,
		},
		// Content.
		{
			Name: "body-at-limit", Needs: []need{bodyLimit, smallLimit},
			Rule: "a message of exactly Limits.MaxBody is carried whole",
			Run:  bodyAtLimit,
		},
		{
			Name: "body-over-limit", Needs: []need{bodyLimit, smallLimit, sendsMany},
			Rule: "a message above Limits.MaxBody is answered ErrTooLarge at its position, and its neighbours are sent",
			Run:  bodyOverLimit,
		},
		{
			Name: "attributes-at-limit", Needs: []need{attrLimit},
			Rule: "Limits.MaxAttributes attributes are carried, ours among them",
			Run:  attributesAtLimit,
		},
		{
			Name: "attributes-over-limit", Needs: []need{attrLimit, sendsMany},
			Rule: "more than Limits.MaxAttributes attributes are answered ErrTooLarge at the message's position, and its neighbours are sent",
			Run:  attributesOverLimit,
		},
		{
			Name: "letter-that-does-not-fit", Needs: []need{bodyLimit, smallLimit, sendsMany},
			Rule: "a dead letter that does not fit is answered ErrTooLarge at its position, never cut or dropped without a word; its neighbours are sent",
			Run:  letterThatDoesNotFit,
		},
		{
			Name: "batch-keeps-entries-apart", Needs: []need{sendsMany},
			Rule: "each message of a batch comes with its own body, attributes and metadata",
			Run:  batchKeepsApart,
		},
		{
			Name: "empty-body",
			Rule: "an empty body is carried",
			Run:  emptyBody,
		},
		{
			Name: "any-bytes-in-bodies",
			Rule: "a body is carried byte for byte, whatever it holds",
			Run:  anyBytesInBodies,
		},
		{
			Name: "any-text-in-attributes",
			Rule: "an attribute's value is carried unchanged, whatever UTF-8 it is",
			Run:  anyTextInAttributes,
		},
		{
			Name: "strange-attribute-names",
			Rule: "an attribute with a strange name is carried unchanged, or the send is refused; it is never changed or dropped",
			Run:  strangeAttributeNames,
		},
		{
			Name: "redelivery-is-unchanged",
			Rule: "every delivery of a message has the same body, attributes, metadata, group and time of publishing",
			Run:  redeliveryIsUnchanged,
		},
		{
			Name: "published-is-the-send",
			Rule: "Published is when the broker took the message: not zero, and within Harness.Slack of the send",
			Run:  publishedIsTheSend,
		},
		{
			Name: "receiver-owns-message",
			Rule: "what a receiver does to a message's body, attributes and metadata does not show in the next delivery",
			Run:  receiverOwnsMessage,
		},
		{
			Name: "sender-keeps-message",
			Rule: "Send neither changes nor keeps what it is given: what the sender does to it later does not show",
			Run:  senderKeepsMessage,
		},
		// Metadata.
		{
			Name: "no-metadata",
			Rule: "a message sent without metadata has Meta nil and MetaErr nil",
			Run:  noMetadata,
		},
		{
			Name: "foreign-message", Needs: []need{hasRaw},
			Rule: "a message of another producer comes with its body and attributes, Meta nil and MetaErr nil",
			Run:  foreignMessage,
		},
		{
			Name: "metadata-round-trip",
			Rule: "every member of Meta is carried, times to the millisecond, the dead letter's too",
			Run:  metadataRoundTrip,
		},
		{
			Name: "newer-metadata-kept", Needs: []need{hasRaw},
			Rule: "members of a newer version's metadata are kept and written again",
			Run:  newerMetadataKept,
		},
		{
			Name: "encoded-body", Needs: []need{hasRaw},
			Rule: "a body whose metadata says base64 comes decoded, and Meta.BodyEncoding empty",
			Run:  encodedBody,
		},
		{
			Name: "bad-metadata", Needs: []need{hasRaw},
			Rule: "metadata that cannot be read, or a body encoding that cannot be undone, gives a MetaErr of ErrBadMeta, Meta nil, body and attributes as they came, and a message that can be settled",
			Run:  badMetadata,
		},
		// Calls at the same time, and the ends of a broker.
		{
			Name: "cancelled-receive-strands-nothing",
			Rule: "a Receive whose context ends returns soon, with all that it brought or the context's error; no message is stranded until its timeout",
			Run:  cancelledReceiveStrandsNothing,
		},
		{
			Name: "ended-context",
			Rule: "Send, Ack, Nack and Extend with a context that has ended are applied and say so, or are answered an error that wraps the context's",
			Run:  endedContext,
		},
		{
			Name: "concurrent-use",
			Rule: "many senders and receivers at once lose no message, and no message is delivered while another receiver holds it",
			Run:  concurrentUse,
		},
		{
			Name: "closed", Needs: []need{hasClose},
			Rule: "every call on a closed broker is answered ErrClosed, and a Receive that waits ends at once",
			Run:  closed,
		},
		{
			Name: "missing-queue", Needs: []need{hasMissing},
			Rule: "Receive and Send on a queue that is not there are answered ErrNotFound",
			Run:  missingQueue,
		},
		{
			Name: "throttled", Needs: []need{hasThrottle},
			Rule: "a call that the service throttles is answered ErrThrottled and applies nothing; the receipts are as good afterwards as before",
			Run:  throttled,
		},
		{
			Name: "native-redrive", Asks: redrives, Needs: []need{hasLetters},
			Rule: "a message received as often as the queue's own redrive allows is moved to its dead-letter queue, whole",
			Run:  nativeRedrive,
		},
		{
			Name: "depth", Needs: []need{countsDepth, exactDepth},
			Rule: "Depth counts visible, held and delayed messages apart",
			Run:  depth,
		},
	}
}
