package sqsfake_test

import (
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// fifo is a send to a FIFO queue; an empty id is left out.
func fifo(q *string, group, dedup, body string) *sqs.SendMessageInput {
	in := &sqs.SendMessageInput{QueueUrl: q, MessageBody: &body}
	if group != "" {
		in.MessageGroupId = &group
	}
	if dedup != "" {
		in.MessageDeduplicationId = &dedup
	}
	return in
}

// receiveN gets up to n.
func (r *rig) receiveN(q *string, n int32) []types.Message {
	r.Helper()
	return r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, MaxNumberOfMessages: n})
}

var fifoBehaviours = []behaviour{
	{
		name: "FIFO: a message wants a group", ref: "snapshot test_posting_to_fifo_requires_deduplicationid_group_id",
		run: func(r *rig) {
			_, err := r.api.SendMessage(r.Context(), fifo(r.queue("q.fifo"), "", "d", "a"))
			r.wantCode(err, codeMissing)
		},
	},
	{
		name: "FIFO: a message wants a deduplication id", ref: "snapshot test_posting_to_fifo_requires_deduplicationid_group_id",
		run: func(r *rig) {
			_, err := r.api.SendMessage(r.Context(), fifo(r.queue("q.fifo"), "g", "", "a"))
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "FIFO: a batch without a group is refused whole", ref: "snapshot test_send_batch_missing_message_group_id_for_fifo_queue",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			good, bad := entryOf("0", "a"), entryOf("1", "b")
			good.MessageGroupId, good.MessageDeduplicationId, bad.MessageDeduplicationId = new("g"), new("d"), new("e")
			_, err := r.sendBatch(q, good, bad)
			r.wantCode(err, codeParameter)
			r.wantCounts(q, 0, 0, 0)
		},
	},
	{
		name: "FIFO: a batch without a deduplication id is refused whole", ref: "snapshot test_send_batch_missing_deduplication_id_for_fifo_queue",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			good, bad := entryOf("0", "a"), entryOf("1", "b")
			good.MessageGroupId, good.MessageDeduplicationId, bad.MessageGroupId = new("g"), new("d"), new("g")
			_, err := r.sendBatch(q, good, bad)
			r.wantCode(err, codeParameter)
			r.wantCounts(q, 0, 0, 0)
		},
	},
	{
		name: "FIFO: a duplicate is answered like the first and delivered once", ref: "doc SendMessage MessageDeduplicationId",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			first := r.sendWith(fifo(q, "g", "d", "a"))
			second := r.sendWith(fifo(q, "g", "d", "a"))
			if *first.MessageId != *second.MessageId || aws.ToString(first.SequenceNumber) != aws.ToString(second.SequenceNumber) {
				r.Fatalf("answered %v, then %v", first, second)
			}
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "FIFO: a duplicate of a deleted message is one", ref: "snapshot test_fifo_deduplication_arrives_once_after_delete",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendWith(fifo(q, "g", "d", "a"))
			r.wantCode(r.remove(q, r.receiveOne(q)), "")
			r.sendWith(fifo(q, "g", "d", "a"))
			r.wantBodies(r.receive(q))
		},
	},
	{
		name: "FIFO: a duplicate in another group is one", ref: "snapshot test_fifo_deduplication_not_on_message_group_id",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendWith(fifo(q, "g1", "d", "a"))
			r.sendWith(fifo(q, "g2", "d", "a"))
			r.wantCounts(q, 1, 0, 0)
		},
	},
	{
		name: "FIFO: duplicates by group, where the queue says so", ref: "doc SetQueueAttributes DeduplicationScope",
		run: func(r *rig) {
			q := r.queue("q.fifo", "DeduplicationScope", "messageGroup")
			r.sendWith(fifo(q, "g1", "d", "a"))
			r.sendWith(fifo(q, "g2", "d", "a"))
			r.sendWith(fifo(q, "g2", "d", "a"))
			r.wantCounts(q, 2, 0, 0)
		},
	},
	{
		name: "FIFO: after five minutes there is no duplicate", ref: "doc SendMessage: 5-minute deduplication interval", ours: true,
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendWith(fifo(q, "g", "d", "a"))
			after(5*time.Minute - time.Millisecond)
			r.sendWith(fifo(q, "g", "d", "b"))
			r.wantCounts(q, 1, 0, 0)
			after(time.Millisecond)
			r.sendWith(fifo(q, "g", "d", "c"))
			r.wantCounts(q, 2, 0, 0)
		},
	},
	{
		name: "FIFO: the content tells duplicates, attributes do not", ref: "doc SetQueueAttributes ContentBasedDeduplication",
		run: func(r *rig) {
			q := r.queue("q.fifo", "ContentBasedDeduplication", "true")
			r.sendWith(fifo(q, "g", "", "a"))
			again := fifo(q, "g", "", "a")
			again.MessageAttributes = kenobi()
			r.sendWith(again)
			r.sendWith(fifo(q, "g", "", "b"))
			r.sendWith(fifo(q, "g", "own", "a")) // an id of its own overrides the content's
			r.wantCounts(q, 3, 0, 0)
			m := r.receive(q)[0]
			if m.Attributes["MessageDeduplicationId"] != "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" {
				r.Fatalf("the id is %s", m.Attributes["MessageDeduplicationId"])
			}
		},
	},
	{
		name: "FIFO: a group comes in order", ref: "doc ReceiveMessage",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendTo(q, "g", "1", "2", "3", "4", "5")
			r.wantBodies(r.receiveN(q, 3), "1", "2", "3")
		},
	},
	{
		name: "FIFO: a receive takes group by group", ref: "snapshot test_fifo_receive_message_group_id_ordering",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendTo(q, "g1", "g1-m1")
			r.sendTo(q, "g2", "g2-m1")
			r.sendTo(q, "g1", "g1-m2", "g1-m3")
			r.wantBodies(r.receiveN(q, 10), "g1-m1", "g1-m2", "g1-m3", "g2-m1")
		},
	},
	{
		name: "FIFO: groups take turns after a timeout of 0", ref: "snapshot test_fifo_receive_message_with_zero_visibility_timeout; not promised",
		ours: true,
		run: func(r *rig) {
			q := r.queue("q.fifo", "VisibilityTimeout", "0")
			r.sendTo(q, "g1", "g1-m1")
			r.sendTo(q, "g2", "g2-m1", "g2-m2")
			r.sendTo(q, "g3", "g3-m1")
			r.sendTo(q, "g1", "g1-m2")
			r.wantBodies(r.receiveN(q, 3), "g1-m1", "g1-m2", "g2-m1")
			r.wantBodies(r.receiveN(q, 10), "g3-m1", "g1-m1", "g1-m2", "g2-m1", "g2-m2")
		},
	},
	{
		name: "FIFO: a group comes in order again after its timeout", ref: "snapshot test_fifo_messages_in_order_after_timeout",
		run: func(r *rig) {
			q := r.queue("q.fifo", "VisibilityTimeout", "1")
			r.sendTo(q, "g", "0", "1", "2")
			r.wantBodies(r.receive(q), "0", "1", "2")
			after(2500 * time.Millisecond)
			r.wantBodies(r.receive(q), "0", "1", "2")
		},
	},
	{
		name: "FIFO: a group is held until all in flight are done", ref: "snapshot test_fifo_message_group_visibility_after_partial_delete",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendTo(q, "g1", "g1-m1", "g1-m2", "g1-m3")
			r.sendTo(q, "g2", "g2-m1", "g2-m2")
			got := r.receiveN(q, 2)
			r.wantBodies(got, "g1-m1", "g1-m2")
			r.wantCode(r.remove(q, got[0]), "")
			r.wantBodies(r.receiveN(q, 10), "g2-m1", "g2-m2")
			r.wantCode(r.remove(q, got[1]), "")
			r.wantBodies(r.receiveN(q, 10), "g1-m3")
		},
	},
	{
		name: "FIFO: a message in flight holds its group, and no other", ref: "doc ReceiveMessage MessageGroupId",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendTo(q, "g", "1", "2")
			r.sendTo(q, "h", "3")
			first := r.receiveN(q, 1)
			r.wantBodies(first, "1")
			r.wantBodies(r.receiveN(q, 10), "3")
			r.wantBodies(r.receiveN(q, 10))
			r.wantCode(r.remove(q, first[0]), "")
			r.wantBodies(r.receiveN(q, 10), "2")
		},
	},
	{
		name: "FIFO: a message shown again comes before the later ones", ref: "snapshot test_fifo_message_group_visibility_after_terminate_visibility_timeout",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendTo(q, "g", "1", "2")
			r.sendTo(q, "h", "3")
			got := r.receiveN(q, 2)
			r.wantBodies(got, "1", "2")
			r.wantCode(r.change(q, got[0], 0), "")
			again := r.receiveN(q, 10) // 2 is in flight: that does not hold back 1
			slices.SortFunc(again, func(a, b types.Message) int { return strings.Compare(*a.Body, *b.Body) })
			r.wantBodies(again, "1", "3")
		},
	},
	{
		name: "FIFO: a message in flight holds back those behind it", ref: "doc ReceiveMessage MessageGroupId",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendTo(q, "g", "1", "2", "3")
			got := r.receiveN(q, 2)
			r.wantBodies(got, "1", "2")
			r.wantCode(r.change(q, got[0], 0), "")
			r.wantBodies(r.receiveN(q, 10), "1")
		},
	},
	{
		name: "FIFO: later messages shown again wait for the first", ref: "doc ReceiveMessage MessageGroupId",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendTo(q, "g", "1", "2", "3")
			got := r.receiveN(q, 2)
			r.wantBodies(got, "1", "2")
			r.wantCode(r.change(q, got[1], 0), "")
			r.wantBodies(r.receiveN(q, 10))
			r.wantCode(r.change(q, got[0], 0), "")
			r.wantBodies(r.receiveN(q, 10), "1", "2", "3")
		},
	},
	{
		name: "FIFO: deleting the first lets the second come", ref: "doc ReceiveMessage MessageGroupId",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendTo(q, "g", "1", "2", "3")
			got := r.receiveN(q, 2)
			r.wantCode(r.change(q, got[1], 0), "")
			r.wantCode(r.remove(q, got[0]), "")
			r.wantBodies(r.receiveN(q, 1), "2")
		},
	},
	{
		name: "FIFO: deleting after the timeout fails", ref: "snapshot test_fifo_delete_message_with_expired_receipt_handle",
		run: func(r *rig) {
			q := r.queue("q.fifo", "VisibilityTimeout", "1")
			r.sendTo(q, "g", "a")
			m := r.receiveOne(q)
			after(2500 * time.Millisecond)
			err := r.remove(q, m)
			r.wantCode(err, codeParameter)
			r.wantText(err, "The receipt handle has expired")
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "FIFO: deleting after the timeout fails in a batch by another code", ref: "seen smaskalik/sqsmover issue 54",
		run: func(r *rig) {
			q := r.queue("q.fifo", "VisibilityTimeout", "1")
			r.sendTo(q, "g", "a")
			m := r.receiveOne(q)
			after(2500 * time.Millisecond)
			r.wantCode(r.removeInBatch(q, m), codeHandle)
		},
	},
	{
		name: "FIFO: deleting with the handle of an earlier receive fails", ref: "doc DeleteMessage",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendTo(q, "g", "a")
			first := r.receiveOne(q)
			r.wantCode(r.change(q, first, 0), "")
			second := r.receiveOne(q)
			r.wantCode(r.remove(q, first), codeParameter)
			r.wantCode(r.remove(q, second), "")
			r.wantCounts(q, 0, 0, 0)
		},
	},
	{
		name: "FIFO: extending after the timeout hides nothing", ref: "doc ChangeMessageVisibility: might result in an error", ours: true,
		run: func(r *rig) {
			q := r.queue("q.fifo", "VisibilityTimeout", "1")
			r.sendTo(q, "g", "a")
			m := r.receiveOne(q)
			after(2 * time.Second)
			r.wantCode(r.change(q, m, 60), "")
			r.wantBodies(r.receive(q), "a")
			r.wantCode(r.change(q, m, 60), codeParameter)
			r.wantCode(r.changeInBatch(q, m, 60), codeHandle)
		},
	},
	{
		name: "FIFO: no delay for one message", ref: "snapshot test_fifo_queue_send_message_with_delay_seconds_fails",
		run: func(r *rig) {
			in := fifo(r.queue("q.fifo"), "g", "d", "a")
			in.DelaySeconds = 2
			_, err := r.api.SendMessage(r.Context(), in)
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "FIFO: the queue's delay holds back the group, and changes for those that wait", ref: "doc CreateQueue: retroactive on FIFO queues", ours: true,
		run: func(r *rig) {
			q := r.queue("q.fifo", "DelaySeconds", "60")
			r.sendTo(q, "g", "1")
			after(30 * time.Second)
			r.sendTo(q, "g", "2")
			r.wantCounts(q, 0, 0, 2)
			r.wantCode(r.setAttributes(q, "DelaySeconds", "20"), "")
			r.wantCounts(q, 1, 0, 1)
			r.wantBodies(r.receive(q), "1")
			after(20 * time.Second)
			r.wantCounts(q, 1, 1, 0)
		},
	},
	{
		name: "FIFO: a receive attempt id brings the same again", ref: "doc ReceiveMessage ReceiveRequestAttemptId",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendTo(q, "g", "1", "2", "3")
			in := &sqs.ReceiveMessageInput{QueueUrl: q, MaxNumberOfMessages: 2, ReceiveRequestAttemptId: new("attempt-1")}
			first, second := r.receiveWith(in), r.receiveWith(in)
			r.wantBodies(first, "1", "2")
			r.wantBodies(second, "1", "2")
			if *first[0].ReceiptHandle != *second[0].ReceiptHandle {
				r.Fatal("another receipt handle")
			}
			in.ReceiveRequestAttemptId = new("attempt-2")
			r.wantBodies(r.receiveWith(in))
			r.wantCode(r.remove(q, second[0]), "")
		},
	},
	{
		name: "FIFO: a receive attempt id starts the timeout anew, for five minutes", ref: "doc ReceiveMessage ReceiveRequestAttemptId", ours: true,
		run: func(r *rig) {
			q := r.queue("q.fifo", "VisibilityTimeout", "200")
			r.sendTo(q, "g", "1")
			in := &sqs.ReceiveMessageInput{QueueUrl: q, ReceiveRequestAttemptId: new("attempt-1")}
			first := r.receiveWith(in)
			after(150 * time.Second)
			r.wantBodies(r.receiveWith(in), "1")
			after(150 * time.Second) // 300 s after the first, 150 s after the second
			r.wantBodies(r.receive(q))
			r.wantBodies(r.receiveWith(in)) // the id is forgotten: a new receive, and nothing is visible
			r.wantCode(r.remove(q, first[0]), "")
		},
	},
	{
		name: "FIFO: a receive attempt id ends when a message is touched", ref: "doc ReceiveMessage: if none of the messages have been modified", ours: true,
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendTo(q, "g", "1", "2")
			in := &sqs.ReceiveMessageInput{QueueUrl: q, MaxNumberOfMessages: 2, ReceiveRequestAttemptId: new("attempt-1")}
			first := r.receiveWith(in)
			r.wantCode(r.change(q, first[1], 100), "")
			r.wantBodies(r.receiveWith(in))
			r.wantCode(r.remove(q, first[0]), "")
			r.wantBodies(r.receiveWith(in))
		},
	},
	{
		name: "FIFO: a receive attempt id brings nothing that another has received", ref: "doc ReceiveMessage ReceiveRequestAttemptId", ours: true,
		run: func(r *rig) {
			q := r.queue("q.fifo", "VisibilityTimeout", "10")
			r.sendTo(q, "g", "1")
			in := &sqs.ReceiveMessageInput{QueueUrl: q, ReceiveRequestAttemptId: new("attempt-1")}
			r.wantBodies(r.receiveWith(in), "1")
			after(10 * time.Second)
			r.wantBodies(r.receive(q), "1")
			r.wantBodies(r.receiveWith(in))
		},
	},
	{
		name: "a standard queue takes no receive attempt id", ref: "doc ReceiveMessage: applies only to FIFO queues", ours: true,
		run: func(r *rig) {
			_, err := r.api.ReceiveMessage(r.Context(), &sqs.ReceiveMessageInput{QueueUrl: r.queue("q"), ReceiveRequestAttemptId: new("x")})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "FIFO: sequence numbers rise", ref: "doc SendMessage SequenceNumber: 128 bits",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			a, b := r.sendWith(fifo(q, "g", "1", "a")), r.sendWith(fifo(q, "g", "2", "b"))
			x, y := aws.ToString(a.SequenceNumber), aws.ToString(b.SequenceNumber)
			if len(x) != 20 || len(y) != 20 || x >= y {
				r.Fatalf("%s, then %s", x, y)
			}
			if got := r.receiveN(q, 1)[0].Attributes["SequenceNumber"]; got != x {
				r.Fatalf("sent as %s, received as %s", x, got)
			}
		},
	},
	{
		name: "FIFO: a message tells its group and deduplication id", ref: "snapshot test_fifo_message_attributes",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendWith(fifo(q, "group-1", "dedup-1", "message-body-1"))
			m := r.receiveOne(q)
			if m.Attributes["MessageGroupId"] != "group-1" || m.Attributes["MessageDeduplicationId"] != "dedup-1" || len(m.Attributes) != 7 {
				r.Fatalf("attributes %v", m.Attributes)
			}
		},
	},
	{
		name: "FIFO: ids have their alphabet and length", ref: "doc SendMessage MessageGroupId",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			for _, in := range []*sqs.SendMessageInput{fifo(q, "a b", "d", "a"), fifo(q, "g", "ä", "a"), fifo(q, "g", strings.Repeat("x", 129), "a")} {
				_, err := r.api.SendMessage(r.Context(), in)
				r.wantCode(err, codeParameter)
			}
			r.sendWith(fifo(q, strings.Repeat("g", 128), strings.Repeat("d", 128), "a"))
		},
	},
	{
		name: "FIFO: a purge empties every group and forgets the receive attempts", ref: "doc PurgeQueue", ours: true,
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendTo(q, "g", "1", "2")
			r.sendTo(q, "h", "1")
			in := &sqs.ReceiveMessageInput{QueueUrl: q, ReceiveRequestAttemptId: new("attempt-1")}
			r.wantBodies(r.receiveWith(in), "1")
			_, err := r.api.PurgeQueue(r.Context(), &sqs.PurgeQueueInput{QueueUrl: q})
			r.wantCode(err, "")
			r.wantBodies(r.receive(q))
			r.wantBodies(r.receiveWith(in))
			r.sendTo(q, "g", "1", "3")
			r.wantCounts(q, 2, 0, 0)
			r.wantBodies(r.receive(q), "1", "3")
		},
	},
}
