package awssqs

import "github.com/onceq/onceq/internal/sqswire"

// Envelope names what AWS services put around, or in place of, a producer's own body. The values
// may be added.
//
// An envelope says of itself where it comes from, in the body, and no signature is checked. What
// may be believed of it rests on the queue's policy alone: see Trust in the package comment.
type Envelope uint8

// The envelopes. A body that is none of those asked for comes as it is, and so does one that has
// metadata of ours beside it.
const (
	// SNS opens a notification of an SNS topic: the body is its Message, and its MessageAttributes
	// join the attributes, where those that came beside the body win. Meta.ID is "sns:" and the
	// notification's MessageId, which stays the same when SNS delivers twice. Created is its
	// Timestamp. Attribute "sns-topic" is the topic's ARN. What it carries is not opened once more.
	//
	// A job may be sent through a topic, metadata and all. If Options.TrustTopics lists the topic,
	// it is the same job. From any other topic it has a MetaErr and ends as a dead letter, because
	// under another key it would be another job. (With raw message delivery there is no envelope,
	// and nothing to open.)
	SNS = Envelope(sqswire.SNS)
	// EventBridge opens what an event bus sends: the body is its detail, Meta.ID is "eb:", the
	// source, ":" and the id, Meta.Type the detail-type, Created the time. The attributes
	// "eventbridge-source", "-account", "-region" and "-replay-name" tell the rest.
	//
	// As far as we know, the replay of an archive brings each event under its old id. So what was
	// done is found done, and what was missed is run. (Read in AWS's documents; not verified.) If a
	// replay is to run all of them again, make the key in ProcessorConfig.Key of Meta.ID and
	// "eventbridge-replay-name".
	EventBridge = Envelope(sqswire.EventBridge)
	// S3 reads a bucket's notification. The body stays. Meta.ID is "s3:" and a digest of bucket,
	// object, version, sequencer and name of the happening (and its time and request if S3 gives no
	// sequencer). So a repeated notification is the same job, and a new version is another one.
	// Meta.Type is "s3:" and that name, and Created its time. The test notification of a new
	// configuration has the type "s3:TestEvent". A notification of more than 100 records is not
	// read. S3 sends one record at a time.
	S3 = Envelope(sqswire.S3)
	// EventBridgeInSNS is SNS, and opens what an event bus has sent to the topic.
	EventBridgeInSNS = Envelope(sqswire.EventBridgeInSNS)
	// S3InSNS is SNS, and reads what a bucket has sent to the topic.
	S3InSNS = Envelope(sqswire.S3InSNS)
)

// AllEnvelopes is each of the three by itself, and none within another one.
const AllEnvelopes = SNS | EventBridge | S3
