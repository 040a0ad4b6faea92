package pubsubfake

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// This file owns what subscriptions and topics may be set to, and the defaults. CreateSubscription
// and UpdateSubscription call it. What this server does not do is refused, not passed over.

const (
	day              = 24 * time.Hour
	minDeadline      = 10 // seconds
	maxDeadline      = 600
	defaultRetention = 7 * day
	minRetention     = 10 * time.Minute
	maxRetention     = 31 * day
	defaultExpiry    = 31 * day
	maxBackoff       = 600 * time.Second
	defaultBackoff   = 10 * time.Second
	minAttempts      = 5
	maxAttempts      = 100
	maxFilterBytes   = 256
)

// readSettings reads and checks a subscription's settings, and writes the defaults into pb.
func readSettings(pb *pubsubpb.Subscription) (settings, error) {
	set := settings{ordered: pb.EnableMessageOrdering, once: pb.EnableExactlyOnceDelivery, retain: pb.RetainAckedMessages}
	for _, read := range []func(*settings, *pubsubpb.Subscription) error{
		readUnsupported, readDeadline, readRetention, readExpiry, readDeadLetters, readRetries, readFilter,
	} {
		if err := read(&set, pb); err != nil {
			return set, err
		}
	}
	return set, nil
}

func readUnsupported(_ *settings, pb *pubsubpb.Subscription) error {
	switch {
	case pb.GetPushConfig().GetPushEndpoint() != "":
		return unimplemented("pushing")
	case pb.BigqueryConfig != nil, pb.CloudStorageConfig != nil, pb.BigtableConfig != nil:
		return unimplemented("exporting subscriptions")
	case len(pb.MessageTransforms) > 0:
		return unimplemented("message transforms")
	}
	return nil
}

func readDeadline(set *settings, pb *pubsubpb.Subscription) error {
	pb.AckDeadlineSeconds = cmp.Or(pb.AckDeadlineSeconds, minDeadline)
	if s := pb.AckDeadlineSeconds; s < minDeadline || s > maxDeadline {
		return outOfRange("ack_deadline_seconds", s, "10 to 600")
	}
	set.ackDeadline = time.Duration(pb.AckDeadlineSeconds) * time.Second
	return nil
}

func readRetention(set *settings, pb *pubsubpb.Subscription) error {
	if pb.MessageRetentionDuration == nil {
		pb.MessageRetentionDuration = durationpb.New(defaultRetention)
	}
	set.retention = pb.MessageRetentionDuration.AsDuration()
	if set.retention < minRetention || set.retention > maxRetention {
		return outOfRange("message_retention_duration", set.retention, "10 minutes to 31 days")
	}
	return nil
}

func readExpiry(_ *settings, pb *pubsubpb.Subscription) error {
	if pb.ExpirationPolicy == nil {
		pb.ExpirationPolicy = &pubsubpb.ExpirationPolicy{Ttl: durationpb.New(defaultExpiry)}
	}
	ttl := pb.ExpirationPolicy.Ttl
	if ttl == nil { // never
		return nil
	}
	if d := ttl.AsDuration(); d < day || d < pb.MessageRetentionDuration.AsDuration() {
		return outOfRange("expiration_policy.ttl", d, "a day at least, and not less than message_retention_duration")
	}
	return nil
}

func readDeadLetters(set *settings, pb *pubsubpb.Subscription) error {
	p := pb.DeadLetterPolicy
	if p == nil {
		return nil
	}
	if err := checkName("dead_letter_policy.dead_letter_topic", p.DeadLetterTopic, "topics"); err != nil {
		return err
	}
	p.MaxDeliveryAttempts = cmp.Or(p.MaxDeliveryAttempts, minAttempts)
	if n := p.MaxDeliveryAttempts; n < minAttempts || n > maxAttempts {
		return outOfRange("dead_letter_policy.max_delivery_attempts", n, "5 to 100")
	}
	set.deadLetter, set.maxAttempts = p.DeadLetterTopic, p.MaxDeliveryAttempts
	return nil
}

func readRetries(set *settings, pb *pubsubpb.Subscription) error {
	p := pb.RetryPolicy
	if p == nil {
		return nil
	}
	if p.MinimumBackoff == nil {
		p.MinimumBackoff = durationpb.New(defaultBackoff)
	}
	if p.MaximumBackoff == nil {
		p.MaximumBackoff = durationpb.New(maxBackoff)
	}
	set.retry, set.backoff, set.maxBackoff = true, p.MinimumBackoff.AsDuration(), p.MaximumBackoff.AsDuration()
	switch {
	case set.backoff < 0 || set.backoff > maxBackoff:
		return outOfRange("retry_policy.minimum_backoff", set.backoff, "0 to 600 seconds")
	case set.maxBackoff < set.backoff || set.maxBackoff > maxBackoff:
		return outOfRange("retry_policy.maximum_backoff", set.maxBackoff, "minimum_backoff to 600 seconds")
	}
	return nil
}

func readFilter(set *settings, pb *pubsubpb.Subscription) error {
	if pb.Filter == "" {
		return nil
	}
	if len(pb.Filter) > maxFilterBytes {
		return outOfRange("filter", len(pb.Filter), "256 bytes at most")
	}
	f, err := parseFilter(pb.Filter)
	if err != nil {
		return invalid("The filter expression is invalid: %v (filter=%s).", err, pb.Filter)
	}
	set.filter = f
	return nil
}

// checkTopic refuses what this server does not do.
func checkTopic(pb *pubsubpb.Topic) error {
	switch {
	case pb.SchemaSettings != nil:
		return unimplemented("schemas")
	case pb.MessageRetentionDuration != nil:
		return unimplemented("a topic's message_retention_duration")
	case pb.IngestionDataSourceSettings != nil:
		return unimplemented("ingestion")
	case len(pb.MessageTransforms) > 0:
		return unimplemented("message transforms")
	}
	return nil
}
