package sqsfake_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func (r *rig) policy(dlq *string, maxReceives int) string {
	r.Helper()
	return fmt.Sprintf(`{"deadLetterTargetArn":"%s","maxReceiveCount":%d}`, r.arn(dlq), maxReceives)
}

// withDLQ makes a queue, and a dead-letter queue for what was received once.
func (r *rig) withDLQ(suffix string) (q, dlq *string) {
	r.Helper()
	dlq = r.queue("dlq" + suffix)
	return r.queue("q"+suffix, "RedrivePolicy", r.policy(dlq, 1)), dlq
}

// kill receives what is in q and lets the redrive policy take it.
func (r *rig) kill(q *string) []types.Message {
	r.Helper()
	got := r.receive(q)
	for _, m := range got {
		r.wantCode(r.change(q, m, 0), "")
	}
	r.wantBodies(r.receive(q))
	return got
}

var redriveBehaviours = []behaviour{
	{
		name: "a message received too often goes to the dead-letter queue", ref: "doc SetQueueAttributes RedrivePolicy",
		run: func(r *rig) {
			dlq := r.queue("dlq")
			q := r.queue("q", "RedrivePolicy", r.policy(dlq, 2))
			id := r.send(q, "a")
			for range 2 {
				r.wantCode(r.change(q, r.receiveOne(q), 0), "")
			}
			r.wantBodies(r.receive(q))
			r.wantCounts(q, 0, 0, 0)
			m := r.receiveOne(dlq)
			if *m.Body != "a" || *m.MessageId != id || m.Attributes["DeadLetterQueueSourceArn"] != r.arn(q) {
				r.Fatalf("the dead letter is %s with %v", *m.MessageId, m.Attributes)
			}
		},
	},
	{
		name: "a dead letter keeps its age on a standard queue", ref: "doc: dead-letter queues and retention",
		run: func(r *rig) {
			q, dlq := r.withDLQ("")
			r.send(q, "a")
			m := r.receiveOne(q)
			after(1500 * time.Millisecond)
			r.wantCode(r.change(q, m, 0), "")
			r.wantBodies(r.receive(q))
			if dead := r.receiveOne(dlq); dead.Attributes["SentTimestamp"] != m.Attributes["SentTimestamp"] {
				r.Fatalf("sent at %s, as a dead letter at %s", m.Attributes["SentTimestamp"], dead.Attributes["SentTimestamp"])
			}
		},
	},
	{
		name: "a dead letter expires by its first age", ref: "doc: dead-letter queues and retention", ours: true,
		run: func(r *rig) {
			dlq := r.queue("dlq", "MessageRetentionPeriod", "60")
			q := r.queue("q", "RedrivePolicy", r.policy(dlq, 1))
			r.send(q, "a")
			after(50 * time.Second)
			r.kill(q)
			r.wantCounts(dlq, 1, 0, 0)
			after(10 * time.Second)
			r.wantCounts(dlq, 0, 0, 0)
		},
	},
	{
		name: "FIFO: a dead letter's age begins anew", ref: "doc: dead-letter queues and retention", ours: true,
		run: func(r *rig) {
			q, dlq := r.withDLQ(".fifo")
			r.sendTo(q, "g", "a")
			after(time.Second)
			m := r.kill(q)[0]
			if dead := r.receiveOne(dlq); dead.Attributes["SentTimestamp"] == m.Attributes["SentTimestamp"] || dead.Attributes["MessageGroupId"] != "g" {
				r.Fatalf("the dead letter: %v", dead.Attributes)
			}
		},
	},
	{
		name: "FIFO: the group goes on after a dead letter", ref: "doc SetQueueAttributes RedrivePolicy",
		run: func(r *rig) {
			q, dlq := r.withDLQ(".fifo")
			r.sendTo(q, "g", "1", "2")
			got := r.receiveN(q, 1)
			r.wantBodies(got, "1")
			r.wantCode(r.change(q, got[0], 0), "")
			r.wantBodies(r.receiveN(q, 1), "2")
			r.wantBodies(r.receive(dlq), "1")
		},
	},
	{
		name: "a message in flight stays until it is asked for again", ref: "seen: redrive happens on receive", ours: true,
		run: func(r *rig) {
			dlq := r.queue("dlq")
			q := r.queue("q", "RedrivePolicy", r.policy(dlq, 1), "VisibilityTimeout", "1")
			r.send(q, "a")
			r.receiveOne(q)
			after(time.Minute)
			r.wantCounts(dlq, 0, 0, 0)
			r.wantCounts(q, 1, 0, 0)
			r.wantBodies(r.receive(q))
			r.wantCounts(dlq, 1, 0, 0)
		},
	},
	{
		name: "a long poll on the dead-letter queue gets the letter", ref: "doc ReceiveMessage WaitTimeSeconds", ours: true,
		run: func(r *rig) {
			q, dlq := r.withDLQ("")
			r.send(q, "a")
			r.wantCode(r.change(q, r.receiveOne(q), 0), "")
			go func() {
				after(time.Second)
				_, _ = r.api.ReceiveMessage(r.Context(), &sqs.ReceiveMessageInput{QueueUrl: q})
			}()
			r.wantBodies(r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: dlq, WaitTimeSeconds: 20}), "a")
		},
	},
	{
		name: "a dead letter goes on counting, its queue's policy begins at zero", ref: "seen: receive counts in the console", ours: true,
		run: func(r *rig) {
			last := r.queue("last")
			dlq := r.queue("dlq", "RedrivePolicy", r.policy(last, 2))
			q := r.queue("q", "RedrivePolicy", r.policy(dlq, 3))
			r.send(q, "a")
			after(time.Second)
			var first string
			for i, u := range []*string{q, q, q, dlq, dlq, last} {
				if i == 3 || i == 5 {
					r.wantBodies(r.receive([]*string{3: q, 5: dlq}[i])) // it moves on
				}
				m := r.receiveOne(u)
				if i == 0 {
					first = m.Attributes["ApproximateFirstReceiveTimestamp"]
				}
				if got := m.Attributes["ApproximateReceiveCount"]; got != fmt.Sprint(i+1) || m.Attributes["ApproximateFirstReceiveTimestamp"] != first {
					r.Fatalf("receive %d tells %v", i+1, m.Attributes)
				}
				after(time.Second)
				r.wantCode(r.change(u, m, 0), "")
			}
		},
	},
	{
		name: "the dead-letter queue must exist", ref: "doc SetQueueAttributes RedrivePolicy",
		run: func(r *rig) {
			q := r.queue("q")
			err := r.setAttributes(q, "RedrivePolicy", strings.Replace(r.policy(q, 3), `","max`, `-missing","max`, 1))
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "a dead-letter queue is named by an ARN", ref: "snapshot test_invalid_dead_letter_arn_rejected_before_lookup",
		run: func(r *rig) {
			_, err := r.create("q", "RedrivePolicy", `{"deadLetterTargetArn": "dummy", "maxReceiveCount": 42}`)
			r.wantCode(err, codeParameter)
			r.wantText(err, "Invalid value for deadLetterTargetArn")
		},
	},
	{
		name: "a dead-letter queue is of the same type", ref: "doc SetQueueAttributes RedrivePolicy",
		run: func(r *rig) {
			q, dlq := r.queue("q.fifo"), r.queue("dlq")
			r.wantCode(r.setAttributes(q, "RedrivePolicy", r.policy(dlq, 3)), codeParameter)
		},
	},
	{
		name: "maxReceiveCount is 1 to 1000, a number or a text", ref: "doc SetQueueAttributes maxReceiveCount",
		run: func(r *rig) {
			q, dlq := r.queue("q"), r.queue("dlq")
			r.wantCode(r.setAttributes(q, "RedrivePolicy", r.policy(dlq, 0)), codeParameter)
			r.wantCode(r.setAttributes(q, "RedrivePolicy", r.policy(dlq, 1001)), codeParameter)
			r.wantCode(r.setAttributes(q, "RedrivePolicy", r.policy(dlq, 1000)), "")
			r.wantCode(r.setAttributes(q, "RedrivePolicy", strings.Replace(r.policy(dlq, 7), `:7}`, `:"7"}`, 1)), "")
			r.wantCode(r.setAttributes(q, "RedrivePolicy", `{"maxReceiveCount":3}`), codeParameter)
		},
	},
	{
		name: "an empty redrive policy ends it", ref: "doc SetQueueAttributes",
		run: func(r *rig) {
			q, _ := r.withDLQ("")
			r.wantCode(r.setAttributes(q, "RedrivePolicy", ""), "")
			if got := r.attribute(q, "RedrivePolicy"); got != "" {
				r.Fatalf("the policy is %s", got)
			}
			r.send(q, "a")
			for range 3 {
				r.wantCode(r.change(q, r.receiveOne(q), 0), "")
			}
		},
	},
	{
		name: "a dead-letter queue may refuse its sources", ref: "doc SetQueueAttributes RedriveAllowPolicy",
		run: func(r *rig) {
			q, dlq := r.queue("q"), r.queue("dlq", "RedriveAllowPolicy", `{"redrivePermission":"denyAll"}`)
			r.wantCode(r.setAttributes(q, "RedrivePolicy", r.policy(dlq, 3)), codeParameter)
		},
	},
	{
		name: "a dead-letter queue may name its sources", ref: "doc SetQueueAttributes RedriveAllowPolicy",
		run: func(r *rig) {
			q, other, dlq := r.queue("q"), r.queue("other"), r.queue("dlq")
			allow := fmt.Sprintf(`{"redrivePermission":"byQueue","sourceQueueArns":[%q]}`, r.arn(q))
			r.wantCode(r.setAttributes(dlq, "RedriveAllowPolicy", allow), "")
			r.wantCode(r.setAttributes(q, "RedrivePolicy", r.policy(dlq, 3)), "")
			r.wantCode(r.setAttributes(other, "RedrivePolicy", r.policy(dlq, 3)), codeParameter)
		},
	},
	{
		name: "a dead-letter queue's sources are listed", ref: "doc ListDeadLetterSourceQueues",
		run: func(r *rig) {
			q, dlq := r.withDLQ("")
			out, err := r.api.ListDeadLetterSourceQueues(r.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: dlq})
			r.wantCode(err, "")
			if len(out.QueueUrls) != 1 || out.QueueUrls[0] != *q {
				r.Fatalf("listed %q", out.QueueUrls)
			}
		},
	},
}

