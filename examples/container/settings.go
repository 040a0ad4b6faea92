package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/onceq/onceq"
)

// settings are what the environment says. A worker on SQS has a QUEUE_URL, one on Pub/Sub a
// SUBSCRIPTION. Without either, the program brings its own queue, store and bank.
type settings struct {
	queue, dead    string        // QUEUE_URL, DEAD_LETTER_QUEUE_URL
	subscription   string        // SUBSCRIPTION, projects/PROJECT/subscriptions/NAME
	deadTopic      string        // DEAD_LETTER_TOPIC, projects/PROJECT/topics/NAME
	region         string        // AWS_REGION
	endpoint       *string       // AWS_ENDPOINT_URL_SQS, for LocalStack, sqsfake or a VPC endpoint
	anyKeys        bool          // that server checks none (see checksNoKeys), and AWS_ACCESS_KEY_ID is not set
	postgres, file string        // DATABASE_URL, or DATABASE_FILE for workers on one machine
	keys           string        // FIRESTORE_DATABASE, default "(default)": with a SUBSCRIPTION and neither of these
	bank           string        // BANK_URL
	addr           string        // HTTP_ADDR, default :8080
	admin          string        // ADMIN_ADDR, default none: the operator's page, on a loopback address
	concurrency    int           // CONCURRENCY, default 10
	longPoll       time.Duration // LONG_POLL, default 8s
	grace          time.Duration // STOP_GRACE, default 30s
	patience       time.Duration // UNREADY_AFTER, default 30s
}

// The orchestrator's grace, from SIGTERM to SIGKILL, is spent in this order:
//
//	DrainTimeout    the handlers run on; the poll in flight ends, at most LONG_POLL + 1 s after the signal
//	settleTimeout   their contexts have ended: they return, their jobs are handed back, acks go out
//	margin          the signal's way here, closing the store, the runtime's end
//
// Kubernetes gives terminationGracePeriodSeconds, 30 s unless set, a preStop hook included. ECS
// gives stopTimeout, 30 s unless set, at most 120 s on Fargate. docker stop gives 10 s unless -t
// says more.
const (
	settleTimeout = onceq.DefaultSettleTimeout // 5 s
	margin        = 2 * time.Second
	pollGrace     = time.Second // what awssqs adds to LongPoll for the poll in flight
)

func (s *settings) drainTimeout() time.Duration { return s.grace - settleTimeout - margin }

// least is the shortest grace: some time for the handlers, and the poll in flight must end within
// the drain, or what it brings would stay hidden until its timeout is over.
func (s *settings) least() time.Duration {
	return margin + max(settleTimeout+time.Second, s.longPoll+pollGrace)
}

// checksNoKeys tells a server for tests, by http or this machine's name, from AWS's own behind a
// VPC endpoint: there a task's or a pod's role signs, and no key is in the environment.
func checksNoKeys(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "http" || u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// fromEnvironment reads the settings and tells all that is wrong with them at once.
func fromEnvironment(env func(string) string) (settings, error) {
	var errs []error
	wrong := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s "+format, append([]any{name}, args...)...))
	}
	duration := func(name string, otherwise, least, most time.Duration) time.Duration {
		text := env(name)
		if text == "" {
			return otherwise
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < least || d > most {
			wrong(name, "is %q; it is a duration within %v and %v, such as %v", text, least, most, otherwise)
			return otherwise
		}
		return d
	}
	s := settings{
		subscription: env("SUBSCRIPTION"), deadTopic: env("DEAD_LETTER_TOPIC"),
		queue: env("QUEUE_URL"), dead: env("DEAD_LETTER_QUEUE_URL"), region: env("AWS_REGION"),
		postgres: env("DATABASE_URL"), file: env("DATABASE_FILE"), keys: cmp.Or(env("FIRESTORE_DATABASE"), firestore.DefaultDatabaseID), bank: env("BANK_URL"),
		addr: cmp.Or(env("HTTP_ADDR"), ":8080"), admin: env("ADMIN_ADDR"), concurrency: onceq.DefaultConcurrency,
		longPoll: duration("LONG_POLL", 8*time.Second, time.Second, 20*time.Second),
		grace:    duration("STOP_GRACE", 30*time.Second, time.Second, 24*time.Hour),
		patience: duration("UNREADY_AFTER", 30*time.Second, time.Millisecond, time.Hour),
	}
	if e := env("AWS_ENDPOINT_URL_SQS"); e != "" {
		s.endpoint, s.anyKeys = &e, env("AWS_ACCESS_KEY_ID") == "" && checksNoKeys(e)
	}
	if text := env("CONCURRENCY"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1000 {
			wrong("CONCURRENCY", "is %q; it is a number within 1 and 1000", text)
		}
		s.concurrency = n
	}
	if a, err := netip.ParseAddrPort(s.admin); s.admin != "" && (err != nil || !a.Addr().IsLoopback()) {
		wrong("ADMIN_ADDR", "is %q; it is a loopback address, such as 127.0.0.1:8081, because the page knows nobody", s.admin)
	}
	if s.grace < s.least() {
		wrong("STOP_GRACE", "is %v; with a LONG_POLL of %v it is %v or more", s.grace, s.longPoll, s.least())
	}
	type setting struct{ name, value string }
	queue := "QUEUE_URL"
	needed := []setting{{"DEAD_LETTER_QUEUE_URL", s.dead}, {"AWS_REGION", s.region}}
	switch {
	case s.queue != "" && s.subscription != "":
		wrong("QUEUE_URL", "or SUBSCRIPTION is needed, and not both")
	case s.subscription != "":
		queue, needed = "SUBSCRIPTION", []setting{{"DEAD_LETTER_TOPIC", s.deadTopic}}
	case s.queue == "":
		return s, errors.Join(errs...)
	}
	for _, n := range append(needed, setting{"BANK_URL", s.bank}) {
		if n.value == "" {
			wrong(n.name, "is not set, and %s is", queue)
		}
	}
	if u, err := url.Parse(s.bank); s.bank != "" && (err != nil || u.Host == "") {
		wrong("BANK_URL", "is %q; it is of the form https://host/path", s.bank)
	}
	switch {
	case s.postgres != "" && s.file != "":
		wrong("DATABASE_URL", "or DATABASE_FILE is needed, and not both")
	case s.postgres == "" && s.file == "" && s.subscription == "":
		wrong("DATABASE_URL", "or DATABASE_FILE is needed, because there is no SUBSCRIPTION")
	}
	return s, errors.Join(errs...)
}
