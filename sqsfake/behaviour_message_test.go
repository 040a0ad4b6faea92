package sqsfake_test

import (
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func text(v string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: new("String"), StringValue: &v}
}

// kenobi are the attributes whose checksums AWS was asked for.
func kenobi() map[string]types.MessageAttributeValue {
	return map[string]types.MessageAttributeValue{"General": text("Kenobi"), "Hello": text("There"), "Help.Me": text("Me")}
}

var messageBehaviours = []behaviour{
	{
		name: "a body comes back as it was, with its checksum", ref: "doc SendMessage",
		run: func(r *rig) {
			q := r.queue("q")
			for _, body := range []string{
				"a", " ", "\t\r\n", `"quotes" \ and {braces}`, "<&>", "ä€𝄞", "\uE000\uFFFD\U00010000\U0010FFFF", "\u007f\u0085\u2028",
				strings.Repeat("x", 100_000),
			} {
				r.send(q, body) // the SDK checks the checksums
				m := r.receiveOne(q)
				if *m.Body != body {
					r.Fatalf("sent %.40q, received %.40q", body, *m.Body)
				}
				r.wantCode(r.remove(q, m), "")
			}
		},
	},
	{
		name: "characters that XML cannot hold are refused", ref: "doc SendMessage InvalidMessageContents",
		run: func(r *rig) {
			q := r.queue("q")
			for _, bad := range []string{"a\x00", "\x01", "a\x1fb", "\ufffe", "\uffff"} {
				_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{QueueUrl: q, MessageBody: &bad})
				r.wantCode(err, "InvalidMessageContents")
			}
		},
	},
	{
		name: "an empty body is refused", ref: "doc SendMessage MessageBody: the minimum size is one character",
		run: func(r *rig) {
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{QueueUrl: r.queue("q"), MessageBody: new("")})
			r.wantCode(err, codeMissing)
		},
	},
	{
		name: "1 MiB is the largest message, attributes included", ref: "doc SendMessage, CreateQueue MaximumMessageSize",
		run: func(r *rig) {
			q := r.queue("q")
			large := strings.Repeat("x", 1<<20-len("nString"+"v"))
			attributes := map[string]types.MessageAttributeValue{"n": text("v")}
			r.sendWith(&sqs.SendMessageInput{QueueUrl: q, MessageBody: &large, MessageAttributes: attributes})
			larger := large + "x"
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{QueueUrl: q, MessageBody: &larger, MessageAttributes: attributes})
			r.wantCode(err, codeParameter)
			r.wantCounts(q, 1, 0, 0)
		},
	},
	{
		name: "a queue may take smaller messages only", ref: "snapshot test_send_message_with_updated_maximum_message_size",
		run: func(r *rig) {
			q := r.queue("q")
			r.wantCode(r.setAttributes(q, "MaximumMessageSize", "1024"), "")
			r.send(q, strings.Repeat("x", 1024))
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{QueueUrl: q, MessageBody: new(strings.Repeat("x", 1025))})
			r.wantCode(err, codeParameter)
			r.wantText(err, "Message must be shorter than 1024 bytes")
		},
	},
	{
		name: "message attributes come back, with AWS's checksum", ref: "snapshot test_receive_message_message_attribute_names_filters",
		run: func(r *rig) {
			q := r.queue("q")
			out := r.sendWith(&sqs.SendMessageInput{QueueUrl: q, MessageBody: new("msg"), MessageAttributes: kenobi()})
			if got := aws.ToString(out.MD5OfMessageAttributes); got != "4c360f3fdafd970e05fae2f149d997f5" {
				r.Fatalf("checksum %s", got)
			}
			m := r.receiveOne(q)
			if len(m.MessageAttributes) != 3 || *m.MessageAttributes["Help.Me"].StringValue != "Me" ||
				aws.ToString(m.MD5OfMessageAttributes) != "4c360f3fdafd970e05fae2f149d997f5" {
				r.Fatalf("received %v", m.MessageAttributes)
			}
		},
	},
	{
		name: "a receive gets the attributes that it names", ref: "snapshot test_receive_message_message_attribute_names_filters",
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "0")
			r.sendWith(&sqs.SendMessageInput{QueueUrl: q, MessageBody: new("msg"), MessageAttributes: kenobi()})
			for _, c := range []struct {
				names []string
				n     int
				md5   string
			}{
				{[]string{}, 0, ""},
				{[]string{".*"}, 3, "4c360f3fdafd970e05fae2f149d997f5"},
				{[]string{"Hello", "General"}, 2, "fca026605781cb4126a1e9044df24232"},
				{[]string{"Hello", "Missing"}, 1, "a311262e065454b75da111d535b8dacd"},
				{[]string{"Hel.*"}, 2, "83fee93c1bcd8b9a5a923ffacdc636c7"},
				{[]string{"Missing"}, 0, ""},
			} {
				got := r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, MessageAttributeNames: c.names})
				if len(got) != 1 || len(got[0].MessageAttributes) != c.n || aws.ToString(got[0].MD5OfMessageAttributes) != c.md5 {
					r.Fatalf("asked for %q: %v", c.names, got)
				}
			}
		},
	},
	{
		name: "a binary attribute has AWS's checksum", ref: "snapshot test_send_message_with_binary_attributes",
		run: func(r *rig) {
			q := r.queue("q")
			value := []byte("traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01")
			r.sendWith(&sqs.SendMessageInput{QueueUrl: q, MessageBody: new("test"), MessageAttributes: map[string]types.MessageAttributeValue{
				"attr1": {DataType: new("Binary"), BinaryValue: value},
			}})
			m := r.receiveOne(q)
			if string(m.MessageAttributes["attr1"].BinaryValue) != string(value) ||
				aws.ToString(m.MD5OfMessageAttributes) != "8cbe4db156db8a94db8b801b7addb984" {
				r.Fatalf("received %v with %s", m.MessageAttributes, aws.ToString(m.MD5OfMessageAttributes))
			}
		},
	},
	{
		name: "a message has ten attributes at most", ref: "doc SendMessage: message attributes quota",
		run: func(r *rig) {
			q := r.queue("q")
			as := map[string]types.MessageAttributeValue{}
			for i := range 10 {
				as[string(rune('a'+i))] = text("v")
			}
			r.sendWith(&sqs.SendMessageInput{QueueUrl: q, MessageBody: new("a"), MessageAttributes: as})
			as["k"] = text("v")
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{QueueUrl: q, MessageBody: new("a"), MessageAttributes: as})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "an empty attribute is refused", ref: "snapshot test_send_message_with_empty_string_attribute",
		run: func(r *rig) {
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{
				QueueUrl: r.queue("q"), MessageBody: new("a"),
				MessageAttributes: map[string]types.MessageAttributeValue{"ErrorDetails": text("")},
			})
			r.wantCode(err, codeParameter)
			r.wantText(err, "'ErrorDetails' must contain a non-empty value of type 'String'")
		},
	},
	{
		name: "attribute names and types have their alphabet", ref: "doc SendMessage MessageAttributes",
		run: func(r *rig) {
			q := r.queue("q")
			send := func(name string, v types.MessageAttributeValue) error {
				_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{
					QueueUrl: q, MessageBody: new("a"), MessageAttributes: map[string]types.MessageAttributeValue{name: v},
				})
				return err
			}
			for _, name := range []string{"a b", "a:b", ".a", "a.", "AWS.x", "amazon.x", strings.Repeat("n", 257)} {
				if err := send(name, text("v")); codeOf(err) != codeParameter {
					r.Fatalf("the name %.20q: %v", name, err)
				}
			}
			r.wantCode(send("n", types.MessageAttributeValue{DataType: new("Float"), StringValue: new("1")}), codeParameter)
			r.wantCode(send("a-b_c.D9", types.MessageAttributeValue{DataType: new("Number.int"), StringValue: new("-1.5e3")}), "")
		},
	},
	{
		name: "an attribute's name has no two periods in a row", ref: "doc SendMessage MessageAttributes", ours: true,
		run: func(r *rig) {
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{
				QueueUrl: r.queue("q"), MessageBody: new("a"), MessageAttributes: map[string]types.MessageAttributeValue{"a..b": text("v")},
			})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "a number attribute is a number", ref: "doc SendMessage MessageAttributes Number", ours: true,
		run: func(r *rig) {
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{
				QueueUrl: r.queue("q"), MessageBody: new("a"), MessageAttributes: map[string]types.MessageAttributeValue{
					"n": {DataType: new("Number"), StringValue: new("one")},
				},
			})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "the trace header is a system attribute, and the only one", ref: "doc SendMessage MessageSystemAttributes",
		run: func(r *rig) {
			q := r.queue("q")
			header := types.MessageSystemAttributeValue{DataType: new("String"), StringValue: new("Root=1-5759e988-bd862e3fe1be46a994272793")}
			out := r.sendWith(&sqs.SendMessageInput{
				QueueUrl: q, MessageBody: new("a"),
				MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{"AWSTraceHeader": header},
			})
			if aws.ToString(out.MD5OfMessageSystemAttributes) == "" {
				r.Fatal("no checksum of the system attributes")
			}
			if got := r.receiveOne(q).Attributes["AWSTraceHeader"]; got != *header.StringValue {
				r.Fatalf("the header is %q", got)
			}
		},
	},
	{
		name: "another system attribute is refused", ref: "doc SendMessage MessageSystemAttributes",
		run: func(r *rig) {
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{
				QueueUrl: r.queue("q"), MessageBody: new("a"),
				MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
					"Other": {DataType: new("String"), StringValue: new("v")},
				},
			})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "a receive gets the system attributes that it names", ref: "snapshot test_receive_message_attribute_names_filters",
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "0")
			r.send(q, "a")
			for _, names := range [][]types.MessageSystemAttributeName{{}, {"SentTimestamp"}, {"SentTimestamp", "SenderId"}} {
				got := r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, MessageSystemAttributeNames: names})
				if len(got) != 1 || len(got[0].Attributes) != len(names) {
					r.Fatalf("asked for %q: %v", names, got)
				}
			}
		},
	},
	{
		name: "a delayed message is hidden and counted as such", ref: "doc SendMessage DelaySeconds",
		run: func(r *rig) {
			q := r.queue("q")
			r.sendWith(&sqs.SendMessageInput{QueueUrl: q, MessageBody: new("a"), DelaySeconds: 2})
			r.wantCounts(q, 0, 0, 1)
			r.wantBodies(r.receive(q))
			after(3500 * time.Millisecond)
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "a queue delays its messages", ref: "doc CreateQueue DelaySeconds",
		run: func(r *rig) {
			q := r.queue("q", "DelaySeconds", "2")
			r.send(q, "a")
			r.wantBodies(r.receive(q))
			after(3500 * time.Millisecond)
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "900 seconds is the longest delay", ref: "doc SendMessage DelaySeconds",
		run: func(r *rig) {
			q := r.queue("q")
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{QueueUrl: q, MessageBody: new("a"), DelaySeconds: 901})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "a standard queue takes a group, for fair queues", ref: "doc SendMessage MessageGroupId",
		run: func(r *rig) {
			q := r.queue("q")
			r.sendWith(&sqs.SendMessageInput{QueueUrl: q, MessageBody: new("a"), MessageGroupId: new("tenant-1")})
			if got := r.receiveOne(q).Attributes["MessageGroupId"]; got != "tenant-1" {
				r.Fatalf("the group is %q", got)
			}
		},
	},
	{
		name: "a standard queue's group orders nothing", ref: "doc SendMessage MessageGroupId",
		run: func(r *rig) {
			q := r.queue("q")
			for _, body := range []string{"a", "b"} {
				r.sendWith(&sqs.SendMessageInput{QueueUrl: q, MessageBody: &body, MessageGroupId: new("g")})
			}
			r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q})
			if got := r.receive(q); len(got) != 1 {
				r.Fatalf("received %q besides the one in flight", bodies(got))
			}
		},
	},
	{
		name: "a standard queue takes no deduplication id", ref: "doc SendMessage MessageDeduplicationId",
		run: func(r *rig) {
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{
				QueueUrl: r.queue("q"), MessageBody: new("a"), MessageDeduplicationId: new("d"),
			})
			r.wantCode(err, codeParameter)
		},
	},
}

