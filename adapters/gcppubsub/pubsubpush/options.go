package pubsubpush

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/safelog"
)

// This file owns the options, and how the time of a request is divided. New calls complete, once,
// and each request calls plan. The options never change after that, so nothing is locked.

// The defaults, and what an Options may ask for.
const (
	// MinAckDeadline and MaxAckDeadline are what Pub/Sub allows.
	MinAckDeadline = 10 * time.Second
	MaxAckDeadline = 600 * time.Second
	// DefaultReserve is what is kept of a request's time for its end, but never more than a quarter
	// of AckDeadline.
	DefaultReserve = 5 * time.Second
	// DefaultMaxBody is how many bytes a request may have. A message of Pub/Sub has 10 MB at most,
	// and an envelope has it in base64.
	DefaultMaxBody = 16 << 20

	// minTime is what a handler must have left, but never more than a tenth of the time until the
	// handlers' contexts end.
	minTime = time.Second
	// maxReserve is the longest that makes sense: a quarter of the longest deadline.
	maxReserve = MaxAckDeadline / 4
)

// Options set up a Handler. Auth and AckDeadline are required.
type Options struct {
	// Auth says who may push: OIDC, IAM or None. Required; there is no default, because a handler
	// that believes anybody runs jobs for anybody.
	Auth Auth
	// AckDeadline is the subscription's acknowledgement deadline: 10 s to 600 s. Required, because
	// a request does not tell it. Pub/Sub takes a request that lasts longer for a failure and sends
	// the message again. A push cannot be extended, so handlers must end earlier: see Reserve.
	// Handler.Check compares it with the subscription. Eventarc makes subscriptions with 10 s.
	AckDeadline time.Duration
	// Reserve is what is kept of AckDeadline for the end of a request. The handlers' contexts end
	// that long before it. What they did is recorded and answered in the time that is left. Default
	// 5 s; 1 ms to 150 s, and never more than a quarter of AckDeadline.
	Reserve time.Duration
	// MaxBody is how many bytes a request may have; a larger one gets a 413. 0 = DefaultMaxBody.
	MaxBody int64
	// Subscription is the only one that may push, "projects/P/subscriptions/S". A request of
	// another one, or one that does not say, gets a 403. Default: any. It is no proof of who sends:
	// Auth is.
	Subscription string
	// Attributes are the names of those headers that are attributes of the message, where the
	// subscription unwraps payloads and writes metadata. Pub/Sub sends each attribute as a header
	// then, among those of HTTP and of proxies, so that nobody can tell them apart. The attributes
	// have the names as they are written here. onceq's own need no mention. Default: none.
	Attributes []string
	// Logger gets one warning for each request that is refused; what becomes of jobs the Processor
	// logs itself. nil = slog.Default, as it is when the Handler is made.
	// slog.New(slog.DiscardHandler) silences it. One that panics loses its line.
	Logger *slog.Logger
}

// complete fills in the defaults and checks the rest.
func (o Options) complete(b *onceq.Batches) (Options, error) {
	if o.MaxBody == 0 {
		o.MaxBody = DefaultMaxBody
	}
	o.Logger = safelog.New(o.Logger)
	switch {
	case b == nil:
		return o, errors.New("pubsubpush: New: the Batches are nil; onceq.Processor.Batches makes them")
	case o.Auth == nil:
		return o, errors.New("pubsubpush: Options.Auth is nil: say who may push by OIDC, IAM or None")
	case o.AckDeadline == 0:
		return o, errors.New("pubsubpush: Options.AckDeadline is 0: a request does not tell it, so say the subscription's (Eventarc's have 10 s)")
	case o.AckDeadline < MinAckDeadline || o.AckDeadline > MaxAckDeadline:
		return o, fmt.Errorf("pubsubpush: Options.AckDeadline: %v is not within %v and %v", o.AckDeadline, MinAckDeadline, MaxAckDeadline)
	case durations.IsBare(o.Reserve):
		return o, fmt.Errorf("pubsubpush: Options.Reserve: %s", durations.AskUnit(o.Reserve))
	case o.Reserve < 0 || o.Reserve > maxReserve:
		return o, fmt.Errorf("pubsubpush: Options.Reserve: %v is not within 0 and %v", o.Reserve, maxReserve)
	case o.MaxBody < 1:
		return o, fmt.Errorf("pubsubpush: Options.MaxBody is %d, want 1 or more", o.MaxBody)
	case o.Subscription != "" && !isSubscription(o.Subscription):
		return o, fmt.Errorf("pubsubpush: Options.Subscription: %q is not of the form projects/P/subscriptions/S", o.Subscription)
	}
	for _, name := range o.Attributes {
		if name == "" || strings.HasPrefix(strings.ToLower(name), metadataPrefix) || strings.EqualFold(name, "authorization") {
			return o, fmt.Errorf("pubsubpush: Options.Attributes: the header %q is no attribute", name)
		}
	}
	return o, nil
}

func isSubscription(name string) bool {
	parts := strings.Split(name, "/")
	return len(parts) == 4 && parts[0] == "projects" && parts[1] != "" && parts[2] == "subscriptions" && parts[3] != ""
}

// times are those of one request.
type times struct {
	half  time.Time // what begins after it is not to blame when its time is over
	start time.Time // nothing begins after it
	cut   time.Time // the handlers' contexts end
	until time.Time // all is recorded
	least time.Duration
}

// plan divides the time of a request that began at the time begin.
func (o *Options) plan(begin time.Time) times {
	reserve := o.reserve(o.AckDeadline)
	end := begin.Add(o.AckDeadline)
	t := times{cut: end.Add(-reserve), until: end.Add(-reserve / 5)}
	t.least = min(minTime, t.cut.Sub(begin)/10)
	t.start = t.cut.Add(-t.least)
	t.half = begin.Add(t.cut.Sub(begin) / 2)
	return t
}

// reserve is what is kept of a time for its end.
func (o *Options) reserve(of time.Duration) time.Duration {
	reserve := o.Reserve
	if reserve == 0 {
		reserve = DefaultReserve
	}
	return max(0, min(reserve, of/4))
}
