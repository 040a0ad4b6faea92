package awssqs_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
)

func arnOf(url string) string {
	p := strings.Split(url, "/")
	return "arn:aws:sqs:us-east-1:" + p[len(p)-2] + ":" + p[len(p)-1]
}

func TestFind(t *testing.T) {
	c := fakeClient(fake(t, nil))
	url := makeQueue(t, c, false, nil)
	name := url[strings.LastIndexByte(url, '/')+1:]
	for _, by := range []string{name, arnOf(url)} {
		if got, err := awssqs.Find(t.Context(), c, by); got != url || err != nil {
			t.Errorf("%s is at %q, %v; want %q", by, got, err, url)
		}
	}
	if _, err := awssqs.Find(t.Context(), c, "nothing"); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("a missing queue was answered: %v", err)
	}
	if _, err := awssqs.Find(t.Context(), c, "arn:aws:sns:us-east-1:1:topic"); err == nil {
		t.Error("a topic was found")
	}
}

func TestRedrivePolicy(t *testing.T) {
	c := fakeClient(fake(t, nil))
	dlq := makeQueue(t, c, false, nil)
	for policy, want := range map[string]int{
		"": 0,
		`{"deadLetterTargetArn":%q,"maxReceiveCount":7}`:   7,
		`{"deadLetterTargetArn":%q,"maxReceiveCount":"9"}`: 9,
	} {
		as := map[string]string{"MessageRetentionPeriod": "86400"}
		target := ""
		if policy != "" {
			target = arnOf(dlq)
			as["RedrivePolicy"] = fmt.Sprintf(policy, target)
		}
		p, err := makeBroker(t, c, makeQueue(t, c, false, as), nil).Redrive(t.Context())
		if p != (broker.RedrivePolicy{MaxReceives: want, Target: target, Retention: 24 * time.Hour}) || err != nil {
			t.Errorf("the policy %s came as %+v, %v", policy, p, err)
		}
	}
	b, _ := stubbed(t, stubURL, nil, func(stubCall) stubAnswer { return stubAnswer{out: object{"Attributes": object{"RedrivePolicy": "{"}}} })
	if _, err := b.Redrive(t.Context()); err == nil {
		t.Error("a policy that cannot be read is none")
	}
}

func TestCheck(t *testing.T) {
	const day = 24 * time.Hour
	c := fakeClient(fake(t, nil))
	dlqOf := func(retention time.Duration, receives int) map[string]string {
		dlq := makeQueue(t, c, false, map[string]string{"MessageRetentionPeriod": inSeconds(retention)})
		return map[string]string{
			"MessageRetentionPeriod": inSeconds(4 * day),
			"RedrivePolicy":          fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, arnOf(dlq), receives),
		}
	}
	for name, x := range map[string]struct {
		as   map[string]string
		o    awssqs.CheckOptions
		says []string
	}{
		"as it should be":     {dlqOf(14*day, 20), awssqs.CheckOptions{MaxAttempts: 10, Retention: 31 * day, MaxMessage: 1 << 20}, nil},
		"too few receives":    {dlqOf(14*day, 19), awssqs.CheckOptions{MaxAttempts: 10}, []string{"maxReceiveCount to 20"}},
		"unlimited attempts":  {dlqOf(14*day, 1000), awssqs.CheckOptions{MaxAttempts: -1}, []string{"unlimited"}},
		"kept in the queue":   {dlqOf(14*day, 3), awssqs.CheckOptions{MaxAttempts: 10, KeepInQueue: true}, nil},
		"for long enough":     {dlqOf(14*day, 95), awssqs.CheckOptions{KeepInQueue: true}, nil},
		"and dropped":         {dlqOf(14*day, 96), awssqs.CheckOptions{KeepInQueue: true}, []string{"below 96"}},
		"and has nowhere":     {nil, awssqs.CheckOptions{MaxAttempts: 10, KeepInQueue: true}, []string{"no redrive policy"}},
		"letters that expire": {dlqOf(4*day, 100), awssqs.CheckOptions{MaxAttempts: 10}, []string{"as soon as it is there"}},
		"records that expire": {dlqOf(14*day, 100), awssqs.CheckOptions{MaxAttempts: 10, Retention: 17 * day}, []string{"unproven"}},
		"the most attempts":   {dlqOf(14*day, 1000), awssqs.CheckOptions{MaxAttempts: math.MaxInt}, []string{"maxReceiveCount to 18446744073709551614"}},
		"kept for ever":       {dlqOf(14*day, 3), awssqs.CheckOptions{Retention: math.MaxInt64, MaxMessage: math.MaxInt}, []string{"are to be sent"}},
		"a function":          {dlqOf(14*day, 100), awssqs.CheckOptions{FunctionTimeout: 5 * time.Second}, nil},
		"a longer function":   {dlqOf(14*day, 100), awssqs.CheckOptions{FunctionTimeout: 6 * time.Second}, []string{"function's timeout is 6s"}},
		"the longest":         {dlqOf(14*day, 100), awssqs.CheckOptions{FunctionTimeout: math.MaxInt64}, []string{"function's timeout"}},
		"small and late":      {map[string]string{"MaximumMessageSize": "1024", "DelaySeconds": "5"}, awssqs.CheckOptions{MaxMessage: 1025}, []string{"1024 bytes", "delays each message"}},
	} {
		s, ps, err := makeBroker(t, c, makeQueue(t, c, false, x.as), nil).Check(t.Context(), x.o)
		if err != nil {
			t.Fatal(err)
		}
		if len(ps) != len(x.says) {
			t.Errorf("%s: %q; want %q in it", name, ps, x.says)
			continue
		}
		for i, says := range x.says {
			if !strings.Contains(ps[i], says) {
				t.Errorf("%s: %q; want %q in it", name, ps, says)
			}
		}
		if s.Visibility != 30*time.Second || s.Retention != 4*day || x.as["RedrivePolicy"] != "" && s.DeadLetterRetention < 4*day {
			t.Errorf("%s: %+v", name, s)
		}
	}
	// FIFO dead letters are counted anew, so the same retention is no trap.
	dlq := makeQueue(t, c, true, nil)
	url := makeQueue(t, c, true, map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":100}`, arnOf(dlq))})
	if _, ps, err := makeBroker(t, c, url, nil).Check(t.Context(), awssqs.CheckOptions{MaxAttempts: 10}); len(ps) > 0 || err != nil {
		t.Errorf("on FIFO: %q, %v", ps, err)
	}
	for name, x := range map[string]struct {
		url  string
		says int
	}{"FIFO": {url, 1}, "standard": {makeQueue(t, c, false, nil), 0}} {
		s, ps, err := makeBroker(t, c, x.url, nil).Check(t.Context(), awssqs.CheckOptions{Carry: true})
		if err != nil || len(ps) != x.says || x.says == 1 && !strings.Contains(ps[0], "none is sent anew") || len(s.NotAsked) != 1 || !strings.Contains(s.NotAsked[0], "sqs:SendMessage") {
			t.Errorf("%s: %q, not asked %q, %v", name, ps, s.NotAsked, err)
		}
	}
	if _, _, err := makeBroker(t, c, url+"x", nil).Check(t.Context(), awssqs.CheckOptions{}); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("a missing queue was answered: %v", err)
	}
}

func TestRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeClient(fake(t, nil))
		dlq := makeQueue(t, c, false, nil)
		url := makeQueue(t, c, false, map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":1}`, arnOf(dlq))})
		b, d := makeBroker(t, c, url, nil), makeBroker(t, c, dlq, nil)
		if _, err := d.Send(t.Context(), []broker.Outgoing{sized(1), sized(2), sized(3)}); err != nil {
			t.Fatal(err)
		}
		for _, o := range []awssqs.RedriveOptions{{PerSecond: 501}, {PerSecond: -1}, {To: "orders"}} {
			if _, err := d.StartRedrive(t.Context(), &o); !errors.Is(err, broker.ErrUnsupported) {
				t.Errorf("%+v was answered: %v", o, err)
			}
		}
		handle, err := d.StartRedrive(t.Context(), &awssqs.RedriveOptions{To: arnOf(url), PerSecond: 1})
		if err != nil || handle == "" {
			t.Fatal(handle, err)
		}
		<-time.After(1500 * time.Millisecond)
		rs, err := d.RedriveTasks(t.Context())
		if err != nil || len(rs) != 1 || rs[0].Status != "RUNNING" || rs[0].Handle != handle || rs[0].To != arnOf(url) || rs[0].PerSecond != 1 || rs[0].Started.IsZero() {
			t.Errorf("the tasks are %+v, %v", rs, err)
		}
		moved, err := d.CancelRedrive(t.Context(), handle)
		if err != nil || moved < 1 || moved > 2 {
			t.Errorf("%d were moved, %v", moved, err)
		}
		<-time.After(time.Minute)
		got, err := b.Depth(t.Context())
		if err != nil || got.Visible != moved {
			t.Errorf("the queue has %+v, %v, and %d were moved", got, err, moved)
		}
		if _, err := b.StartRedrive(t.Context(), nil); err == nil {
			t.Error("a queue that is no dead-letter queue was redriven")
		}
		if _, err := d.CancelRedrive(t.Context(), "nothing"); err == nil {
			t.Error("a task that is not there was cancelled")
		}
	})
}

// What a server says is not believed beyond what can be.
func TestAttributesBeyondAllBounds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"60": time.Minute, "9223372036": 12 * time.Hour, "9223372037": 30 * time.Second, "9223372036854775807": 30 * time.Second, "-1": 30 * time.Second, "": 30 * time.Second, "x": 30 * time.Second,
	} {
		b, s := stubbed(t, stubURL, nil, func(c stubCall) stubAnswer {
			if c.op == "GetQueueAttributes" {
				return stubAnswer{out: object{"Attributes": object{"VisibilityTimeout": text, "MessageRetentionPeriod": text}}}
			}
			return brings(delivery("a", "r", ""))
		})
		ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
		if err != nil {
			t.Fatal(err)
		}
		if asked := s.of("ReceiveMessage")[0].in["VisibilityTimeout"]; asked != want.Seconds() || time.Until(ms[0].Deadline) > want {
			t.Errorf("%q: asked for %v, until %v", text, asked, ms[0].Deadline)
		}
		if p, err := b.Redrive(t.Context()); p.Retention < 0 || err != nil {
			t.Errorf("%q: kept for %v, %v", text, p.Retention, err)
		}
		if d, err := b.VisibilityTimeout(t.Context()); d < 0 || text == "60" && d != time.Minute || err != nil {
			t.Errorf("%q: hidden for %v, %v", text, d, err)
		}
	}
}
