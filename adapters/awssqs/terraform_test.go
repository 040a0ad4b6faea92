package awssqs_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/must"
)

// The Terraform of docs/backend-sqs.md gives the rights that the package's documentation gives,
// which another test compares with the calls that are made. Its numbers are those of the table.
func TestDocumentedTerraform(t *testing.T) {
	b := must.Get(os.ReadFile("../../docs/backend-sqs.md"))
	_, hcl, _ := strings.Cut(string(b), "```hcl\n")
	hcl, _, _ = strings.Cut(hcl, "```\n")
	if hcl == "" || strings.Count(hcl, "{") != strings.Count(hcl, "}") || strings.Count(hcl, "[") != strings.Count(hcl, "]") {
		t.Fatalf("the page has no Terraform, or its brackets do not match:\n%s", hcl)
	}
	for _, want := range []string{"message_retention_seconds = " + inSeconds(14*day), "message_retention_seconds = " + inSeconds(4*day), "maxReceiveCount     = 40"} {
		if !strings.Contains(hcl, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	rights := map[string][]string{}
	for _, doc := range strings.Split(hcl, `data "aws_iam_policy_document" "`)[1:] {
		name, doc, _ := strings.Cut(doc, `"`)
		for _, s := range regexp.MustCompile(`(?s)actions\s+= \[(.*?)\]\s+resources\s+= \[aws_sqs_queue\.(\w+)\.arn\]`).FindAllStringSubmatch(doc, -1) {
			for a := range strings.SplitSeq(s[1], ", ") {
				rights[name] = append(rights[name], strings.ReplaceAll(s[2], "_", "-")+" "+strings.Trim(a, `"`))
			}
		}
		slices.Sort(rights[name])
	}
	policies := slices.DeleteFunc(documented(t, `{"Version"`), ofQueue)
	for i, name := range []string{"worker", "producer", "operator"} {
		var policy struct {
			Statement []struct {
				Resource string
				Action   []string
			}
		}
		if err := json.Unmarshal([]byte(policies[i]), &policy); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, s := range policy.Statement {
			for _, a := range s.Action {
				want = append(want, s.Resource[strings.LastIndexByte(s.Resource, ':')+1:]+" "+a)
			}
		}
		slices.Sort(want)
		if !slices.Equal(rights[name], want) {
			t.Errorf("%s: the page gives %q, want %q", name, rights[name], want)
		}
	}
}
