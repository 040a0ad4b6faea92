package gcppubsub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
)

// This file owns Check: what a subscription is set to, and what of that does not fit. Users call
// it, and no worker does. Nothing is locked, because no answer is kept.

// CheckOptions say what the subscription is used for. A zero field is not checked against.
type CheckOptions struct {
	// MaxAttempts is the workers' ProcessorConfig.Defaults.MaxAttempts; < 0 = unlimited.
	MaxAttempts int
	// KeepInQueue says that the workers leave dead letters to the subscription's own policy.
	KeepInQueue bool
	// Retention is the workers' ProcessorConfig.Retention.
	Retention time.Duration
	// Visibility is the workers' WorkerConfig.Visibility.
	Visibility time.Duration
	// Carry says that the workers send messages anew to the Broker's topic (WorkerConfig.Carry).
	// Then Check asks whether this program may publish there; that sends nothing.
	Carry bool
}

// Setup is what a subscription is set to.
type Setup struct {
	// Topic is the topic's full name; "_deleted-topic_" where that was deleted.
	Topic                  string
	AckDeadline, Retention time.Duration
	// Expiration is after how long without a subscriber Pub/Sub deletes the subscription with its
	// messages; 0 = never.
	Expiration time.Duration
	// MaxReceives is after how many deliveries Pub/Sub moves a message to DeadLetter, the full name
	// of a topic; 0 = never.
	MaxReceives int
	DeadLetter  string
	// MinBackoff and MaxBackoff are the retry policy's; both 0 = there is none.
	MinBackoff, MaxBackoff time.Duration
	Ordered, ExactlyOnce   bool
	// Filter is the expression that a message's attributes must match; empty = every message comes.
	Filter string
	// Detached: the subscription was cut off from its topic and gets nothing.
	Detached bool
	// Elsewhere is where messages go without a pull: a push endpoint, "BigQuery", "Cloud Storage"
	// or "Bigtable"; empty = they are pulled.
	Elsewhere string
	// Missing lists the grants that Pub/Sub's own service agent needs for dead-lettering and that
	// were not found, as "ROLE on NAME". They may be granted by the project, which does not show.
	// It is empty where the policies may not be read.
	Missing []string
	// NotAsked lists the rights that CheckOptions asks for and that could not be looked at, as
	// "PERMISSION on NAME".
	NotAsked []string

	deadLetterGone bool
}

// Check reads the subscription's settings and tells, in sentences, what does not fit the way that
// it is used: it is for a start-up log or an operator's command. It needs pubsub.subscriptions.get
// (roles/pubsub.viewer). Where it may, it looks at the dead-letter topic (pubsub.topics.get) and at
// what Pub/Sub's service agent may do there (getIamPolicy of both).
func (b *Broker) Check(ctx context.Context, o CheckOptions) (Setup, []string, error) {
	in, err := b.ask(ctx, callCheck)
	if err != nil {
		return Setup{}, nil, err
	}
	s := setupOf(in)
	if s.DeadLetter != "" {
		s.deadLetterGone = b.isGone(ctx, s.DeadLetter)
		s.Missing = b.missing(ctx, s.DeadLetter)
	}
	ps := s.problems(b, o)
	if o.Carry {
		switch may, known := b.mayPublish(ctx); {
		case !known:
			s.NotAsked = append(s.NotAsked, publish+" on "+b.topic)
		case !may:
			ps = append(ps, fmt.Sprintf("the workers send messages anew, and this program has no %s on %s: a job that waits for longer than the subscription keeps it becomes a dead letter", publish, b.topic))
		}
	}
	return s, ps, nil
}

// publish is the permission to send to a topic; roles/pubsub.publisher has it.
const publish = "pubsub.topics.publish"

// mayPublish asks whether this program may send to the Broker's topic. It needs no right for that,
// and nothing is sent. known is false where nobody answers, as Google's emulator.
func (b *Broker) mayPublish(ctx context.Context) (may, known bool) {
	api, ok := b.api.(interface {
		TestIamPermissions(context.Context, *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error)
	})
	if !ok || b.topic == "" {
		return false, false
	}
	bounded, cancel, err := b.begin(ctx, callCheck)
	if err != nil {
		return false, false
	}
	defer cancel()
	b.counts.others.Add(1)
	p, err := api.TestIamPermissions(bounded, &iampb.TestIamPermissionsRequest{Resource: b.topic, Permissions: []string{publish}})
	if err != nil {
		return false, false
	}
	return slices.Contains(p.GetPermissions(), publish), true
}

