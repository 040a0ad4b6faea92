package awssqs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// CheckOptions say what the queue is used for. A zero field is not checked against.
type CheckOptions struct {
	// MaxAttempts is the workers' ProcessorConfig.Defaults.MaxAttempts; < 0 = unlimited.
	MaxAttempts int
	// KeepInQueue says that the workers leave dead letters to the queue's own redrive.
	KeepInQueue bool
	// Retention is the workers' ProcessorConfig.Retention.
	Retention time.Duration
	// MaxMessage is the largest message that will be sent, in bytes, attributes and metadata
	// included.
	MaxMessage int
	// FunctionTimeout is the timeout of the Lambda function that the queue calls; 0 = there is
	// none.
	FunctionTimeout time.Duration
	// Carry says that the workers send messages anew to the queue (WorkerConfig.Carry).
	Carry bool
}

// Setup is what a queue is set to.
type Setup struct {
	Visibility, Retention, Delay, Wait time.Duration
	MaxMessage                         int
	// MaxReceives is after how many receives SQS moves a message to DeadLetter, the ARN of a queue
	// that keeps it for DeadLetterRetention; 0 = never. The last is 0 where it may not be asked
	// for.
	MaxReceives         int
	DeadLetter          string
	DeadLetterRetention time.Duration
	// NotAsked lists the rights that the use of the queue needs and that SQS tells only when they
	// are used: with CheckOptions.Carry, sqs:SendMessage.
	NotAsked []string
}

// Check reads the queue's attributes and tells, in sentences, what does not fit the way that it is
// used: it is for a start-up log or an operator's command. It needs sqs:GetQueueAttributes, and for
// the dead-letter queue's retention the same and sqs:GetQueueUrl there.
func (b *Broker) Check(ctx context.Context, o CheckOptions) (Setup, []string, error) {
	const call = "check"
	as, err := b.ask(ctx, call, types.QueueAttributeNameAll)
	if err != nil {
		return Setup{}, nil, err
	}
	p, err := policy(as)
	if err != nil {
		return Setup{}, nil, b.wrap(call, err)
	}
	s := Setup{
		Visibility: duration(as, types.QueueAttributeNameVisibilityTimeout), Retention: retentionOf(as),
		Delay: duration(as, types.QueueAttributeNameDelaySeconds), Wait: duration(as, types.QueueAttributeNameReceiveMessageWaitTimeSeconds),
		MaxMessage:  int(integer(as, types.QueueAttributeNameMaximumMessageSize)),
		MaxReceives: p.receives, DeadLetter: p.target,
	}
	if p.target != "" {
		s.DeadLetterRetention = b.retentionAt(ctx, p.target)
	}
	if o.Carry {
		s.NotAsked = append(s.NotAsked, "sqs:SendMessage on the queue")
	}
	return s, s.problems(b.fifo, o), nil
}

// retentionAt asks the dead-letter queue; 0 where that is not possible.
func (b *Broker) retentionAt(ctx context.Context, target string) time.Duration {
	call, cancel := b.call(ctx)
	defer cancel()
	url, err := Find(call, b.rest, target)
	if err != nil {
		return 0
	}
	as, err := b.attributesOf(ctx, url, types.QueueAttributeNameMessageRetentionPeriod)
	if err != nil {
		return 0
	}
	return retentionOf(as)
}

// keptFor is how long a Worker gives back what it keeps in the queue.
const keptFor = time.Hour

// timeoutsHidden is for how many timeouts of a function AWS wants a message to be hidden.
const timeoutsHidden = 6

func (s *Setup) problems(fifo bool, o CheckOptions) []string {
	var ps []string
	say := func(format string, args ...any) { ps = append(ps, fmt.Sprintf(format, args...)) }
	name := s.DeadLetter[strings.LastIndexByte(s.DeadLetter, ':')+1:]
	switch {
	case o.KeepInQueue && s.MaxReceives == 0:
		say("dead letters are left to the queue, and it has no redrive policy: a job that cannot be done comes back until the queue drops it after %v", s.Retention)
	case o.KeepInQueue && s.Retention > 0 && time.Duration(s.MaxReceives) >= (s.Retention+keptFor-1)/keptFor:
		say("dead letters are left to the queue, a receive an hour, and after %v it drops what has not had its %d receives: set maxReceiveCount below %d",
			s.Retention, s.MaxReceives, s.Retention/keptFor)
	case !o.KeepInQueue && s.MaxReceives > 0 && o.MaxAttempts < 0:
		say("the queue moves a message to %s after %d receives, and attempts are unlimited", name, s.MaxReceives)
	case !o.KeepInQueue && s.MaxReceives > 0 && o.MaxAttempts > 0 && s.MaxReceives/2 < o.MaxAttempts:
		say("the queue moves a message to %s after %d receives; with MaxAttempts %d set maxReceiveCount to %d or more, "+
			"for a receive that never starts a handler counts too", name, s.MaxReceives, o.MaxAttempts, 2*uint64(o.MaxAttempts))
	}
	if !fifo && s.DeadLetterRetention > 0 && s.DeadLetterRetention <= s.Retention {
		say("%s keeps messages for %v, counted from their first send, and the queue for %v: a letter may be gone as soon as it is there; set the first well above the second",
			name, s.DeadLetterRetention, s.Retention)
	}
	if in := s.Retention + s.DeadLetterRetention; o.Retention > 0 && o.Retention < in {
		say("the workers keep their records for %v, and a message may spend %v in the queue and its dead-letter queue: a late replay would be unproven", o.Retention, in)
	}
	if o.MaxMessage > 0 && s.MaxMessage > 0 && s.MaxMessage < o.MaxMessage {
		say("the queue takes messages of %d bytes, and up to %d are to be sent", s.MaxMessage, o.MaxMessage)
	}
	if s.Visibility/timeoutsHidden < o.FunctionTimeout {
		say("the queue hides a message for %v, and the function's timeout is %v: set the visibility timeout to six times that, "+
			"for Lambda tries again with messages that are hidden already", s.Visibility, o.FunctionTimeout)
	}
	if o.Carry && fifo {
		say("the queue orders its messages, so none is sent anew: a job that waits for longer than %v becomes a dead letter", s.Retention)
	}
	if s.Delay > 0 {
		say("the queue delays each message by %v", s.Delay)
	}
	return ps
}
