package awssqs

import "github.com/onceq/onceq/internal/sqswire"

// Envelope names what AWS services put around, or in place of, a producer's own body. The values may be added.
type Envelope uint8

// The envelopes. A body that is none of those asked for comes as it is.
const (
	// SNS opens a notification of an SNS topic: the body is its Message, and its MessageAttributes join the attributes, our own among them, so
	// that a job sent through a topic is the job that it was. Without metadata of ours, Meta.ID is the notification's MessageId, which
	// stays the same when SNS delivers twice, and Created its Timestamp. Attribute "sns-topic" is the topic's ARN. (With raw message delivery there is
	// no envelope, and nothing to open.)
	SNS = Envelope(sqswire.SNS)
	// EventBridge opens what an event bus sends: the body is its detail, Meta.ID the id, Meta.Type the detail-type, Created the time;
	// the attributes "eventbridge-source", "-account" and "-region" tell the rest.
	EventBridge = Envelope(sqswire.EventBridge)
	// S3 reads a bucket's notification. The body stays. Meta.ID is made of bucket, object, version, sequencer and name of
	// the happening, so that a repeated notification is the same job and a new version is not; Meta.Type is "s3:" and that name, and Created its time. The test
	// notification of a new configuration has the type "s3:TestEvent".
	S3 = Envelope(sqswire.S3)
)

// AllEnvelopes is each of them. An SNS notification may hold one of the others.
const AllEnvelopes = SNS | EventBridge | S3