func entryOf(id, body string) types.SendMessageBatchRequestEntry {
	return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body}
}

var batchBehaviours = []behaviour{
	{
		name: "a batch is answered by entry", ref: "doc SendMessageBatch",
		run: func(r *rig) {
			q := r.queue("q")
			out, err := r.sendBatch(q, entryOf("x", "a"), entryOf("y", "b\x00"), entryOf("z", "c"))
			r.wantCode(err, "")
			if len(out.Successful) != 2 || len(out.Failed) != 1 || *out.Failed[0].Id != "y" || !out.Failed[0].SenderFault {
				r.Fatalf("answered %v, %v", out.Successful, out.Failed)
			}
			r.wantCode(entryError(out.Failed), "InvalidMessageContents")
			r.wantCounts(q, 2, 0, 0)
		},
	},
	{
		name: "an empty batch is refused", ref: "doc SendMessageBatch EmptyBatchRequest",
		run: func(r *rig) {
			_, err := r.api.SendMessageBatch(r.Context(), &sqs.SendMessageBatchInput{
				QueueUrl: r.queue("q"), Entries: []types.SendMessageBatchRequestEntry{},
			})
			r.wantCode(err, "AWS.SimpleQueueService.EmptyBatchRequest")
		},
	},
	{
		name: "a batch has ten entries at most", ref: "snapshot test_too_many_entries_in_batch_request",
		run: func(r *rig) {
			q := r.queue("q")
			var entries []types.SendMessageBatchRequestEntry
			for i := range 11 {
				entries = append(entries, entryOf(string(rune('a'+i)), "x"))
			}
			_, err := r.sendBatch(q, entries...)
			r.wantCode(err, "AWS.SimpleQueueService.TooManyEntriesInBatchRequest")
			_, err = r.sendBatch(q, entries[:10]...)
			r.wantCode(err, "")
			r.wantCounts(q, 10, 0, 0)
		},
	},
	{
		name: "the ids of a batch are distinct", ref: "doc SendMessageBatch BatchEntryIdsNotDistinct",
		run: func(r *rig) {
			q := r.queue("q")
			_, err := r.sendBatch(q, entryOf("x", "a"), entryOf("x", "b"))
			r.wantCode(err, "AWS.SimpleQueueService.BatchEntryIdsNotDistinct")
			r.wantCounts(q, 0, 0, 0)
		},
	},
	{
		name: "the ids of a batch have their alphabet and length", ref: "snapshot test_delete_message_batch_invalid_msg_id",
		run: func(r *rig) {
			q := r.queue("q")
			_, err := r.sendBatch(q, entryOf(strings.Repeat("x", 80), "a"), entryOf("A-z_9", "b"))
			r.wantCode(err, "")
			for _, id := range []string{"invalid:id", strings.Repeat("x", 81), "a b"} {
				_, err := r.sendBatch(q, entryOf(id, "a"))
				r.wantCode(err, "AWS.SimpleQueueService.InvalidBatchEntryId")
			}
			m := r.receive(q)[0]
			_, err = r.api.DeleteMessageBatch(r.Context(), &sqs.DeleteMessageBatchInput{
				QueueUrl: q, Entries: []types.DeleteMessageBatchRequestEntry{{Id: new("invalid:id"), ReceiptHandle: m.ReceiptHandle}},
			})
			r.wantCode(err, "AWS.SimpleQueueService.InvalidBatchEntryId")
		},
	},
	{
		name: "1 MiB is the largest batch", ref: "snapshot test_send_message_batch_with_oversized_contents",
		run: func(r *rig) {
			q := r.queue("q")
			half := strings.Repeat("x", 1<<19)
			_, err := r.sendBatch(q, entryOf("0", half), entryOf("1", half+"x"))
			r.wantCode(err, "AWS.SimpleQueueService.BatchRequestTooLong")
			_, err = r.sendBatch(q, entryOf("0", half), entryOf("1", half))
			r.wantCode(err, "")
			r.wantCounts(q, 2, 0, 0)
		},
	},
	{
		name: "a batch larger than the queue's largest message goes", ref: "snapshot test_send_message_batch_with_oversized_contents_with_updated_maximum_message_size",
		run: func(r *rig) {
			q := r.queue("q", "MaximumMessageSize", "1024")
			out, err := r.sendBatch(q, entryOf("1", strings.Repeat("a", 1024)), entryOf("2", "a"))
			r.wantCode(err, "")
			if len(out.Successful) != 2 {
				r.Fatalf("failed: %v", out.Failed)
			}
		},
	},
	{
		name: "a message too large for the queue fails alone", ref: "doc SendMessageBatch: the result of each message", ours: true,
		run: func(r *rig) {
			q := r.queue("q", "MaximumMessageSize", "1024")
			out, err := r.sendBatch(q, entryOf("1", strings.Repeat("a", 1025)), entryOf("2", "a"))
			r.wantCode(err, "")
			r.wantCode(entryError(out.Failed), codeParameter)
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "a batch of deletes and extensions is answered by entry", ref: "doc DeleteMessageBatch",
		run: func(r *rig) {
			q := r.queue("q")
			r.send(q, "a")
			m := r.receiveOne(q)
			ext, err := r.api.ChangeMessageVisibilityBatch(r.Context(), &sqs.ChangeMessageVisibilityBatchInput{
				QueueUrl: q, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
					{Id: new("bad"), ReceiptHandle: new("junk"), VisibilityTimeout: 5},
					{Id: new("good"), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 500},
				},
			})
			r.wantCode(err, "")
			if len(ext.Failed) != 1 || *ext.Failed[0].Id != "bad" || len(ext.Successful) != 1 || *ext.Successful[0].Id != "good" {
				r.Fatalf("answered %v, %v", ext.Successful, ext.Failed)
			}
			del, err := r.api.DeleteMessageBatch(r.Context(), &sqs.DeleteMessageBatchInput{
				QueueUrl: q, Entries: []types.DeleteMessageBatchRequestEntry{
					{Id: new("bad"), ReceiptHandle: new("junk")}, {Id: new("good"), ReceiptHandle: m.ReceiptHandle},
				},
			})
			r.wantCode(err, "")
			if len(del.Failed) != 1 || *del.Failed[0].Id != "bad" || len(del.Successful) != 1 || *del.Successful[0].Id != "good" {
				r.Fatalf("answered %v, %v", del.Successful, del.Failed)
			}
			r.wantCounts(q, 0, 0, 0)
		},
	},
}