func setupOf(in *pubsubpb.Subscription) Setup {
	s := Setup{
		Topic: in.GetTopic(), AckDeadline: ackDeadlineOf(in), Retention: retentionOf(in),
		Expiration: defaultExpiration, Ordered: in.GetEnableMessageOrdering(), ExactlyOnce: in.GetEnableExactlyOnceDelivery(),
		Filter: in.GetFilter(), Detached: in.GetDetached(),
	}
	s.MaxReceives, s.DeadLetter = policyOf(in)
	if p := in.GetExpirationPolicy(); p != nil {
		s.Expiration = orElse(p.GetTtl(), 0)
	}
	if p := in.GetRetryPolicy(); p != nil {
		s.MinBackoff, s.MaxBackoff = orElse(p.GetMinimumBackoff(), defaultMinBackoff), orElse(p.GetMaximumBackoff(), maxDeadline)
	}
	switch {
	case in.GetPushConfig().GetPushEndpoint() != "":
		s.Elsewhere = in.GetPushConfig().GetPushEndpoint()
	case in.GetBigqueryConfig().GetTable() != "":
		s.Elsewhere = "BigQuery"
	case in.GetCloudStorageConfig().GetBucket() != "":
		s.Elsewhere = "Cloud Storage"
	case in.GetBigtableConfig().GetTable() != "":
		s.Elsewhere = "Bigtable"
	}
	return s
}

const (
	defaultExpiration = 31 * 24 * time.Hour
	defaultMinBackoff = 10 * time.Second
	// deletedTopic stands in the place of a topic that was deleted.
	deletedTopic = "_deleted-topic_"
	// keptFor is how long a Worker gives back what it keeps in the queue: an hour, but Pub/Sub's
	// longest is this.
	keptFor = maxDeadline
	// shortDeadline is an ack deadline below which an answer that is slow, and a first extension
	// that fails, let a message be delivered twice.
	shortDeadline = 30 * time.Second
	// longDeadline is one above which a message that nobody got is hidden for long.
	longDeadline = 5 * time.Minute
	// shortRetention is less than a weekend's outage.
	shortRetention = 3 * 24 * time.Hour
	maxReceives    = 100
)

// isGone reports whether Pub/Sub says that the topic is not there.
func (b *Broker) isGone(ctx context.Context, topic string) bool {
	bounded, cancel, err := b.begin(ctx, callCheck)
	if err != nil {
		return false
	}
	defer cancel()
	b.counts.others.Add(1)
	_, err = b.api.GetTopic(bounded, &pubsubpb.GetTopicRequest{Topic: topic})
	return codeOf(err) == codes.NotFound
}

// What Pub/Sub's own service agent needs, and which roles include it.
var (
	publishers  = []string{"roles/pubsub.publisher", "roles/pubsub.editor", "roles/pubsub.admin"}
	subscribers = []string{"roles/pubsub.subscriber", "roles/pubsub.editor", "roles/pubsub.admin"}
)

// missing are the grants of the service agent that were looked for and not found.
func (b *Broker) missing(ctx context.Context, deadLetter string) (missing []string) {
	for _, g := range []struct {
		on    string
		roles []string
	}{{deadLetter, publishers}, {b.subscription, subscribers}} {
		if granted, known := b.grants(ctx, g.on, g.roles); known && !granted {
			missing = append(missing, g.roles[0]+" on "+g.on)
		}
	}
	return missing
}

// grants reports whether the resource's own policy gives the service agent one of the roles.
func (b *Broker) grants(ctx context.Context, resource string, roles []string) (granted, known bool) {
	bounded, cancel, err := b.begin(ctx, callCheck)
	if err != nil {
		return false, false
	}
	defer cancel()
	b.counts.others.Add(1)
	p, err := b.api.GetIamPolicy(bounded, &iampb.GetIamPolicyRequest{Resource: resource})
	if err != nil {
		return false, false
	}
	for _, binding := range p.GetBindings() {
		for _, role := range roles {
			if binding.GetRole() != role {
				continue
			}
			for _, member := range binding.GetMembers() {
				if strings.HasPrefix(member, "serviceAccount:service-") && strings.HasSuffix(member, "@gcp-sa-pubsub.iam.gserviceaccount.com") {
					return true, true
				}
			}
		}
	}
	return false, true
}

