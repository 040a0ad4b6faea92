package dynamooutbox

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The rule: with the policy of the package comment a producer writes each partition of its queue,
// and nothing else that a queue of any name has: neither messages nor settings.
func TestPolicyOfAProducer(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`"dynamodb:LeadingKeys": (\["orders[^\]]*\])`).FindSubmatch(doc)
	if text == nil {
		t.Fatal("the package comment has no such policy")
	}
	var patterns []string
	if err := json.Unmarshal(text[1], &patterns); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range patterns { // as IAM reads them: * is any text, and ? any character
		all = append(all, strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(p)))
	}
	allowed := regexp.MustCompile(`(?s)^(?:` + strings.Join(all, "|") + `)$`).MatchString
	own := &Outbox{queue: "orders"}
	for part := range maxPartitions {
		if !allowed(own.pk(part)) {
			t.Errorf("the producer may not write %s", own.pk(part))
		}
	}
	names := []string{"orders", "order", "orders-2", "orders2", "ORDERS", "orders ", "orders*", "orders?", "mails", "é"}
	for _, tail := range []string{"#", "##", "#1", "#a", "#config", "#1#"} {
		names = append(names, "orders"+tail)
	}
	for _, name := range names {
		if checkQueue(name) != nil {
			continue // there is no such queue
		}
		o := &Outbox{queue: name}
		keys := []string{name + "#" + settingsSK}
		for part := range maxPartitions {
			if name != "orders" {
				keys = append(keys, o.pk(part))
			}
		}
		for _, pk := range keys {
			if allowed(pk) {
				t.Errorf("the producer of orders may write %s of the queue %s", strconv.Quote(pk), strconv.Quote(name))
			}
		}
	}
}
