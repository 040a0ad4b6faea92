package testgcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/testserver"
)

// This file owns what a test gets: the server, and a project of its own. Tests of drivers and
// localstack call it, many at once. Nothing is locked here: internal/testserver finds the server
// once for the process.

// PubSubBackend is Pub/Sub, for programs that start none.
var PubSubBackend = testserver.Backend{Name: "pubsub", Version: pubSubVersion}

// A PubSub is a server of Pub/Sub's API that all tests of a run share: each has a project of its
// own there, from [PubSub.Project].
type PubSub struct {
	// Addr is its address, host:port, as Google's clients want it in PUBSUB_EMULATOR_HOST: gRPC
	// without TLS.
	Addr string
	// Version is the server's, such as "Pub/Sub emulator 0.8.20". It is "Pub/Sub emulator" where
	// the environment names one, which does not tell, and "Pub/Sub" for another server.
	Version string
	// Kind is "emulator" for Google's, else "pubsub": servers differ from Google's own, each in
	// its own way.
	Kind string
}

// NewPubSub returns the server.
func NewPubSub(t testing.TB) *PubSub {
	t.Helper()
	return OnPubSub(t, &PubSubBackend)
}

// OnPubSub is NewPubSub on what the back end b finds.
func OnPubSub(t testing.TB, b *testserver.Backend) *PubSub {
	t.Helper()
	e := b.Get(t, "")
	s := &PubSub{Addr: e.URL, Version: e.Version, Kind: "pubsub"}
	if strings.HasPrefix(e.Version, PubSubEmulator) {
		s.Kind = "emulator"
	}
	return s
}

// PubSubEmulator begins the version of Google's emulator.
const PubSubEmulator = "Pub/Sub emulator"

// longestProject is Google's limit of a project's id.
const longestProject = 30

// Project returns the id of a project that nobody has used, for topics and subscriptions of the
// test's own: "onceq-…". When the test ends, its subscriptions and topics are deleted, because one
// that pushes would go on for ever.
func (s *PubSub) Project(t testing.TB) string {
	t.Helper()
	id := projectID(t.Name())
	t.Cleanup(func() {
		// the test's own context has ended
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := empty(ctx, s.Addr, "projects/"+id); err != nil {
			t.Errorf("backend pubsub: deleting what the test made: %v", err)
		}
	})
	return id
}

// projectID returns a new id, which tells the test.
func projectID(test string) string {
	word := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(test))
	id := "onceq-" + strings.ToLower(rand.Text())[:10] + "-" + word
	return strings.TrimRight(id[:min(len(id), longestProject)], "-")
}

// empty deletes the subscriptions of a project, and then its topics.
func empty(ctx context.Context, addr, project string) error {
	for _, what := range []struct{ service, list, remove string }{
		{"Subscriber", "ListSubscriptions", "DeleteSubscription"},
		{"Publisher", "ListTopics", "DeleteTopic"},
	} {
		for {
			page, err := call(ctx, addr, "google.pubsub.v1."+what.service+"/"+what.list, project)
			if err != nil {
				return err
			}
			names, err := firstFields(page)
			if err != nil {
				return fmt.Errorf("%s: %w", what.list, err)
			}
			if len(names) == 0 {
				break
			}
			for _, name := range names {
				_, err := call(ctx, addr, "google.pubsub.v1."+what.service+"/"+what.remove, name)
				if status := (*statusError)(nil); err != nil && (!errors.As(err, &status) || status.code != notFound) {
					return err
				}
			}
		}
	}
	return nil
}

// pubSubVersion asks the server at the address what it is, and whether it serves Pub/Sub.
func pubSubVersion(ctx context.Context, addr, _ string) (string, error) {
	return serves(ctx, addr, "google.pubsub.v1.Publisher/ListTopics", "projects/onceq-start", PubSubEmulator, "Pub/Sub")
}

// serves makes a call that only reads, on the name, and returns which of the two the server is.
func serves(ctx context.Context, addr, method, name, emulator, other string) (string, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil || strings.Contains(addr, "/") {
		return "", errors.New("the address is not of the form host:port")
	}
	if _, err := call(ctx, addr, method, name); err != nil {
		return "", err
	}
	// Google's emulators alone answer a browser
	if text, err := browse(ctx, http.MethodGet, "http://"+addr+"/"); err == nil && text == "Ok" {
		return emulator, nil
	}
	return other, nil
}

// browse returns what a server answers to a request of HTTP/1.1.
func browse(ctx context.Context, method, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", err
	}
	// no proxy, and no connection that stays
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Do(req)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	err = cmp.Or(err, res.Body.Close())
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, res.Status, text)
	}
	return strings.TrimSpace(string(text)), err
}
