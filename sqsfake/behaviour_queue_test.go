package sqsfake_test

import (
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func (r *rig) deleteQueue(q *string) {
	r.Helper()
	if _, err := r.api.DeleteQueue(r.Context(), &sqs.DeleteQueueInput{QueueUrl: q}); err != nil {
		r.Fatal(err)
	}
}

var queueBehaviours = []behaviour{
	{
		name: "creating a queue again finds it", ref: "doc CreateQueue",
		run: func(r *rig) {
			q := r.queue("q", "DelaySeconds", "5")
			if again := r.queue("q", "DelaySeconds", "5"); *again != *q {
				r.Fatalf("%s and %s", *q, *again)
			}
		},
	},
	{
		name: "creating a queue with another attribute fails", ref: "snapshot test_create_queue_with_different_attributes_raises_exception",
		run: func(r *rig) {
			r.queue("q", "DelaySeconds", "5")
			_, err := r.create("q", "DelaySeconds", "6")
			r.wantCode(err, codeExists)
			r.wantText(err, "different value for attribute DelaySeconds")
		},
	},
	{
		name: "a queue's name has its alphabet and length", ref: "doc CreateQueue QueueName",
		run: func(r *rig) {
			for _, name := range []string{"a b", "a.b", "q.fif", strings.Repeat("x", 81)} {
				_, err := r.create(name)
				r.wantCode(err, codeParameter)
			}
			_, err := r.api.CreateQueue(r.Context(), &sqs.CreateQueueInput{
				QueueName: new(r.prefix + "q"), Attributes: map[string]string{"FifoQueue": "true"},
			})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "a name in .fifo wants the attribute", ref: "doc CreateQueue FifoQueue",
		run: func(r *rig) {
			_, err := r.api.CreateQueue(r.Context(), &sqs.CreateQueueInput{QueueName: new(r.prefix + "q.fifo")})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "attributes have their limits", ref: "doc SetQueueAttributes",
		run: func(r *rig) {
			q := r.queue("q")
			for _, a := range [][2]string{
				{"VisibilityTimeout", "43201"},
				{"VisibilityTimeout", "-1"},
				{"DelaySeconds", "901"},
				{"DelaySeconds", "x"},
				{"MaximumMessageSize", "1023"},
				{"MaximumMessageSize", "1048577"},
				{"MessageRetentionPeriod", "59"},
				{"MessageRetentionPeriod", "1209601"},
				{"ReceiveMessageWaitTimeSeconds", "21"},
			} {
				if err := r.setAttributes(q, a[0], a[1]); codeOf(err) != codeAttrValue {
					r.Fatalf("%s = %s: %v", a[0], a[1], err)
				}
			}
		},
	},
	{
		name: "an unknown attribute is refused", ref: "doc SetQueueAttributes InvalidAttributeName",
		run: func(r *rig) {
			q := r.queue("q")
			r.wantCode(r.setAttributes(q, "Colour", "blue"), codeAttrName)
			_, err := r.api.GetQueueAttributes(r.Context(), &sqs.GetQueueAttributesInput{QueueUrl: q, AttributeNames: []types.QueueAttributeName{"Colour"}})
			r.wantCode(err, codeAttrName)
		},
	},
	{
		name: "all attributes of a standard queue", ref: "snapshot test_create_and_update_queue_attributes",
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "20", "MessageRetentionPeriod", "604800", "ReceiveMessageWaitTimeSeconds", "10")
			r.wantCode(r.setAttributes(q, "DelaySeconds", "420", "MaximumMessageSize", "2048", "VisibilityTimeout", "69"), "")
			out, err := r.api.GetQueueAttributes(r.Context(), &sqs.GetQueueAttributesInput{QueueUrl: q, AttributeNames: []types.QueueAttributeName{"All"}})
			r.wantCode(err, "")
			for name, want := range map[string]string{
				"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesDelayed": "0", "ApproximateNumberOfMessagesNotVisible": "0",
				"DelaySeconds": "420", "MaximumMessageSize": "2048", "MessageRetentionPeriod": "604800",
				"ReceiveMessageWaitTimeSeconds": "10", "SqsManagedSseEnabled": "true", "VisibilityTimeout": "69",
			} {
				if got := out.Attributes[name]; got != want {
					r.Fatalf("%s is %q, want %q", name, got, want)
				}
			}
			if len(out.Attributes) != 12 || len(out.Attributes["CreatedTimestamp"]) < 9 || out.Attributes["LastModifiedTimestamp"] == "" ||
				!strings.HasSuffix(out.Attributes["QueueArn"], ":"+r.prefix+"q") {
				r.Fatalf("attributes %v", out.Attributes)
			}
		},
	},
	{
		name: "no names get no attributes", ref: "doc GetQueueAttributes AttributeNames",
		run: func(r *rig) {
			out, err := r.api.GetQueueAttributes(r.Context(), &sqs.GetQueueAttributesInput{QueueUrl: r.queue("q")})
			r.wantCode(err, "")
			if len(out.Attributes) != 0 {
				r.Fatalf("attributes %v", out.Attributes)
			}
		},
	},
	{
		name: "a changed visibility timeout holds for the next receive", ref: "doc SetQueueAttributes",
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "600")
			r.send(q, "a")
			r.wantCode(r.setAttributes(q, "VisibilityTimeout", "0"), "")
			r.wantBodies(r.receive(q), "a")
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "one kind of encryption at a time", ref: "snapshot test_sse_kms_and_sqs_are_mutually_exclusive",
		run: func(r *rig) {
			q := r.queue("q")
			r.wantCode(r.setAttributes(q, "KmsMasterKeyId", "testKeyId", "SqsManagedSseEnabled", "true"), codeAttrName)
			r.wantCode(r.setAttributes(q, "KmsMasterKeyId", "testKeyId"), "")
			if got := r.attribute(q, "SqsManagedSseEnabled"); got != "false" {
				r.Fatalf("SqsManagedSseEnabled is %s", got)
			}
		},
	},
	{
		name: "a queue that does not exist has its own error", ref: "snapshot test_non_existent_queue",
		run: func(r *rig) {
			q := r.queue("q")
			missing := *q + "-missing"
			_, err := r.api.SendMessage(r.Context(), &sqs.SendMessageInput{QueueUrl: &missing, MessageBody: new("a")})
			r.wantCode(err, codeNoQueue)
			if _, ok := errors.AsType[*types.QueueDoesNotExist](err); !ok {
				r.Fatalf("%T", err)
			}
			_, err = r.api.GetQueueUrl(r.Context(), &sqs.GetQueueUrlInput{QueueName: new("missing")})
			r.wantCode(err, codeNoQueue)
		},
	},
	{
		name: "a queue's URL is found by its name", ref: "doc GetQueueUrl",
		run: func(r *rig) {
			q := r.queue("q")
			out, err := r.api.GetQueueUrl(r.Context(), &sqs.GetQueueUrlInput{QueueName: new(r.prefix + "q")})
			r.wantCode(err, "")
			if *out.QueueUrl != *q {
				r.Fatalf("%s, created as %s", *out.QueueUrl, *q)
			}
		},
	},
	{
		name: "queues are listed by prefix, in pages", ref: "doc ListQueues",
		run: func(r *rig) {
			want := []string{*r.queue("p1"), *r.queue("p2"), *r.queue("p3")}
			r.queue("other")
			var got []string
			in := &sqs.ListQueuesInput{QueueNamePrefix: new(r.prefix + "p"), MaxResults: new(int32(2))}
			for {
				out, err := r.api.ListQueues(r.Context(), in)
				r.wantCode(err, "")
				if len(out.QueueUrls) > 2 {
					r.Fatalf("a page of %d", len(out.QueueUrls))
				}
				got = append(got, out.QueueUrls...)
				if in.NextToken = out.NextToken; in.NextToken == nil {
					break
				}
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				r.Fatalf("listed %q, want %q", got, want)
			}
		},
	},
	{
		name: "tags come and go", ref: "snapshot test_tag_untag_queue",
		run: func(r *rig) {
			q := r.queue("q")
			_, err := r.api.TagQueue(r.Context(), &sqs.TagQueueInput{QueueUrl: q, Tags: map[string]string{"tag1": "value1", "tag2": "value2", "tag3": ""}})
			r.wantCode(err, "")
			_, err = r.api.UntagQueue(r.Context(), &sqs.UntagQueueInput{QueueUrl: q, TagKeys: []string{"tag1", "tag3"}})
			r.wantCode(err, "")
			out, err := r.api.ListQueueTags(r.Context(), &sqs.ListQueueTagsInput{QueueUrl: q})
			r.wantCode(err, "")
			if len(out.Tags) != 1 || out.Tags["tag2"] != "value2" {
				r.Fatalf("tags %v", out.Tags)
			}
		},
	},
	{
		name: "a purge empties the queue", ref: "doc PurgeQueue",
		run: func(r *rig) {
			q := r.queue("q")
			r.send(q, "a")
			r.send(q, "b")
			r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q})
			_, err := r.api.PurgeQueue(r.Context(), &sqs.PurgeQueueInput{QueueUrl: q})
			r.wantCode(err, "")
			r.wantCounts(q, 0, 0, 0)
			r.send(q, "c")
			r.wantBodies(r.receive(q), "c")
		},
	},
	{
		name: "a queue is purged once in 60 seconds", ref: "snapshot test_successive_purge_calls_fail",
		run: func(r *rig) {
			q := r.queue("q")
			purge := func() error {
				_, err := r.api.PurgeQueue(r.Context(), &sqs.PurgeQueueInput{QueueUrl: q})
				return err
			}
			r.wantCode(purge(), "")
			r.wantCode(purge(), "AWS.SimpleQueueService.PurgeQueueInProgress")
			if r.srv != nil {
				after(time.Minute)
				r.wantCode(purge(), "")
			}
		},
	},
	{
		name: "a deleted queue does not exist", ref: "doc DeleteQueue",
		run: func(r *rig) {
			q := r.queue("q")
			r.send(q, "a")
			r.deleteQueue(q)
			_, err := r.api.ReceiveMessage(r.Context(), &sqs.ReceiveMessageInput{QueueUrl: q})
			r.wantCode(err, codeNoQueue)
		},
	},
	{
		name: "a queue of a deleted one's name has to wait", ref: "doc DeleteQueue: you must wait at least 60 seconds",
		run: func(r *rig) {
			q := r.queue("q")
			r.send(q, "a")
			r.deleteQueue(q)
			_, err := r.create("q")
			r.wantCode(err, "AWS.SimpleQueueService.QueueDeletedRecently")
			if r.srv != nil {
				after(time.Minute)
				r.wantBodies(r.receive(r.queue("q")))
			}
		},
	},
	{
		name: "permissions make a policy", ref: "snapshot test_sqs_permission_lifecycle",
		run: func(r *rig) {
			q := r.queue("q")
			add := func(label string) error {
				_, err := r.api.AddPermission(r.Context(), &sqs.AddPermissionInput{
					QueueUrl: q, Label: &label, AWSAccountIds: []string{"668614515564"}, Actions: []string{"ReceiveMessage"},
				})
				return err
			}
			remove := func(label string) error {
				_, err := r.api.RemovePermission(r.Context(), &sqs.RemovePermissionInput{QueueUrl: q, Label: &label})
				return err
			}
			r.wantCode(add("cross"), "")
			r.wantCode(add("cross"), codeParameter)
			policy := r.attribute(q, "Policy")
			for _, part := range []string{`"cross"`, `"SQS:ReceiveMessage"`, `arn:aws:iam::668614515564:`, r.arn(q) + "/SQSDefaultPolicy"} {
				if !strings.Contains(policy, part) {
					r.Fatalf("the policy has no %s: %s", part, policy)
				}
			}
			r.wantCode(remove("cross"), "")
			r.wantCode(remove("cross"), codeParameter)
			if got := r.attribute(q, "Policy"); got != "" {
				r.Fatalf("the policy is %s", got)
			}
		},
	},
	{
		name: "a FIFO queue's own attributes are not a standard queue's", ref: "snapshot test_set_unsupported_attribute_fifo",
		run: func(r *rig) {
			q, f := r.queue("q"), r.queue("f.fifo")
			r.wantCode(r.setAttributes(q, "FifoQueue", "true"), codeAttrName)
			r.wantCode(r.setAttributes(f, "FifoQueue", "true"), "")
			r.wantCode(r.setAttributes(f, "FifoQueue", "false"), codeAttrValue)
		},
	},
	{
		name: "all attributes of a FIFO queue", ref: "snapshot test_fifo_set_content_based_deduplication_strategy",
		run: func(r *rig) {
			q := r.queue("q.fifo", "ContentBasedDeduplication", "true")
			r.wantCode(r.setAttributes(q, "ContentBasedDeduplication", "false"), "")
			for name, want := range map[string]string{
				"ContentBasedDeduplication": "false", "DeduplicationScope": "queue", "FifoQueue": "true",
				"FifoThroughputLimit": "perQueue", "MessageRetentionPeriod": "345600", "VisibilityTimeout": "30",
			} {
				if got := r.attribute(q, name); got != want {
					r.Fatalf("%s is %q, want %q", name, got, want)
				}
			}
		},
	},
	{
		name: "high throughput wants both of its attributes", ref: "doc SetQueueAttributes FifoThroughputLimit",
		run: func(r *rig) {
			q := r.queue("q.fifo")
			err := r.setAttributes(q, "FifoThroughputLimit", "perMessageGroupId")
			if code := codeOf(err); code != codeAttrValue && code != codeParameter { // AWS documents no code
				r.Fatalf("alone: %v", err)
			}
			r.wantCode(r.setAttributes(q, "FifoThroughputLimit", "perMessageGroupId", "DeduplicationScope", "messageGroup"), "")
			if got := r.attribute(q, "FifoThroughputLimit"); got != "perMessageGroupId" {
				r.Fatalf("it is %s", got)
			}
		},
	},
}
