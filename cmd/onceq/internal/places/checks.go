package places

import (
	"context"
	"fmt"
	"strings"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// Checks are those of the queue's own service. What Doctor checks of any queue, such as the number
// of receives, they leave out.
func Checks(b broker.Broker) []ops.ServiceCheck {
	if q, ok := broker.As[*awssqs.Broker](b); ok {
		return []ops.ServiceCheck{{Check: "sqs", Ask: func(ctx context.Context) ([]dedupe.Fault, error) { return sqsFaults(ctx, q) }}}
	}
	return pubsubChecks(b)
}

func sqsFaults(ctx context.Context, q *awssqs.Broker) (fs []dedupe.Fault, err error) {
	s, texts, err := q.Check(ctx, awssqs.CheckOptions{})
	for i, text := range texts {
		mend := "aws sqs set-queue-attributes --queue-url URL-OF-" + s.DeadLetter[strings.LastIndexByte(s.DeadLetter, ':')+1:] + " --attributes MessageRetentionPeriod=1209600"
		if s.Delay > 0 && i == len(texts)-1 {
			mend = fmt.Sprintf("aws sqs set-queue-attributes --queue-url %s --attributes DelaySeconds=0", q.Describe().Address)
		}
		fs = append(fs, dedupe.Fault{Text: text, Mend: mend})
	}
	return fs, err
}
