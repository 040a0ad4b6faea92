package localstack

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/internal/rundir"
	"github.com/onceq/onceq/internal/testserver"
)

// A backend is a service that tests can ask for, and how it is started.
type backend struct {
	testserver.Backend
	// ways to start one, the first that works is taken
	ways []way
}

// asked is the back end as a test asks for it. (As a field's value startGuard, which looks into
// backends, would be a cycle.)
func (b *backend) asked() *testserver.Backend {
	asked := b.Backend
	asked.Start = startGuard
	return &asked
}

// backends are the back ends, by name.
var backends = map[string]*backend{
	"postgres": &postgres, "sqs": &sqsBackend, "dynamodb": &dynamoDBBackend, "pubsub": &pubSubBackend,
	"firestore": &firestoreBackend,
}

// A way starts the back end. What is to be ended later is handed to the site's onClose, as soon
// as it is there: a start that fails half-way is ended by it as well.
type way struct {
	how   string
	start func(context.Context, *site) (url string, err error)
	// inside: it starts nothing outside its own process.
	inside bool
}

// How long a back end may take.
const (
	// startLimit bounds the start, in whatever way, pulling an image included.
	startLimit = 6 * time.Minute
	stopLimit  = 20 * time.Second
)

// A site is where one instance lives.
type site struct {
	dir     string // its own, removed afterwards
	variant string // what is special about the instance, in the back end's own words
	version string // what has been started, where it does not tell itself
	closers []func()
}

func (s *site) onClose(f func()) { s.closers = append(s.closers, f) }

func (s *site) close() {
	for _, f := range slices.Backward(s.closers) {
		f()
	}
	s.closers = nil
}

// start tries the ways in turn.
func (b *backend) start(ctx context.Context, s *site, ways []way) rundir.Endpoint {
	var why []string
	for _, w := range ways {
		url, err := w.start(ctx, s)
		var version string
		if err == nil {
			version, err = b.Version(ctx, url, s.variant)
			version = strings.TrimSuffix(version+" "+s.version, " ")
		}
		if err == nil {
			e := rundir.Endpoint{URL: url, Version: version, How: w.how}
			if version == b.StandIn {
				e.StandIn = strings.Join(append(why, w.how+": "+version), "; ")
			}
			return e
		}
		s.close()
		s.version = ""
		why = append(why, w.how+": "+testserver.OneLine(err))
	}
	return rundir.Endpoint{Err: strings.Join(why, "; ")}
}

// firstOf waits for the first of the addresses where a server answers, as ask tells.
func firstOf(ctx context.Context, addrs []string, limit time.Duration, ask func(ctx context.Context, addr string) error) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		var last error
		for _, addr := range addrs {
			try, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := ask(try, addr)
			cancel()
			if err == nil {
				return addr, nil
			}
			last = err
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w; last: %w", context.Cause(ctx), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var numbers = regexp.MustCompile(`\d+`)

// majorIn returns the first number in a text, a path such as /usr/lib/postgresql/15/bin or an
// image's tag; 0 when there is none.
func majorIn(text string) int {
	n, _ := strconv.Atoi(numbers.FindString(text))
	return n
}
