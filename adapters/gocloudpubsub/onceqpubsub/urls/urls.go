package urls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
)

// The schemes.
const (
	SQSScheme    = "onceq+sqs"
	PubSubScheme = "onceq+gcppubsub"
	MemoryScheme = "onceq+mem"
)

// An opener is what a program registers.
type opener interface {
	RegisterWith(mux *pubsub.URLMux)
	OpenTopicURL(ctx context.Context, u *url.URL) (*pubsub.Topic, error)
	OpenSubscriptionURL(ctx context.Context, u *url.URL) (*pubsub.Subscription, error)
}

// query reads the parameters of a URL. The first error stays.
type query struct {
	what  string
	url   *url.URL
	left  url.Values
	known []string
	err   error
}

// read begins to read a URL, of which a scheme, a host and a path may be there.
func read(what string, u *url.URL) *query {
	q := &query{what: what, url: u}
	var err error
	q.left, err = url.ParseQuery(u.RawQuery)
	switch {
	case err != nil:
		q.fail(fmt.Errorf("its query: %w", err))
	case u.User != nil:
		q.fail(errors.New("it has a user; credentials belong to the opener's client"))
	case u.Fragment != "":
		q.fail(fmt.Errorf("it has a fragment, %q", u.Fragment))
	case u.Opaque != "":
		q.fail(errors.New("// is missing behind the scheme"))
	}
	return q
}

func (q *query) fail(err error) {
	q.err = cmp.Or(q.err, err)
}

func (q *query) take(name string) (string, bool) {
	q.known = append(q.known, name)
	all, ok := q.left[name]
	delete(q.left, name)
	if len(all) > 1 {
		q.fail(fmt.Errorf("query parameter %q comes %d times", name, len(all)))
	}
	if !ok {
		return "", false
	}
	return all[0], true
}

func (q *query) flag(name string, to *bool) {
	if text, ok := q.take(name); ok {
		v, err := strconv.ParseBool(text)
		if err != nil {
			q.fail(fmt.Errorf("query parameter %q is %q, want true or false", name, text))
		}
		*to = v
	}
}

func (q *query) duration(name string, to *time.Duration) {
	if text, ok := q.take(name); ok {
		v, err := time.ParseDuration(text)
		if err != nil {
			q.fail(fmt.Errorf("query parameter %q is %q, want a time such as 30s", name, text))
		}
		*to = v
	}
}

// subscription reads what every subscription may be told.
func (q *query) subscription(o *onceqpubsub.SubscriptionOptions) {
	q.duration("visibility", &o.Visibility)
	q.duration("maxhold", &o.MaxHold)
	q.duration("wait", &o.Wait)
	q.duration("nackdelay", &o.NackDelay)
}

// end is the first error, or what is left over.
func (q *query) end() error {
	for _, name := range slices.Sorted(maps.Keys(q.left)) {
		can := "there are none here"
		if len(q.known) > 0 {
			slices.Sort(q.known)
			can = "known are " + strings.Join(q.known, ", ")
		}
		q.fail(fmt.Errorf("query parameter %q is unknown; %s", name, can))
	}
	return q.wrap(q.err)
}

func (q *query) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("urls: %s %s: %w", q.what, q.url.Redacted(), err)
}

// then calls both.
func then(first, second func() error) func() error {
	if second == nil {
		return first
	}
	return func() error { return errors.Join(first(), second()) }
}
