package pubsubpush_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubpush"
	"github.com/onceq/onceq/internal/must"
)

// blocks are the blocks of code on the page, by language.
func blocks(t *testing.T) map[string]string {
	t.Helper()
	text := must.Get(os.ReadFile("../../../docs/backend-cloudrun.md"))
	by := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		by[m[1]] += m[2]
	}
	return by
}

// one is the only thing that the pattern's group finds in a text.
func one(t *testing.T, text, pattern string) string {
	t.Helper()
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	if len(found) != 1 {
		t.Fatalf("%s finds %v, want one thing", pattern, found)
	}
	for s := range found {
		return s
	}
	return ""
}

// The page's Terraform, gcloud and Go make one service: they name the same deadline, endpoint,
// audience and accounts, and nobody else may call it.
func TestDocumentedSettings(t *testing.T) {
	by := blocks(t)
	hcl, sh, code := by["hcl"], by["sh"], by["go"]
	if n := strings.Count(hcl, "{") - strings.Count(hcl, "}"); n != 0 || hcl == "" {
		t.Errorf("the Terraform has %d braces open", n)
	}
	for what, patterns := range map[string][3]string{
		"deadline":  {`ack_deadline_seconds += (\d+)`, `--ack-deadline=(\d+)`, `AckDeadline: (\d+) \* time\.Second`},
		"audience":  {`audience += "(.*)"`, `--push-auth-token-audience=(\S+)`, `Audience: +"(.*)"`},
		"account":   {`service_account_email = "(.*)"`, `--push-auth-service-account=(\S+)`, `ServiceAccount: "(.*)"`},
		"endpoint":  {`push_endpoint = "(.*)"`, `--push-endpoint=(\S+)`, `Audience: +"(.*)"`},
		"invoker":   {`(?s)role += "roles/run.invoker"\s+member = "serviceAccount:([^"]*)"`, `(?s)--role=roles/run.invoker[\\\s]+--member=serviceAccount:(\S+)`, `ServiceAccount: "(.*)"`},
		"publisher": {`(?s)role += "roles/pubsub.publisher"\s+member = "serviceAccount:([^"]*)"`, `(?s)--role=roles/pubsub.publisher[\\\s]+--member=serviceAccount:(\S+)`, ""},
	} {
		a, b := one(t, hcl, patterns[0]), one(t, sh, patterns[1])
		c := a
		if patterns[2] != "" {
			c = one(t, code, patterns[2])
		}
		if a != b || a != c {
			t.Errorf("the %s is %s in Terraform, %s in gcloud, %s in Go", what, a, b, c)
		}
	}
	for _, want := range []string{"--no-allow-unauthenticated", "--min-retry-delay=10s --max-retry-delay=600s", "--expiration-period=never"} {
		if !strings.Contains(sh, want) {
			t.Errorf("gcloud lacks %s", want)
		}
	}
	if d, _ := time.ParseDuration(one(t, sh, `--timeout=(\d+)`) + "s"); d < 60*time.Second {
		t.Errorf("Cloud Run gives a request up after %v", d)
	}
	program := must.Get(os.ReadFile("../../../examples/cloudrun/main.go"))
	drain := one(t, code, `Background\(\), (9\*time\.Second)\)`) + one(t, code, `Background\(\), (500\*time\.Millisecond)\)`)
	if want := one(t, string(program), `drainTime, closeTime = (.*)`); drain != strings.NewReplacer(" ", "", ",", "").Replace(want) {
		t.Errorf("the page drains in %s, and the example in %s", drain, want)
	}
	r := newRig(t, new(runs).Handle)
	r.o.AckDeadline = 60 * time.Second
	r.o.Auth = pubsubpush.OIDC{Audience: one(t, code, `Audience: +"(.*)"`), ServiceAccount: one(t, code, `ServiceAccount: "(.*)"`)}
	r.handler()
}
