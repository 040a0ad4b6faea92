package sqsfake_test

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

var visibilityBehaviours = []behaviour{
	{
		name: "a received message is hidden until its timeout ends", ref: "doc ReceiveMessage",
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "1")
			r.send(q, "a")
			r.wantBodies(r.receive(q), "a")
			r.wantCounts(q, 0, 1, 0)
			r.wantBodies(r.receive(q))
			after(2500 * time.Millisecond)
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "a receive has its own timeout", ref: "doc ReceiveMessage VisibilityTimeout",
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "600")
			r.send(q, "a")
			r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, VisibilityTimeout: 1})
			after(2500 * time.Millisecond)
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "an extension counts from the moment it is made", ref: "doc ChangeMessageVisibility",
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "2")
			r.send(q, "a")
			m := r.receiveOne(q)
			after(time.Second)
			r.wantCode(r.change(q, m, 3), "")
			after(1800 * time.Millisecond)
			r.wantBodies(r.receive(q))
			after(2700 * time.Millisecond)
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "an extension of 0 shows the message at once", ref: "doc ChangeMessageVisibility",
		run: func(r *rig) {
			q := r.queue("q")
			r.send(q, "a")
			r.wantCode(r.change(q, r.receiveOne(q), 0), "")
			r.wantBodies(r.receive(q), "a")
			r.wantCounts(q, 0, 1, 0)
		},
	},
	{
		name: "an extension after the timeout answers OK and hides nothing",
		ref:  "snapshot test_change_message_visibility_after_visibility_timeout_expiration",
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "1")
			r.send(q, "a")
			m := r.receiveOne(q)
			after(1100 * time.Millisecond)
			r.wantCode(r.change(q, m, 60), "")
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "an extension long after the timeout answers OK and hides nothing",
		ref:  "snapshot test_change_message_visibility_after_visibility_timeout_expiration",
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "1")
			r.send(q, "a")
			m := r.receiveOne(q)
			after(3 * time.Second)
			r.wantCode(r.changeInBatch(q, m, 60), "")
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "extending a deleted message fails", ref: "facts: measured with the Go SDK",
		run: func(r *rig) {
			q := r.queue("q")
			r.send(q, "a")
			m := r.receiveOne(q)
			r.wantCode(r.remove(q, m), "")
			r.wantCode(r.change(q, m, 10), codeParameter)
		},
	},
	{
		name: "extending a deleted message in a batch fails by another code", ref: "seen aws-dotnet-messaging: ReceiptHandleIsInvalid",
		run: func(r *rig) {
			q := r.queue("q")
			r.send(q, "a")
			m := r.receiveOne(q)
			r.wantCode(r.remove(q, m), "")
			r.wantCode(r.changeInBatch(q, m, 10), codeHandle)
		},
	},
	{
		name: "43,200 seconds is the longest timeout", ref: "doc ChangeMessageVisibility VisibilityTimeout",
		run: func(r *rig) {
			q := r.queue("q")
			r.send(q, "a")
			m := r.receiveOne(q)
			r.wantCode(r.change(q, m, 43_201), codeParameter)
			r.wantCode(r.change(q, m, -1), codeParameter)
			r.wantCode(r.changeInBatch(q, m, 43_201), codeParameter)
		},
	},
	{
		name: "43,200 seconds is the longest timeout of a receive", ref: "doc ReceiveMessage VisibilityTimeout",
		run: func(r *rig) {
			_, err := r.api.ReceiveMessage(r.Context(), &sqs.ReceiveMessageInput{QueueUrl: r.queue("q"), VisibilityTimeout: 43_201})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "12 hours in total: more is refused, not shortened", ref: "doc ChangeMessageVisibility: greater than the maximum time left",
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "3")
			r.send(q, "a")
			m := r.receiveOne(q)
			after(1100 * time.Millisecond)
			r.wantCode(r.change(q, m, 43_200), codeParameter)
			r.wantCode(r.changeInBatch(q, m, 43_200), codeParameter)
			after(4 * time.Second)
			r.wantBodies(r.receive(q), "a") // the refused ones changed nothing
		},
	},
	{
		name: "12 hours in total are counted from the receive", ref: "doc ChangeMessageVisibility", ours: true,
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "3600")
			r.send(q, "a")
			m := r.receiveOne(q)
			for range 11 {
				after(59 * time.Minute)
				r.wantCode(r.change(q, m, 3600), "")
			}
			left := int32((12*time.Hour - 11*59*time.Minute) / time.Second)
			r.wantCode(r.change(q, m, left+1), codeParameter)
			r.wantCode(r.change(q, m, left), "")
			after(time.Duration(left)*time.Second - time.Millisecond)
			r.wantBodies(r.receive(q))
			after(time.Millisecond)
			second := r.receiveOne(q)
			r.wantCode(r.change(q, second, 43_200), "")
			after(time.Second)
			r.wantCode(r.change(q, second, 43_200), codeParameter)
			r.wantCode(r.change(q, second, 43_199), "")
			after(43_199 * time.Second)
			r.wantBodies(r.receive(q), "a")
		},
	},
	{
		name: "deleting after the timeout works on a standard queue", ref: "facts: recorded against AWS",
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "1")
			r.send(q, "a")
			m := r.receiveOne(q)
			after(2500 * time.Millisecond)
			r.wantCode(r.remove(q, m), "")
			r.wantBodies(r.receive(q))
		},
	},
	{
		name: "deleting twice works", ref: "doc DeleteMessage",
		run: func(r *rig) {
			q := r.queue("q")
			r.send(q, "a")
			m := r.receiveOne(q)
			r.wantCode(r.remove(q, m), "")
			r.wantCode(r.remove(q, m), "")
			r.wantCode(r.removeInBatch(q, m), "")
			r.wantCounts(q, 0, 0, 0)
		},
	},
	{
		name: "deleting a message that was shown again works", ref: "doc DeleteMessage: even if another received it",
		run: func(r *rig) {
			q := r.queue("q")
			r.send(q, "a")
			m := r.receiveOne(q)
			r.wantCode(r.change(q, m, 0), "")
			r.wantCode(r.remove(q, m), "")
			r.wantBodies(r.receive(q))
		},
	},
	{
		name: "what is no receipt handle is refused", ref: "doc DeleteMessage ReceiptHandleIsInvalid",
		run: func(r *rig) {
			q := r.queue("q")
			junk := types.Message{ReceiptHandle: new("junk")}
			r.wantCode(r.remove(q, junk), codeHandle)
			r.wantCode(r.change(q, junk, 1), codeHandle)
			r.wantCode(r.removeInBatch(q, junk), codeHandle)
			r.wantCode(r.changeInBatch(q, junk, 1), codeHandle)
		},
	},
	{
		name: "a receipt handle of another queue is refused", ref: "doc DeleteMessage ReceiptHandleIsInvalid",
		run: func(r *rig) {
			q, other := r.queue("q"), r.queue("other")
			r.send(q, "a")
			m := r.receiveOne(q)
			r.wantCode(r.remove(other, m), codeHandle)
			r.wantCode(r.change(other, m, 1), codeHandle)
			r.wantCounts(q, 0, 1, 0)
		},
	},
	{
		name: "a receive counts, its first one is kept", ref: "doc ReceiveMessage ApproximateReceiveCount",
		run: func(r *rig) {
			q := r.queue("q")
			id := r.send(q, "a")
			first := r.receiveOne(q)
			after(100 * time.Millisecond)
			r.wantCode(r.change(q, first, 0), "")
			second := r.receiveOne(q)
			if *first.MessageId != id || *second.MessageId != id || *first.ReceiptHandle == *second.ReceiptHandle {
				r.Fatalf("the id must stay, the receipt handle change")
			}
			if first.Attributes["ApproximateReceiveCount"] != "1" || second.Attributes["ApproximateReceiveCount"] != "2" {
				r.Fatalf("receives: %v, then %v", first.Attributes, second.Attributes)
			}
			if f, s := first.Attributes["ApproximateFirstReceiveTimestamp"], second.Attributes["ApproximateFirstReceiveTimestamp"]; f != s || len(f) < 12 {
				r.Fatalf("the first receive was at %s, then at %s", f, s)
			}
		},
	},
	{
		name: "a long poll is answered when a message comes", ref: "doc ReceiveMessage WaitTimeSeconds",
		run: func(r *rig) {
			q := r.queue("q")
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				after(500 * time.Millisecond)
				_, _ = r.api.SendMessage(r.Context(), &sqs.SendMessageInput{QueueUrl: q, MessageBody: new("a")})
			}()
			start := time.Now()
			r.wantBodies(r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, WaitTimeSeconds: 10}), "a")
			if took := time.Since(start); took > 3*time.Second {
				r.Fatalf("it took %v", took)
			}
			<-sent
		},
	},
	{
		name: "a long poll is answered when a timeout ends", ref: "doc ReceiveMessage WaitTimeSeconds",
		run: func(r *rig) {
			q := r.queue("q", "VisibilityTimeout", "1")
			r.send(q, "a")
			r.receiveOne(q)
			start := time.Now()
			r.wantBodies(r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, WaitTimeSeconds: 10}), "a")
			if took := time.Since(start); took > 5*time.Second {
				r.Fatalf("it took %v", took)
			}
		},
	},
	{
		name: "a long poll ends with nothing after its wait", ref: "doc ReceiveMessage WaitTimeSeconds",
		run: func(r *rig) {
			q := r.queue("q")
			start := time.Now()
			r.wantBodies(r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, WaitTimeSeconds: 1}))
			if took := time.Since(start); took < 900*time.Millisecond || took > 15*time.Second {
				r.Fatalf("it took %v", took)
			}
		},
	},
	{
		name: "a queue has a wait of its own", ref: "doc CreateQueue ReceiveMessageWaitTimeSeconds",
		run: func(r *rig) {
			q := r.queue("q", "ReceiveMessageWaitTimeSeconds", "1")
			start := time.Now()
			r.wantBodies(r.receive(q))
			if took := time.Since(start); took < 900*time.Millisecond || took > 15*time.Second {
				r.Fatalf("it took %v", took)
			}
		},
	},
	{
		name: "a receive asks for 10 messages at most", ref: "snapshot test_send_receive_max_number_of_messages",
		run: func(r *rig) {
			_, err := r.api.ReceiveMessage(r.Context(), &sqs.ReceiveMessageInput{QueueUrl: r.queue("q"), MaxNumberOfMessages: 11})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "a receive waits 20 seconds at most", ref: "doc ReceiveMessage WaitTimeSeconds",
		run: func(r *rig) {
			_, err := r.api.ReceiveMessage(r.Context(), &sqs.ReceiveMessageInput{QueueUrl: r.queue("q"), WaitTimeSeconds: 21})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "a receive gets one message unless it asks for more", ref: "doc ReceiveMessage MaxNumberOfMessages",
		run: func(r *rig) {
			q := r.queue("q")
			r.send(q, "a")
			r.send(q, "b")
			if got := r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q}); len(got) != 1 {
				r.Fatalf("received %q", bodies(got))
			}
		},
	},
	{
		name: "retention drops a message, in flight or not", ref: "doc CreateQueue MessageRetentionPeriod", ours: true,
		run: func(r *rig) {
			q := r.queue("q", "MessageRetentionPeriod", "60", "VisibilityTimeout", "300")
			r.send(q, "a")
			m := r.receiveOne(q)
			after(30 * time.Second)
			r.send(q, "b")
			after(31 * time.Second)
			r.wantCounts(q, 1, 0, 0)
			r.wantCode(r.change(q, m, 10), codeParameter)
			after(30 * time.Second)
			r.wantBodies(r.receive(q))
		},
	},
}
