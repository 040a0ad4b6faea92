package cli

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/must"
)

// completed is what a shell is offered after the words; the last one is being typed.
func (r *rig) completed(words ...string) []string {
	r.Helper()
	a := r.run(append([]string{"__complete"}, words...)...).want(0)
	var l []string
	for line := range strings.Lines(a.out) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, ":") {
			l = append(l, line)
		}
	}
	return l
}

func (r *rig) wantOffers(want string, words ...string) {
	r.Helper()
	if got := strings.Join(r.completed(words...), " "); got != want {
		r.Errorf("onceq %s: offers %q, want %q", strings.Join(words, " "), got, want)
	}
}

// everyRule is a version that no rules have yet: a worker with it follows at once.
const everyRule = 1 << 40

func follows(c *control.WorkerStatus) { c.Rules = everyRule }

// at takes a seat at another queue.
func (r *rig) at(queue, owner string, types ...string) {
	r.Helper()
	s := must.Get(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: queue, Owner: owner}))
	r.beat(s, func(c *control.WorkerStatus) { c.Scope, c.Types, c.Rules = queue, types, everyRule })
}

// TestCompleteFromCards: a shell is offered what the workers' cards tell: queues, workers, types,
// scopes, and the rules in force.
func TestCompleteFromCards(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.patience = time.Minute
	r.seat("w-1/1", func(c *control.WorkerStatus) { c.Types, c.Rules = []string{"charge", "refund"}, everyRule })
	r.seat("w-2/1", follows)
	r.at("mails", "m-1/1", "welcome")

	r.wantOffers("orders mails", "workers", "")
	r.wantOffers("orders mails", "jobs", "running", "")
	r.wantOffers("orders mails", "queue", "pause", "")
	r.wantOffers("orders", "queue", "show", "") // it is to be reached, and no card has its URL
	r.wantOffers("orders", "dlq", "replay", "")
	r.wantOffers("w-1/1 w-2/1", "workers", "orders", "")
	r.wantOffers("w-2/1", "workers", "orders", "w-1/1", "")
	r.wantOffers("m-1/1", "workers", "mails", "")
	r.wantOffers("", "workers", "nowhere", "")
	r.wantOffers("charge refund", "queue", "pause", "orders", "--type", "")
	r.wantOffers("charge refund", "dlq", "ls", "orders", "--type", "")
	r.wantOffers("welcome", "queue", "pause", "mails", "--type", "")
	r.wantOffers("orders orders:charge orders:refund", "queue", "pause", "orders", "--scope", "")
	r.wantOffers("orders orders:charge orders:refund", "key", "show", "")
	r.wantOffers("orders orders:charge orders:refund", "key", "ls", "--scope", "")
	r.wantOffers("orders", "key", "show", "--queue", "")
	r.wantOffers("", "key", "show", "orders:charge", "")

	var f followedView
	r.run("--yes", "-o", "json", "queue", "pause", "orders", "--for", "1h", "--reason", "the bank is down").want(0).json(&f)
	r.wantOffers(f.Rules[0].ID+"\tpause the queue by ana: the bank is down", "queue", "resume", "orders", "")
	r.wantOffers("", "queue", "resume", "orders", f.Rules[0].ID, "")

	delete(r.env, "ONCEQ_CONFIG")
	r.wantOffers("", "workers", "")
	r.env["ONCEQ_STORE"] = r.storeURL
	r.wantOffers("mails orders", "workers", "")
	r.wantOffers("mails mails:welcome orders orders:charge orders:refund", "key", "show", "")
	r.env["ONCEQ_CONFIG"] = "/nowhere/at/all"
	r.wantOffers("", "workers", "")
}

// TestCompleteHostile: a card that names a command does not have a shell run it.
func TestCompleteHostile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.patience = time.Minute
	r.seat("$(touch x)", func(c *control.WorkerStatus) { c.Types = []string{"`id`", "a b", "x;y", "ok", "c\u009b2J", "q'"} })
	r.at("$(touch y)", "w-1/1")
	r.wantOffers("ok", "queue", "pause", "orders", "--type", "")
	r.wantOffers("", "workers", "orders", "")
	r.wantOffers("orders", "workers", "")
}

// TestCompleteSilent: a store that takes calls and never answers keeps no shell waiting, and the
// names of the profile come all the same.
func TestCompleteSilent(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	defer func() { _ = l.Close() }()
	for _, store := range []string{
		"postgres://app@" + l.Addr().String() + "/x?sslmode=disable",
		"dynamodb://records?region=eu-central-1&endpoint=http://" + l.Addr().String(),
		"postgres://app@127.0.0.1:1/x", "sqlite:///nowhere/keys.db", "frob:",
	} {
		r := &rig{T: t, env: map[string]string{"ONCEQ_STORE": store}, dir: t.TempDir(), now: time.Now, patience: 20 * time.Millisecond}
		r.config("profiles:\n  p:\n    queues:\n      orders: {url: 'sqs://orders', scopes: [shop]}\n")
		r.wantOffers("orders", "workers", "")
		r.wantOffers("", "workers", "orders", "")
		r.wantOffers("shop", "key", "show", "")
	}
}

// TestOnlyCardsNameIt: commands that ask the store alone take a queue that only its workers name.
func TestOnlyCardsNameIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.at("mails", "m-1/1", "welcome")
	r.run("workers", "mails").want(0, "m-1/1")
	r.run("workers", "mails", "m-1/1").want(0, "m-1/1")
	r.run("workers", "mails", "m-1/2").want(1, "no worker m-1/2 has a seat at mails: did you mean m-1/1?")
	r.run("jobs", "running", "mails").want(0, "B-12")
	r.run("workers", "mail").want(2, `profile test has no queue "mail"; there is orders; and no worker has a seat at it`)
	r.run("workers", "order").want(2, `no queue "order": did you mean orders?; and no worker`)
	r.run("queue", "show", "mails").want(2, `no queue "mails"`)
	pause := []string{"--yes", "queue", "pause", "mails", "--for", "1h", "--reason", "x"}
	r.run(append(pause, "--type", "welcome")...).want(5, "only the workers' cards name mails", "--force")
	r.run(pause...).want(0, "mails paused until", "all 1 workers follow")
	if rules, err := controlstore.Read(t.Context(), r.store); err != nil || len(rules.Rules) != 1 || rules.Rules[0].Queue != "mails" {
		t.Errorf("%+v %v", rules, err)
	}
	r.run("--yes", "queue", "resume", "mails", "--reason", "x").want(0, "1 rule ended")
}

// TestWorkersOwnName: a profile may call a queue otherwise than its workers do.
func TestWorkersOwnName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config(strings.ReplaceAll(r.file, "      orders:\n", "      shop:\n"))
	r.seat("w-1/1", nil)
	r.run("workers", "shop").want(0, "w-1/1")
	r.run("jobs", "running", "shop").want(0, "B-12")
	r.run("key", "show", "--queue", "shop", "A-1").want(1, "no record of A-1 in orders")
}
