package sqsfake_test

import (
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/sqsfake"
)

var (
	staleWork    = &sqsfake.Options{StaleHandles: sqsfake.StaleWork}
	staleIgnored = &sqsfake.Options{StaleHandles: sqsfake.StaleIgnored}
)

// twice receives a message a second time, by somebody else, and keeps both handles.
func (r *rig) twice(q *string) (first, second types.Message) {
	r.Helper()
	r.send(q, "a")
	first = r.receiveOne(q)
	r.wantCode(r.change(q, first, 0), "")
	return first, r.receiveOne(q)
}

// staleBehaviours are what becomes of the receipt handle of an earlier receive. AWS promises
// neither.
var staleBehaviours = []behaviour{
	{
		name:    "the handle of an earlier receive may show what another holds",
		ref:     "snapshot test_terminate_visibility_timeout_after_receive",
		options: staleWork,
		run: func(r *rig) {
			q := r.queue("q")
			first, _ := r.twice(q)
			r.wantCode(r.change(q, first, 0), "")
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name:    "the handle of an earlier receive may hide what another holds",
		ref:     "seen moto #4655: it is possible to change message visibility; verified against AWS",
		options: staleWork,
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "1")
			first, _ := r.twice(q)
			r.wantCode(r.changeInBatch(q, first, 60), "")
			after(2500 * time.Millisecond)
			r.wantBodies(r.receive(q))
			if r.srv != nil { // the 12 hours are counted from the newest receive
				r.wantCode(r.change(q, first, 43_200), codeParameter)
			}
			r.wantCode(r.change(q, first, 0), "")
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name:    "the handle of an earlier receive may delete what another holds",
		ref:     "seen moto #4655: it is possible to delete a message; verified against AWS",
		options: staleWork,
		run: func(r *rig) {
			q, in := r.queue("q"), r.queue("in")
			first, second := r.twice(q)
			r.wantCode(r.remove(q, first), "")
			r.wantCounts(q, 0, 0, 0)
			r.wantCode(r.remove(q, second), "")
			r.wantCode(r.change(q, second, 1), codeParameter)
			first, _ = r.twice(in)
			r.wantCode(r.removeInBatch(in, first), "")
			r.wantCounts(in, 0, 0, 0)
		},
	},
	{
		name: "the handle of an earlier receive hides nothing that nobody holds", ref: "as its own late extension",
		options: staleWork, ours: true,
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "1")
			first, _ := r.twice(q)
			after(time.Second)
			r.wantCode(r.change(q, first, 60), "")
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "the handle of an earlier receive may change nothing", ref: "doc DeleteMessage: the most recent handle",
		options: staleIgnored, ours: true,
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "10")
			first, second := r.twice(q)
			r.wantCode(r.change(q, first, 0), "")
			r.wantBodies(r.receive(q))
			r.wantCode(r.change(q, first, 600), "")
			after(11 * time.Second)
			r.wantBodies(r.receive(q), "a")
			r.wantCode(r.remove(q, second), "") // it is an earlier one now, too
			r.wantCounts(q, 0, 1, 0)
		},
	},
	{
		name: "the handle of an earlier receive may delete nothing", ref: "doc DeleteMessage: might not be deleted",
		options: staleIgnored, ours: true,
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "1")
			first, _ := r.twice(q)
			r.wantCode(r.remove(q, first), "")
			r.wantCode(r.removeInBatch(q, first), "")
			after(2 * time.Second)
			r.wantBodies(r.receive(q), "a")
		},
	},
}