func (r *rig) startMove(in *sqs.StartMessageMoveTaskInput) (string, error) {
	out, err := r.api.StartMessageMoveTask(r.Context(), in)
	if err != nil {
		return "", err
	}
	return *out.TaskHandle, nil
}

// moveTask is the last task of a source.
func (r *rig) moveTask(arn string) types.ListMessageMoveTasksResultEntry {
	r.Helper()
	out, err := r.api.ListMessageMoveTasks(r.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: &arn})
	if err != nil {
		r.Fatal(err)
	}
	if len(out.Results) != 1 {
		r.Fatalf("%d tasks listed", len(out.Results))
	}
	return out.Results[0]
}

// moved waits until the last task of a source has ended.
func (r *rig) moved(arn string) types.ListMessageMoveTasksResultEntry {
	r.Helper()
	for range 100 {
		if t := r.moveTask(arn); aws.ToString(t.Status) != "RUNNING" {
			return t
		}
		after(100 * time.Millisecond)
	}
	r.Fatal("the task does not end")
	return types.ListMessageMoveTasksResultEntry{}
}

var moveBehaviours = []behaviour{
	{
		name: "a move task brings dead letters back, as new messages", ref: "snapshot test_move_task_workflow_with_default_destination",
		run: func(r *rig) {
			q, dlq := r.withDLQ("")
			r.send(q, "a")
			r.send(q, "b")
			old := r.kill(q)
			handle, err := r.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: new(r.arn(dlq))})
			r.wantCode(err, "")
			if handle == "" {
				r.Fatal("no handle")
			}
			if t := r.moved(r.arn(dlq)); aws.ToString(t.Status) != "COMPLETED" || t.ApproximateNumberOfMessagesMoved != 2 || t.TaskHandle != nil {
				r.Fatalf("the task: %+v", t)
			}
			got := r.receive(q)
			if len(got) != 2 {
				r.Fatalf("received %q", bodies(got))
			}
			for _, m := range got {
				if m.Attributes["ApproximateReceiveCount"] != "1" || *m.MessageId == *old[0].MessageId || *m.MessageId == *old[1].MessageId {
					r.Fatalf("%s came back as %s with %v", *m.Body, *m.MessageId, m.Attributes)
				}
			}
			r.wantCounts(dlq, 0, 0, 0)
		},
	},
	{
		name: "a move task may go elsewhere", ref: "snapshot test_basic_move_task_workflow",
		run: func(r *rig) {
			q, dlq := r.withDLQ("")
			other := r.queue("other")
			r.send(q, "a")
			r.kill(q)
			_, err := r.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: new(r.arn(dlq)), DestinationArn: new(r.arn(other))})
			r.wantCode(err, "")
			t := r.moved(r.arn(dlq))
			if aws.ToString(t.Status) != "COMPLETED" || aws.ToString(t.DestinationArn) != r.arn(other) {
				r.Fatalf("the task: %+v", t)
			}
			r.wantBodies(r.receive(other), "a")
		},
	},
	{
		name: "a move task starts from a dead-letter queue only", ref: "snapshot test_source_needs_redrive_policy",
		run: func(r *rig) {
			_, err := r.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: new(r.arn(r.queue("q")))})
			r.wantCode(err, codeParameter)
			r.wantText(err, "Source queue must be configured as a Dead Letter Queue")
		},
	},
	{
		name: "a move task's queues exist", ref: "snapshot test_destination_needs_to_exist",
		run: func(r *rig) {
			_, dlq := r.withDLQ("")
			arn := r.arn(dlq)
			_, err := r.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: &arn, DestinationArn: new(arn + "-missing")})
			r.wantCode(err, codeNotFound)
			_, err = r.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: new(arn + "-missing")})
			r.wantCode(err, codeNotFound)
			_, err = r.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: new("dlq")})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "a move task has a rate, and is cancelled", ref: "snapshot test_move_task_cancel",
		run: func(r *rig) {
			q, dlq := r.withDLQ("")
			for i := range 5 {
				r.send(q, fmt.Sprint(i))
			}
			r.kill(q)
			arn := r.arn(dlq)
			in := &sqs.StartMessageMoveTaskInput{SourceArn: &arn, MaxNumberOfMessagesPerSecond: new(int32(1))}
			handle, err := r.startMove(in)
			r.wantCode(err, "")
			if t := r.moveTask(arn); aws.ToString(t.Status) != "RUNNING" || aws.ToString(t.TaskHandle) != handle || aws.ToInt64(t.ApproximateNumberOfMessagesToMove) != 5 {
				r.Fatalf("the task: %+v", t)
			}
			_, err = r.startMove(in)
			r.wantCode(err, codeParameter)
			r.wantText(err, "There is already a task running")
			_, err = r.api.CancelMessageMoveTask(r.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: &handle})
			r.wantCode(err, "")
			if t := r.moved(arn); aws.ToString(t.Status) != "CANCELLED" || t.ApproximateNumberOfMessagesMoved > 2 {
				r.Fatalf("the task: %+v", t)
			}
		},
	},
	{
		name: "a move task keeps its rate", ref: "doc StartMessageMoveTask MaxNumberOfMessagesPerSecond", ours: true,
		run: func(r *rig) {
			q, dlq := r.withDLQ("")
			for i := range 10 {
				r.send(q, fmt.Sprint(i))
			}
			r.kill(q)
			arn := r.arn(dlq)
			_, err := r.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: &arn, MaxNumberOfMessagesPerSecond: new(int32(2))})
			r.wantCode(err, "")
			after(2100 * time.Millisecond)
			r.wantCounts(q, 4, 0, 0)
			after(3 * time.Second)
			if t := r.moveTask(arn); aws.ToString(t.Status) != "COMPLETED" || t.ApproximateNumberOfMessagesMoved != 10 {
				r.Fatalf("the task: %+v", t)
			}
			_, err = r.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: &arn})
			r.wantCode(err, "") // a new one may start
		},
	},
	{
		name: "500 messages a second is the fastest move", ref: "doc StartMessageMoveTask MaxNumberOfMessagesPerSecond",
		run: func(r *rig) {
			_, dlq := r.withDLQ("")
			_, err := r.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: new(r.arn(dlq)), MaxNumberOfMessagesPerSecond: new(int32(501))})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "a cancel wants the handle of a task", ref: "snapshot test_cancel_with_invalid_task_handle",
		run: func(r *rig) {
			_, err := r.api.CancelMessageMoveTask(r.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: new("foobared")})
			r.wantCode(err, codeParameter)
		},
	},
	{
		name: "a task that has ended is not cancelled", ref: "doc CancelMessageMoveTask: only when RUNNING", ours: true,
		run: func(r *rig) {
			_, dlq := r.withDLQ("")
			handle, err := r.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: new(r.arn(dlq))})
			r.wantCode(err, "")
			r.moved(r.arn(dlq))
			_, err = r.api.CancelMessageMoveTask(r.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: &handle})
			r.wantCode(err, "AWS.SimpleQueueService.UnsupportedOperation")
			gone := base64.StdEncoding.EncodeToString([]byte(`{"taskId":"x","sourceArn":"` + r.arn(dlq) + `"}`))
			_, err = r.api.CancelMessageMoveTask(r.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: &gone})
			r.wantCode(err, codeNotFound)
		},
	},
	{
		name: "a move task fails when its destination goes", ref: "snapshot test_move_task_delete_destination_queue_while_running", ours: true,
		run: func(r *rig) {
			q, dlq := r.withDLQ("")
			for i := range 5 {
				r.send(q, fmt.Sprint(i))
			}
			r.kill(q)
			arn, other := r.arn(dlq), r.queue("other")
			_, err := r.startMove(&sqs.StartMessageMoveTaskInput{
				SourceArn: &arn, DestinationArn: new(r.arn(other)), MaxNumberOfMessagesPerSecond: new(int32(1)),
			})
			r.wantCode(err, "")
			after(2500 * time.Millisecond)
			r.deleteQueue(other)
			after(time.Second)
			if t := r.moveTask(arn); aws.ToString(t.Status) != "FAILED" || aws.ToString(t.FailureReason) != codeNoQueue || t.ApproximateNumberOfMessagesMoved != 2 {
				r.Fatalf("the task: %+v", t)
			}
			r.wantCounts(dlq, 3, 0, 0)
		},
	},
	{
		name: "a message that nobody redrove has no source to go back to", ref: "seen: CouldNotDetermineMessageSource", ours: true,
		run: func(r *rig) {
			_, dlq := r.withDLQ("")
			r.send(dlq, "a")
			_, err := r.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: new(r.arn(dlq))})
			r.wantCode(err, "")
			if t := r.moved(r.arn(dlq)); aws.ToString(t.FailureReason) != "CouldNotDetermineMessageSource" {
				r.Fatalf("the task: %+v", t)
			}
			r.wantCounts(dlq, 1, 0, 0)
		},
	},
	{
		name: "FIFO: a move task is no duplicate of the first sending", ref: "doc StartMessageMoveTask: redrive", ours: true,
		run: func(r *rig) {
			q, dlq := r.withDLQ(".fifo")
			r.sendTo(q, "g", "1", "2")
			got := r.receiveN(q, 10)
			r.wantBodies(got, "1", "2")
			for _, m := range got {
				r.wantCode(r.change(q, m, 0), "")
			}
			r.wantBodies(r.receive(q))
			_, err := r.startMove(&sqs.StartMessageMoveTaskInput{SourceArn: new(r.arn(dlq))})
			r.wantCode(err, "")
			r.moved(r.arn(dlq))
			r.wantBodies(r.receive(q), "1", "2")
		},
	},
}
