package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	pauses "github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/sdkhttp"
)

const (
	// maxTries of one request take about half a minute; most contexts end before.
	maxTries = 12
	// A try takes half of what is left of the call's time, so that a lost packet leaves room for a
	// repeat.
	minTry = 500 * time.Millisecond
	maxTry = 10 * time.Second
	// The default client of the SDK keeps 10 idle connections to a host, and opens a new one, with
	// its handshake, for each further write of a batch.
	poolPerHost = 2 * maxBatch
	pool        = sdkhttp.Pool(poolPerHost)
)

// copyOf is the client that the store calls: with retries, connections and clock of its own.
func (s *Store) copyOf(c *dynamodb.Client) *dynamodb.Client {
	return dynamodb.New(c.Options(), func(o *dynamodb.Options) {
		o.HTTPClient = sdkhttp.Sound(widened(o.HTTPClient))
		// The retries of all callers share no allowance: many failing claims must not use up that
		// of renewals.
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = maxTries
			o.RateLimiter = ratelimit.None
			o.Backoff = retry.BackoffDelayerFunc(func(n int, _ error) (time.Duration, error) { return pauses.Pause(n), nil })
		})
		o.RetryMaxAttempts = 0
		o.APIOptions = append(o.APIOptions, s.boundTries, s.readDates)
	})
}

// widened is a copy that keeps as many connections open as there are writes at once. A client of
// another kind, which the user has built, is shared.
func widened(c dynamodb.HTTPClient) dynamodb.HTTPClient {
	switch c := c.(type) {
	case *awshttp.BuildableClient:
		return c.WithTransportOptions(pool.Widen)
	case *http.Client:
		return pool.Separate(c)
	}
	return c
}

// boundTries gives each try its time, because the SDK itself waits for an answer until the call's
// context ends. A request that was a guess, and is known to be wrong, is not tried again.
func (s *Store) boundTries(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("onceqBoundTries",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			d := maxTry
			if end, ok := ctx.Deadline(); ok {
				d = min(d, max(minTry, time.Until(end)/2))
			}
			try, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			out, meta, err := next.HandleFinalize(try, in)
			if lost, ok := ctx.Value(lostKey{}).(*atomic.Bool); ok && err != nil && !refusedBy(err) {
				lost.Store(true)
			}
			if err != nil && try.Err() != nil && ctx.Err() == nil && !answeredBy(err) {
				err = &tryError{after: d, cause: err}
			}
			if err != nil && !errors.As(err, new(*types.ConditionalCheckFailedException)) && s.clock.isDisproved(ctx) {
				err = fmt.Errorf("%w: %v", errMisled, err) //nolint:errorlint // hides what the SDK would repeat
			}
			return out, meta, err
		}), (*retry.Attempt)(nil).ID(), middleware.After)
}

// answeredBy reports whether err is the service's word. The SDK also gives a response if none came,
// and that one has no status.
func answeredBy(err error) bool {
	var re *smithyhttp.ResponseError
	return errors.As(err, &re) && re.HTTPStatusCode() != 0
}

// refusedBy reports whether err is the service's word that it has done nothing.
func refusedBy(err error) bool {
	var re *smithyhttp.ResponseError
	return errors.As(err, &re) && re.HTTPStatusCode() >= http.StatusBadRequest && re.HTTPStatusCode() < http.StatusInternalServerError
}

// tryError is a try that was given up. It hides that its own context has ended, because the call's
// has not.
type tryError struct {
	after time.Duration
	cause error
}

func (e *tryError) Error() string        { return fmt.Sprintf("no answer within %v: %v", e.after, e.cause) }
func (e *tryError) RetryableError() bool { return true }

// readDates gives the clock the Date of each answer, errors among them.
func (s *Store) readDates(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("onceqReadDates",
		func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			sent, began := s.clock.host(), time.Now()
			out, meta, err := next.HandleDeserialize(ctx, in)
			if date, ok := dateOf(out.RawResponse); ok {
				s.clock.observe(date, sent, s.clock.host(), time.Since(began))
			} else if err == nil || errors.As(err, new(*types.ConditionalCheckFailedException)) {
				s.clock.assume()
			}
			return out, meta, err
		}), middleware.Before)
}

// dateOf is the service's time in an answer. An answer with an Age comes out of a cache. One
// without a request's id comes from a proxy on the way, which has another clock than the service.
func dateOf(raw any) (t time.Time, ok bool) {
	res, ok := raw.(*smithyhttp.Response)
	if !ok || res == nil || res.Response == nil || res.Header.Get("Age") != "" || res.Header.Get("X-Amzn-Requestid") == "" {
		return t, false
	}
	t, err := smithyhttp.ParseTime(res.Header.Get("Date"))
	return t, err == nil
}
