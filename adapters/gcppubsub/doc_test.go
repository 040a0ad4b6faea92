package gcppubsub_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/internal/must"
)

// blocks are the page's code in a language.
func blocks(t *testing.T, language string) (bs []string) {
	t.Helper()
	text := must.Get(os.ReadFile("../../docs/backend-pubsub.md"))
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		bs = append(bs, strings.ReplaceAll(m[1], "\\\n", " "))
	}
	return bs
}

// documented are the settings of a subscription, from either language.
type documented struct {
	topic     string
	deadline  int
	retention time.Duration
	never     bool // it does not expire
	other     []string
}

func days(t *testing.T, s string) time.Duration {
	t.Helper()
	n := must.Get(strconv.Atoi(strings.TrimSuffix(s, "d")))
	return time.Duration(n) * day
}

// byGcloud reads the commands that create subscriptions.
func byGcloud(t *testing.T) map[string]documented {
	t.Helper()
	found := map[string]documented{}
	for line := range strings.SplitSeq(strings.Join(blocks(t, "sh"), ""), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 || strings.Join(fields[:4], " ") != "gcloud pubsub subscriptions create" {
			continue
		}
		var d documented
		for _, f := range fields[5:] {
			name, value, _ := strings.Cut(f, "=")
			switch name {
			case "--topic":
				d.topic = value
			case "--ack-deadline":
				d.deadline, _ = strconv.Atoi(value)
			case "--message-retention-duration":
				d.retention = days(t, value)
			case "--expiration-period":
				d.never = value == "never"
			default:
				d.other = append(d.other, f)
			}
		}
		found[fields[4]] = d
	}
	return found
}

// byTerraform reads the resources that are subscriptions.
func byTerraform(t *testing.T) map[string]documented {
	t.Helper()
	found := map[string]documented{}
	for _, m := range regexp.MustCompile(`(?s)resource "google_pubsub_subscription" "\w+" \{\n(.*?)\n\}`).FindAllStringSubmatch(strings.Join(blocks(t, "hcl"), ""), -1) {
		var d documented
		name := ""
		for line := range strings.SplitSeq(m[1], "\n") {
			field, value, set := strings.Cut(line, "=")
			value = strings.Trim(strings.TrimSpace(value), `"`)
			switch field := strings.TrimSpace(field); {
			case field == "name":
				name = value
			case field == "topic":
				d.topic = strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(value, "google_pubsub_topic."), ".id"), "_", "-")
			case field == "ack_deadline_seconds":
				d.deadline, _ = strconv.Atoi(value)
			case field == "message_retention_duration":
				n, _ := strconv.Atoi(strings.TrimSuffix(value, "s"))
				d.retention = time.Duration(n) * time.Second
			case field == "ttl":
				d.never = value == ""
			case set:
				d.other = append(d.other, line)
			}
		}
		found[name] = d
	}
	return found
}

// TestDocumentedSettings makes what the page says, in both languages, and lets Check look at it.
func TestDocumentedSettings(t *testing.T) {
	want := fmt.Sprintf("%+v", map[string]documented{
		"orders-workers": {topic: "orders", deadline: 30, retention: 7 * day, never: true},
		"orders-letters": {topic: "orders-dead", deadline: 30, retention: 14 * day, never: true},
	})
	for language, found := range map[string]map[string]documented{"gcloud": byGcloud(t), "Terraform": byTerraform(t)} {
		if got := fmt.Sprintf("%+v", found); got != want {
			t.Errorf("%s: the page has\n%s, want\n%s", language, got, want)
		}
	}
	s := fake(t, pubsubfake.Options{})
	for name, d := range byGcloud(t) {
		topic := project + "/topics/" + d.topic
		if _, err := s.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
			t.Fatal(err)
		}
		sub := &pubsubpb.Subscription{
			Name: project + "/subscriptions/" + name, Topic: topic, AckDeadlineSeconds: int32(d.deadline),
			MessageRetentionDuration: durationpb.New(d.retention), ExpirationPolicy: &pubsubpb.ExpirationPolicy{},
		}
		if _, err := s.CreateSubscription(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
		_, problems, err := makeBroker(t, s, topic, sub.GetName(), nil).Check(t.Context(), gcppubsub.CheckOptions{
			MaxAttempts: onceq.DefaultMaxAttempts, Retention: onceq.DefaultRetention, Visibility: onceq.DefaultVisibility,
		})
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %q, %v", name, problems, err)
		}
	}
}

// TestDocumentedPolicy is the net, with its grants.
func TestDocumentedPolicy(t *testing.T) {
	text := strings.Join(blocks(t, "sh"), "")
	m := regexp.MustCompile(`--dead-letter-topic=(\S+) +--max-delivery-attempts=(\d+)`).FindStringSubmatch(text)
	if m == nil {
		t.Fatal("the page has no command for a dead-letter policy")
	}
	if n, err := strconv.Atoi(m[2]); err != nil || n < 2*onceq.DefaultMaxAttempts || n > 100 {
		t.Errorf("max-delivery-attempts is %s", m[2])
	}
	for _, grant := range []string{
		"topics add-iam-policy-binding " + m[1] + " --member=$AGENT --role=roles/pubsub.publisher",
		"subscriptions add-iam-policy-binding orders-workers --member=$AGENT --role=roles/pubsub.subscriber",
		"AGENT=serviceAccount:service-PROJECT_NUMBER@gcp-sa-pubsub.iam.gserviceaccount.com",
	} {
		if !strings.Contains(text, grant) {
			t.Errorf("the page does not have %q", grant)
		}
	}
}