func (s *Setup) problems(b *Broker, o CheckOptions) []string {
	var ps []string
	say := func(format string, args ...any) { ps = append(ps, fmt.Sprintf(format, args...)) }
	s.unfit(b, say)
	s.losing(o, say)
	name := last(s.DeadLetter)
	switch {
	case o.KeepInQueue && s.MaxReceives == 0:
		say("dead letters are left to the subscription, and it has no dead-letter policy: a job that cannot be done comes back until Pub/Sub drops it after %v", s.Retention)
	case o.KeepInQueue && time.Duration(s.MaxReceives) >= s.Retention/keptFor:
		say("dead letters are left to the subscription, a delivery each %v, and after %v it drops what has not had its %d deliveries: set the retention higher",
			keptFor, s.Retention, s.MaxReceives)
	case !o.KeepInQueue && s.MaxReceives > 0 && o.MaxAttempts < 0:
		say("the subscription moves a message to %s after %d deliveries, and attempts are unlimited", name, s.MaxReceives)
	case !o.KeepInQueue && s.MaxReceives > 0 && o.MaxAttempts > maxReceives/2:
		say("the subscription moves a message to %s after %d deliveries, and MaxAttempts is %d: its highest is %d, and a delivery that never starts a handler counts too: "+
			"remove the policy", name, s.MaxReceives, o.MaxAttempts, maxReceives)
	case !o.KeepInQueue && s.MaxReceives > 0 && o.MaxAttempts > 0 && s.MaxReceives < 2*o.MaxAttempts:
		say("the subscription moves a message to %s after %d deliveries; with MaxAttempts %d set max-delivery-attempts to %d or more, "+
			"because a delivery that never starts a handler counts too", name, s.MaxReceives, o.MaxAttempts, max(5, 2*o.MaxAttempts))
	}
	if s.MaxReceives > 0 && s.Ordered {
		say("the subscription orders messages and has a dead-letter policy: when the first message of a key fails, the worker hands those behind it back, which counts as a delivery of each, "+
			"so after %d failures the policy moves messages that never ran: remove it", s.MaxReceives)
	}
	if s.deadLetterGone {
		say("the dead-letter topic %s is not there: what should be moved there stays", s.DeadLetter)
	}
	for _, grant := range s.Missing {
		say("Pub/Sub's service agent has no %s, unless the project grants it: without it no message is moved to the dead-letter topic", grant)
	}
	return ps
}

// unfit tells what the Broker was made for and the subscription is not set to.
func (s *Setup) unfit(b *Broker, say func(format string, args ...any)) {
	switch {
	case s.Topic == deletedTopic:
		say("the topic was deleted: nothing comes any more, also if one of that name is made again; make the subscription again, too")
	case b.topic != "" && s.Topic != b.topic:
		say("messages are sent to %s, and the subscription is of %s", b.topic, s.Topic)
	}
	if s.Detached {
		say("the subscription is detached from its topic: it gets nothing, and its messages are gone")
	}
	if s.Elsewhere != "" {
		say("the subscription gives its messages to %s, so a pull gets few or none", s.Elsewhere)
	}
	switch {
	case s.Ordered && !b.o.Ordered:
		say("the subscription orders messages, and Options.Ordered is false: the worker runs those of one key at the same time")
	case !s.Ordered && b.o.Ordered:
		say("Options.Ordered is true, and the subscription does not order messages: they come in any order")
	}
	switch {
	case s.MaxReceives > 0 && !b.o.Attempts:
		say("the subscription has a dead-letter policy, so Pub/Sub counts deliveries: set Options.Attempts")
	case s.MaxReceives == 0 && b.o.Attempts:
		say("Options.Attempts is true, and Pub/Sub does not count: there is no dead-letter policy")
	}
}

// losing tells what would lose messages, or deliver them late or twice.
func (s *Setup) losing(o CheckOptions, say func(format string, args ...any)) {
	switch {
	case s.AckDeadline < shortDeadline:
		say("the ack deadline is %v: an answer that is long on its way, or a first extension that fails, lets Pub/Sub deliver a message twice; set 30s", s.AckDeadline)
	case s.AckDeadline > longDeadline:
		say("the ack deadline is %v, and so long a message is hidden that was on its way to a worker that died; set 30s, for workers extend what they hold", s.AckDeadline)
	case o.Visibility > 0 && !isAsLong(s.AckDeadline, o.Visibility):
		say("the ack deadline is %v, and the workers' Visibility is %v: each pull is followed by an extension, which is one more round trip; set the same time", s.AckDeadline, o.Visibility)
	}
	if s.Expiration > 0 {
		say("Pub/Sub deletes the subscription, with its messages, when nobody has used it for %v; set it to never expire", s.Expiration)
	}
	if s.Retention < shortRetention {
		say("Pub/Sub drops messages after %v: an outage that lasts longer loses jobs", s.Retention)
	}
	if o.Retention > 0 && o.Retention < s.Retention {
		say("the workers keep their records for %v, and a message may spend %v in the subscription: a late delivery would be unproven", o.Retention, s.Retention)
	}
	if s.Filter != "" {
		say("Pub/Sub drops messages that do not match the filter %s; it sees attributes alone, so a letter or a replay must have them too", s.Filter)
	}
	if s.MaxBackoff > 0 {
		say("the retry policy holds a message back for %v to %v after each nack, on top of the workers' own delays, and what a worker hands back when it stops waits as well; remove it",
			s.MinBackoff, s.MaxBackoff)
	}
}