// recordedBehaviours are those of which we know from others' recordings of AWS alone.
var recordedBehaviours = []behaviour{
	{
		name: "true and false are taken in any case", ref: "snapshot test_fifo_set_content_based_deduplication_strategy, which says True",
		run: func(r *rig) {
			q := r.queue("q.fifo", "FifoQueue", "True", "ContentBasedDeduplication", "TRUE")
			for _, name := range []string{"FifoQueue", "ContentBasedDeduplication"} {
				if got := r.attribute(q, name); got != "true" {
					r.Fatalf("%s is %q", name, got)
				}
			}
			if again := r.queue("q.fifo", "ContentBasedDeduplication", "true"); *again != *q {
				r.Fatalf("another queue: %s", *again)
			}
			r.wantCode(r.setAttributes(q, "ContentBasedDeduplication", "False"), "")
			if got := r.attribute(q, "ContentBasedDeduplication"); got != "false" {
				r.Fatalf("it is %q", got)
			}
			_, err := r.create("other.fifo", "ContentBasedDeduplication", "yes")
			if code := codeOf(err); code != codeAttrValue && code != codeParameter { // AWS documents no code
				r.Fatalf("yes: %v", err)
			}
		},
	},
	{
		name: "FIFO: a purge forgets the deduplication ids", ref: "snapshot test_purge_queue_clears_fifo_deduplication_cache",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendWith(fifo(q, "g", "d", "1"))
			_, err := r.api.PurgeQueue(r.Context(), &sqs.PurgeQueueInput{QueueUrl: q})
			r.wantCode(err, "")
			r.sendWith(fifo(q, "g", "d", "2"))
			r.wantBodies(r.receive(q), "2")
		},
	},
	{
		name: "FIFO: a changed deduplication scope does not hold at once", ref: "snapshot of 2025-08-19: not within seconds",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			r.sendWith(fifo(q, "g1", "d", "a"))
			r.wantCode(r.setAttributes(q, "DeduplicationScope", "messageGroup"), "")
			r.sendWith(fifo(q, "g2", "d", "a"))
			r.wantCounts(q, 1, 0, 0)
			if r.srv == nil {
				return
			}
			after(time.Minute) // the most that AWS documents for a change
			r.sendWith(fifo(q, "g2", "d", "a"))
			r.wantCounts(q, 2, 0, 0)
		},
	},
	{
		name: "a queue's name stands for its URL", ref: "snapshot: two of LocalStack's tests name the queue alone",
		run: func(r *rig) {
			q := r.queue("q")
			name := new((*q)[strings.LastIndexByte(*q, '/')+1:])
			r.send(name, "a")
			r.wantCode(r.remove(name, r.receiveOne(name)), "")
			r.wantCode(r.trySend(new(*name+"x"), "a"), codeNoQueue)
		},
	},
	{
		name: "an attribute's text takes the characters of XML only", ref: "snapshot: InvalidParameterValue, and not InvalidMessageContents",
		run: func(r *rig) {
			q := r.queue("q")
			v := types.MessageAttributeValue{DataType: new("String"), StringValue: new("a\x01")}
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{
				QueueUrl: q, MessageBody: new("a"), MessageAttributes: map[string]types.MessageAttributeValue{"n": v},
			})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "names of attributes may have letters with accents", ref: `snapshot: "attr.1øßä"`,
		run: func(r *rig) {
			const name = "attr.1øßä"
			q := r.queue("q")
			v := types.MessageAttributeValue{DataType: new("String"), StringValue: new("v")}
			r.sendWith(&sqs.SendMessageInput{QueueUrl: q, MessageBody: new("a"), MessageAttributes: map[string]types.MessageAttributeValue{name: v}})
			if m := r.receiveOne(q); *m.MessageAttributes[name].StringValue != "v" {
				r.Fatalf("attributes %v", m.MessageAttributes)
			}
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{
				QueueUrl: q, MessageBody: new("a"), MessageAttributes: map[string]types.MessageAttributeValue{"attr€": v},
			})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "a standard queue knows no ContentBasedDeduplication", ref: "snapshot: Unknown Attribute ContentBasedDeduplication.",
		run: func(r *rig) {
			_, err := r.create("q", "ContentBasedDeduplication", "true")
			r.wantCode(err, codeAttrName)
			r.wantText(err, "Unknown Attribute ContentBasedDeduplication.")
		},
	},
	{
		name: "the default period of a key is not told again", ref: "snapshot of SetQueueAttributes KmsDataKeyReusePeriodSeconds 300",
		run: func(r *rig) {
			q := r.queue("q")
			for value, want := range map[string]string{"300": "", "600": "600"} {
				r.wantCode(r.setAttributes(q, "KmsDataKeyReusePeriodSeconds", value), "")
				if got := r.attribute(q, "KmsDataKeyReusePeriodSeconds"); got != want {
					r.Fatalf("after %s it is %q", value, got)
				}
			}
		},
	},
	{
		name: "the texts of refused entries are not those of refused calls", ref: "snapshot, and gocloud.dev's recordings of 2026-03",
		run: func(r *rig) {
			q := r.queue("q", "MaximumMessageSize", "1024")
			large := strings.Repeat("x", 1025)
			r.wantText(r.trySend(q, large), "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.")
			out, err := r.sendBatch(q, entryOf("0", large))
			r.wantCode(err, "")
			r.wantText(entryError(out.Failed), "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes.")
			r.send(q, "a")
			m := r.receiveOne(q)
			r.wantCode(r.remove(q, m), "")
			r.wantText(r.change(q, m, 1), "is not available for visibility timeout change.")
			err = r.changeInBatch(q, m, 1)
			r.wantText(err, "is not available for visibility timeout change")
			if strings.HasSuffix(err.Error(), ".") {
				r.Fatalf("a full stop: %v", err)
			}
		},
	},
	{
		name: "the answers of a batch come in any order", ref: "gocloud.dev's recordings: 8 of 12 DeleteMessageBatch", ours: true,
		run: func(r *rig) {
			q := r.queue("q")
			orders := map[string]int{}
			for range 40 {
				r.wantCode(func() error {
					out, err := r.sendBatch(q, entryOf("0", "a"), entryOf("1", "b"), entryOf("2", "c"))
					if err == nil {
						var ids []string
						for _, e := range out.Successful {
							ids = append(ids, *e.Id)
						}
						orders["send "+strings.Join(ids, "")]++
					}
					return err
				}(), "")
				var in sqs.DeleteMessageBatchInput
				for i, m := range r.receive(q) {
					in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: new(string('0' + rune(i))), ReceiptHandle: m.ReceiptHandle})
				}
				in.QueueUrl = q
				out, err := r.api.DeleteMessageBatch(r.Context(), &in)
				r.wantCode(err, "")
				var ids []string
				for _, e := range out.Successful {
					ids = append(ids, *e.Id)
				}
				orders["delete "+strings.Join(ids, "")]++
				slices.Sort(ids)
				if len(ids) != 3 || ids[0] != "0" || ids[2] != "2" {
					r.Fatalf("answered %q", ids)
				}
			}
			if len(orders) < 8 { // of 12; 40 draws of 6 miss three of them about once in ten million
				r.Fatalf("the orders of 80 answers: %v", orders)
			}
		},
	},
}
