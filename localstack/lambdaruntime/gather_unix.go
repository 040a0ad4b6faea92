//go:build unix

package lambdaruntime

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	receiveMost = 10     // of one call to SQS
	batchMost   = 10_000 // of a standard queue
	windowMost  = 5 * time.Minute
	// payloadMost is Lambda's 6 MB, of an event and of an answer, as its errors have it.
	payloadMost = 6*1024*1024 + 100
)

// complete checks the source and puts the defaults in.
func (s *Source) complete() error {
	if s.BatchSize == 0 {
		s.BatchSize = receiveMost
	}
	fifo := strings.HasSuffix(s.QueueURL, ".fifo")
	switch {
	case s.BatchSize < 1 || s.BatchSize > batchMost:
		return fmt.Errorf("lambdaruntime: Source.BatchSize is %d; it is within 1 and %d", s.BatchSize, batchMost)
	case fifo && s.BatchSize > receiveMost:
		return fmt.Errorf("lambdaruntime: Source.BatchSize is %d; on a FIFO queue it is at most %d", s.BatchSize, receiveMost)
	case fifo && s.Window != 0:
		return fmt.Errorf("lambdaruntime: Source.Window is %v; a FIFO queue has none", s.Window)
	case s.Window < 0 || s.Window > windowMost:
		return fmt.Errorf("lambdaruntime: Source.Window is %v; it is within 0 and %v", s.Window, windowMost)
	}
	if s.BatchSize > receiveMost && s.Window == 0 {
		s.Window = time.Second
	}
	return nil
}

// gather receives a batch: until it is full or its time is over.
func (s *Source) gather(ctx context.Context) (ms []types.Message, err error) {
	var end time.Time
	for len(ms) < s.BatchSize && (len(ms) == 0 || time.Now().Before(end)) {
		out, err := s.Client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &s.QueueURL, MaxNumberOfMessages: int32(min(receiveMost, s.BatchSize-len(ms))), WaitTimeSeconds: 1,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}, MessageAttributeNames: []string{"All"},
		})
		if err != nil {
			return nil, err
		}
		if len(ms) == 0 {
			if len(out.Messages) == 0 {
				return nil, nil
			}
			end = time.Now().Add(s.Window)
		}
		ms = append(ms, out.Messages...)
	}
	return ms, nil
}

// batch is one event.
type batch struct {
	event   events.SQSEvent
	payload []byte
}

// events puts messages into events that Lambda can carry.
func (s *Source) events(ms []types.Message) (bs []batch, err error) {
	const frame = len(`{"Records":[]}`)
	size := 0
	for i := range ms {
		r := Record(s.ARN, &ms[i])
		text, err := encode(r)
		if err != nil {
			return nil, err
		}
		if len(bs) == 0 || size+len(text)+1 > payloadMost {
			bs, size = append(bs, batch{}), frame
		}
		e := &bs[len(bs)-1].event
		e.Records, size = append(e.Records, r), size+len(text)+1
	}
	for i := range bs {
		if bs[i].payload, err = encode(bs[i].event); err != nil {
			return nil, err
		}
	}
	return bs, nil
}

// encode writes JSON without what Go escapes for browsers: it would count.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
