package sqsfake

import (
	"encoding/json"
	"slices"
)

// policy is a queue's access policy. It is kept and told, not enforced: to test a caller
// who is denied, use a Fault with the code AccessDenied.
type policy struct {
	Version   string      `json:"Version"`
	ID        string      `json:"Id"`
	Statement []statement `json:"Statement"`
}

type statement struct {
	Sid       string         `json:"Sid"`
	Effect    string         `json:"Effect"`
	Principal map[string]any `json:"Principal"`
	Action    any            `json:"Action"`
	Resource  string         `json:"Resource"`
	Condition map[string]any `json:"Condition,omitempty"`
}

// permitted are the actions that a permission may name.
var permitted = []string{
	"*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility",
	"GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues", "PurgeQueue",
}

// oneOrMany is how policies write lists: a single value stands alone.
func oneOrMany(list []string) any {
	if len(list) == 1 {
		return list[0]
	}
	return list
}

func (q *queue) policy() policy {
	// The id is that of policies in public code, of LocalStack and moto; no recording of AWS shows
	// it.
	p := policy{Version: "2008-10-17", ID: q.arn + "/SQSDefaultPolicy"}
	if text := q.settings.values["Policy"]; text != "" {
		_ = json.Unmarshal([]byte(text), &p) // what is not a policy is replaced by one
	}
	return p
}

func (q *queue) setPolicy(p policy) *apiError {
	text := ""
	if len(p.Statement) > 0 {
		doc, err := json.Marshal(p)
		if err != nil {
			return errInternal.withf("The policy cannot be written: %v", err)
		}
		text = string(doc)
	}
	next, err := q.settings.change(map[string]string{"Policy": text}, q.fifo)
	if err == nil {
		q.settings = next
	}
	return err
}

func (c *call) addPermission() *apiError {
	in := &c.in
	if in.label == "" || len(in.label) > 80 || containsOther(in.label, "-_") {
		return badValue("Label", in.label, "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	if len(in.accounts) == 0 {
		return missing("AWSAccountIds")
	}
	if len(in.actions) == 0 {
		return missing("Actions")
	}
	var actions, principals []string
	for _, a := range in.actions {
		if !slices.Contains(permitted, a) {
			return badValue("ActionName", "SQS:"+a, "Please refer to the appropriate WSDL for a list of valid actions. ")
		}
		actions = append(actions, "SQS:"+a)
	}
	for _, a := range in.accounts {
		if len(a) != 12 || !allDigits(a) {
			return badValue("PrincipalId", a, "Unable to verify: an account id has 12 digits.")
		}
		principals = append(principals, "arn:aws:iam::"+a+":root")
	}
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	p := c.q.policy()
	if slices.ContainsFunc(p.Statement, func(s statement) bool { return s.Sid == in.label }) {
		return badValue("Label", in.label, "Already exists.")
	}
	p.Statement = append(p.Statement, statement{
		Sid: in.label, Effect: "Allow", Principal: map[string]any{"AWS": oneOrMany(principals)},
		Action: oneOrMany(actions), Resource: c.q.arn,
	})
	return c.q.setPolicy(p)
}

func (c *call) removePermission() *apiError {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	p := c.q.policy()
	n := len(p.Statement)
	p.Statement = slices.DeleteFunc(p.Statement, func(s statement) bool { return s.Sid == c.in.label })
	if len(p.Statement) == n {
		return badValue("Label", c.in.label, "can't find label.")
	}
	return c.q.setPolicy(p)
}
