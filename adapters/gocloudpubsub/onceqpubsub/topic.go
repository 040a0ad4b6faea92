package onceqpubsub

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"unicode/utf8"

	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/batcher"
	"gocloud.dev/pubsub/driver"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the way from a gocloud message to a broker's. gocloud's batcher calls SendBatch,
// from several goroutines. A topic never changes, so nothing is locked. metadata.go has what
// becomes of metadata.

// OpenTopic gives a queue of onceq to a program that publishes through gocloud. It does no I/O. An
// error names the option and its limit.
//
// Each message goes out by [onceq.Send], with our own metadata beside it: an id, and a key. Set the
// key, by TopicOptions.Key or by KeyMetadata in a message. Only then is a message that the program
// sends again, after an error, the same job to a onceq Worker. And gocloud gives the error of one
// message to all that shared its batch, so programs send again what has arrived.
//
// Metadata is any UTF-8, as far as the message's size allows; MoreAttribute says how it travels.
// Subscribers see our own metadata in the attribute "onceq", except those of OpenSubscription, who
// reach it by As. A body is any bytes.
//
// A send is not retried here beyond what onceq.Send and the broker's client repeat.
//
//   - Topic.As: *[broker.Sender], and a pointer to the sender's own type, such as **awssqs.Broker.
//   - Message.BeforeSend and AfterSend: **[broker.Outgoing]. BeforeSend may change it: its Meta,
//     Group, DedupID and Delay have no words in gocloud.
//   - ErrorAs: *[broker.BatchError], which answers by position, and the SDK's own errors.
//   - Error codes: NotFound, InvalidArgument (it does not fit, or a bad key), ResourceExhausted
//     (throttled), PermissionDenied, FailedPrecondition (closed).
func OpenTopic(s broker.Sender, o *TopicOptions) (*pubsub.Topic, error) {
	t, err := newTopic(s, o)
	if err != nil {
		return nil, err
	}
	most := batcher.Options{MaxBatchSize: max(1, s.Limits().SendBatch), MaxHandlers: handlers}
	return pubsub.NewTopic(t, most.NewMergedOptions(&t.o.BatcherOptions)), nil
}

// topic is a broker.Sender as gocloud's driver.
type topic struct {
	sender broker.Sender
	o      TopicOptions
	form   form
}

var _ part = (*topic)(nil)

func newTopic(s broker.Sender, o *TopicOptions) (*topic, error) {
	if values.IsNil(s) {
		return nil, errors.New("onceqpubsub: OpenTopic: the sender is nil")
	}
	t := &topic{sender: s, form: formOf(s.Limits(), o != nil && o.GoCloudSQS)}
	if o != nil {
		t.o = *o
	}
	return t, checkTopic(t.o, s.Limits())
}

// SendBatch sends the messages.
func (t *topic) SendBatch(ctx context.Context, ms []*driver.Message) error {
	out := make([]broker.Outgoing, len(ms))
	for i, m := range ms {
		if err := t.outgoing(m, &out[i]); err != nil {
			return err
		}
		if m.BeforeSend != nil {
			if err := m.BeforeSend(func(target any) bool { return assign(&out[i], target) }); err != nil {
				return err
			}
		}
	}
	if err := onceq.Send(ctx, t.sender, out); err != nil {
		return err
	}
	for i, m := range ms {
		if m.AfterSend != nil {
			if err := m.AfterSend(func(target any) bool { return assign(&out[i], target) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// outgoing fills in the broker's message.
func (t *topic) outgoing(m *driver.Message, o *broker.Outgoing) error {
	o.Body, o.Group = m.Body, m.Metadata[GroupMetadata]
	o.Meta = &broker.Meta{Key: m.Metadata[KeyMetadata], Type: m.Metadata[TypeMetadata]}
	if o.Meta.Key == "" && t.o.Key != nil {
		key, err := t.o.Key(&pubsub.Message{Body: m.Body, Metadata: m.Metadata})
		if err != nil {
			return fmt.Errorf("%w: TopicOptions.Key: %w", errBadMessage, err)
		}
		o.Meta.Key = key
	}
	if !t.o.GoCloudSQS || utf8.Valid(m.Body) {
		o.Attributes = t.form.pack(m.Metadata, 0)
		return nil
	}
	o.Body = base64.StdEncoding.AppendEncode(nil, m.Body)
	if o.Attributes = t.form.pack(m.Metadata, 1); o.Attributes == nil {
		o.Attributes = make(map[string]string, 1)
	}
	o.Attributes[peerBase64] = "true"
	return nil
}

// IsRetryable is false: gocloud would repeat the whole batch, under new ids.
func (*topic) IsRetryable(error) bool { return false }

// As reaches the sender.
func (t *topic) As(target any) bool { return assign(t.sender, target) }

// ErrorAs reaches the broker's and the SDK's errors.
func (*topic) ErrorAs(err error, target any) bool { return peel(err, target) }

// ErrorCode is gocloud's word for an error.
func (*topic) ErrorCode(err error) gcerrors.ErrorCode { return errorCode(err) }

// Close calls TopicOptions.Close.
func (t *topic) Close() error {
	if t.o.Close == nil {
		return nil
	}
	return t.o.Close()
}
