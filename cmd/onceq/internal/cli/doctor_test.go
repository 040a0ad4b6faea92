package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// healthy is a card whose settings fit the rig's queue.
func healthy(c *control.WorkerStatus) {
	c.Retention, c.Interrupted, c.MaxAttempts, c.DrainTimeout, c.Jobs = dedupe.DefaultRetention, "rerun", 10, 20*time.Second, nil
}

// newDoctored makes a rig in which nothing is to be found: letters outlast the queue.
func newDoctored(t *testing.T) *rig {
	r := newRig(t)
	r.attribute("orders-dead", "MessageRetentionPeriod", "1209600")
	return r
}

// TestDoctor: exit 0 where nothing is found, 1 with findings, and each finding has what mends it.
func TestDoctor(t *testing.T) {
	r := newDoctored(t)
	r.seat("w-1/1", healthy)
	r.run("doctor", "orders").want(0, "reach", "40 receives for 10 attempts", "messages 4d, letters 14d, keys 31d").not("FOUND")

	r.attribute("orders-dead", "MessageRetentionPeriod", "345600")
	r.seat("w-2/1", func(c *control.WorkerStatus) {
		healthy(c)
		c.Scope, c.MaxAttempts = "order", 30
	})
	var cs []checkupView
	r.run("doctor", "orders", "-o", "json").want(1).json(&cs)
	mends := map[string]string{}
	for _, c := range cs {
		if c.State == "found" {
			mends[c.Check] += c.Mend
		}
	}
	for check, mend := range map[string]string{
		"sqs": "--attributes MessageRetentionPeriod=1209600", "settings": "one ProcessorConfig.Scope", "receives": `\"maxReceiveCount\":\"60\"`,
	} {
		if !strings.Contains(mends[check], mend) {
			t.Errorf("%s: no %q in %q", check, mend, mends[check])
		}
	}
	if len(mends) != 3 {
		t.Errorf("found %v", mends)
	}
}

// TestDoctorCard: a deployment is checked before it is there, against the queue, the store and the
// workers that live; a card that says too little is refused with the field's name.
func TestDoctorCard(t *testing.T) {
	r := newDoctored(t)
	r.seat("w-1/1", healthy)
	r.run("workers", "orders", "-o", "json").want(0)
	file := filepath.Join(r.dir, "card.json")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(r.run("workers", "orders", "-o", "json").want(0).out)
	r.run("doctor", "orders", "--card", file).want(0, "not there yet", "rights are those of whoever runs this").not("FOUND")

	write(`{"scope":"order","retention":86400,"max_attempts":25,"drain_timeout":1}`)
	r.run("doctor", "orders", "--card", file).want(1, "MaxAttempts is 25", "differ in Scope", "keys are kept for 1d", "a deploy would cut 4 % of the jobs of type charge")
	for text, want := range map[string]string{
		`{"retention":86400,"max_attempts":25,"drain_timeout":1}`:                              "scope is empty",
		`{"scope":"a","retention":1,"max_attempts":25,"drain_timeout":1}`:                      "retention is 1s, want 60",
		`{"scope":"a","retention":86400,"drain_timeout":1}`:                                    "max_attempts is missing",
		`{"scope":"a","retention":86400,"max_attempts":1}`:                                     "drain_timeout is missing",
		`{"scope":"a","retention":86400,"max_attempts":1,"drain_timout":1}`:                    `unknown field "drain_timout"`,
		`{"scope":"a","retention":86400,"max_attempts":1,"drain_timeout":1,"interrupted":"x"}`: `interrupted is "x"`,
		`[]`: "it has 0 workers", `{`: "invalid character",
	} {
		write(text)
		r.run("doctor", "orders", "--card", file).want(2, want)
	}
	r.run("doctor", "orders", "--card", filepath.Join(r.dir, "none.json")).want(2, "none.json")
	r.run("doctor", "orders", "--not-before", "-1h").want(2, "--not-before")
}

// TestDoctorAway: a store that is away ends its own checks alone, and is no finding: exit 3.
func TestDoctorAway(t *testing.T) {
	r := newDoctored(t)
	r.env["ONCEQ_STORE"] = "postgres://u:secret@127.0.0.1:1/db?connect_timeout=1"
	r.run("doctor", "orders", "--timeout", "20s").want(3, "the store could not be reached", "queue in").not("FOUND", "secret")
}

// TestDoctorWrites: without --write the store is as it was, and --write leaves nothing there.
func TestDoctorWrites(t *testing.T) {
	r := newDoctored(t)
	r.seat("w-1/1", healthy)
	count := func() (n int) {
		for rec, err := range r.store.List(t.Context(), dedupe.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			if rec.Key.Scope != controlstore.ScopeWorker {
				n++
			}
		}
		return n
	}
	r.run("doctor", "orders").want(0, "--write")
	r.run("doctor", "orders", "--write").want(0, "may claim, finish and remove a key")
	if n := count(); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

// attribute sets an attribute of a queue.
func (r *rig) attribute(queue, name, value string) {
	r.Helper()
	client := testaws.FakeClient(r.server)
	url, err := awssqs.Find(r.Context(), client, queue)
	if err == nil {
		_, err = client.SetQueueAttributes(r.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: map[string]string{name: value}})
	}
	if err != nil {
		r.Fatal(err)
	}
}
