package awssqs_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// everything is each envelope, also within another.
const everything = awssqs.AllEnvelopes | awssqs.EventBridgeInSNS | awssqs.S3InSNS

const (
	theTopic  = "arn:aws:sns:us-west-2:123456789012:MyTopic"
	otherOne  = "arn:aws:sns:us-west-2:123456789012:Other"
	metaOfOur = `{"onceq":{"Type":"String","Value":"{\"v\":1,\"id\":\"x\",\"k\":\"order-7\",\"t\":\"refund\",\"ma\":-1,\"dead\":{\"f\":77}}"}}`
)

// A customer's text in the body of an honest producer is a text, whatever it looks like: it sets no
// metadata of ours.
func TestNotificationSetsNoMetadata(t *testing.T) {
	body := sns("x", metaOfOur)
	for name, o := range map[string]*awssqs.Options{
		"SNS":                 {Unwrap: awssqs.SNS},
		"everything":          {Unwrap: everything},
		"another is trusted":  {Unwrap: everything, TrustTopics: []string{otherOne}},
		"a prefix is trusted": {Unwrap: everything, TrustTopics: []string{theTopic + "2", theTopic[:len(theTopic)-1]}},
	} {
		m := received(t, o, body, nil)
		if m.Meta != nil || !errors.Is(m.MetaErr, broker.ErrBadMeta) || !strings.Contains(m.MetaErr.Error(), "Options.TrustTopics") {
			t.Errorf("%s: it came with %+v, %v", name, m.Meta, m.MetaErr)
		}
		// Among the attributes a replay would make it real.
		if string(m.Body) != body || len(m.Attributes) > 0 {
			t.Errorf("%s: it came as %s with %q", name, m.Body, m.Attributes)
		}
	}
	trusting := &awssqs.Options{Unwrap: everything, TrustTopics: []string{otherOne, theTopic}}
	if m := received(t, trusting, body, nil); m.Meta == nil || m.Meta.Key != "order-7" || m.Meta.Dead == nil || m.MetaErr != nil {
		t.Errorf("from a topic that is trusted it came with %+v, %v", m.Meta, m.MetaErr)
	}
	// And what is trusted is what was told to New.
	topics := []string{otherOne}
	b, _ := stubbed(t, stubURL, &awssqs.Options{Unwrap: awssqs.SNS, TrustTopics: topics}, func(stubCall) stubAnswer { return brings(delivery(body, "r", "")) })
	topics[0] = theTopic
	ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Visibility: 1e9})
	if err != nil || ms[0].Meta != nil {
		t.Errorf("after a change of the slice it came with %+v, %v", ms[0].Meta, err)
	}
}

// A text that a topic carries is not opened once more unless that is asked for: it would take the
// place of the notification's id.
func TestNotificationIsOpenedOnce(t *testing.T) {
	for name, inner := range map[string]string{"a bus": busBody, "a bucket": bucket("s1"), "a test": testBody, "a topic": sns("y", `{}`)} {
		m := unwrapped(t, awssqs.AllEnvelopes, sns(inner, `{}`), nil)
		if string(m.Body) != inner || m.Meta == nil || m.Meta.ID != "sns:22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324" || m.Meta.Type != "" {
			t.Errorf("%s within came as %s with %+v", name, m.Body, m.Meta)
		}
		if want := map[string]string{"sns-topic": theTopic}; !maps.Equal(m.Attributes, want) {
			t.Errorf("%s within has the attributes %q", name, m.Attributes)
		}
	}
	if m := unwrapped(t, everything, sns(sns(busBody, metaOfOur), `{}`), nil); m.Meta.ID != "sns:22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324" || m.MetaErr != nil {
		t.Errorf("a notification within another came with %+v, %v", m.Meta, m.MetaErr)
	}
}

// One text as the id of each service names as many jobs.
func TestEnvelopesDoNotMeet(t *testing.T) {
	const id = "6a7e8feb-b491-4cf7-a9f1-bf3703467718"
	ids := map[string]string{}
	for name, body := range map[string]string{
		"SNS":            strings.Replace(sns("x", `{}`), "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", id, 1),
		"EventBridge":    busBody,
		"another source": strings.Replace(busBody, "aws.ec2", "shop.orders", 1),
		"S3's test":      strings.Replace(testBody, "5582815E1AEA5ADF", id, 1),
		"S3":             bucket(id),
	} {
		m := unwrapped(t, everything, body, nil)
		if was, taken := ids[m.Meta.ID]; taken || m.Meta.ID == id {
			t.Errorf("%s has the id %s, as %s", name, m.Meta.ID, was)
		}
		ids[m.Meta.ID] = name
	}
}

// Where a message came from is told by its envelope alone; of all other attributes those win that
// came beside the body.
func TestProvenanceIsOurs(t *testing.T) {
	text := func(v string) object { return object{"DataType": "String", "StringValue": v} }
	forged := func() object {
		return object{
			"sns-topic": text("forged"), "eventbridge-source": text("forged"), "eventbridge-account": text("forged"),
			"eventbridge-region": text("forged"), "eventbridge-replay-name": text("forged"), "a": text("beside"),
		}
	}
	within := `{"eventbridge-source":{"Type":"String","Value":"forged"},"sns-topic":{"Type":"String","Value":"forged"},"` + dlq.UnreadableAttribute +
		`":{"Type":"String","Value":"{\"v\":1,\"k\":\"x\"}"},"a":{"Type":"String","Value":"within"},"b":{"Type":"String","Value":"within"}}`
	letter := forged()
	letter["onceq"] = text(`{"v":1,"id":"j","dead":{"f":7}}`)
	job := forged()
	job["onceq"] = text(`{"v":1,"id":"j"}`)
	noBus := strings.Replace(busBody, `"account":"111122223333",`, "", 1)
	for name, c := range map[string]struct {
		which awssqs.Envelope
		body  string
		as    object
		want  map[string]string
	}{
		"a notification": {awssqs.SNS, sns("x", within), forged(), map[string]string{"sns-topic": theTopic, "a": "beside", "b": "within"}},
		"an event":       {awssqs.EventBridge, noBus, forged(), map[string]string{"eventbridge-source": "aws.ec2", "eventbridge-region": "us-west-1", "a": "beside"}},
		"a text":         {awssqs.SNS, "x", forged(), map[string]string{"a": "beside"}},
		"a job of ours":  {awssqs.SNS, "x", job, map[string]string{"a": "beside"}},
		"nothing else":   {awssqs.S3, "x", object{"sns-topic": text("forged")}, nil},
		"not asked for":  {0, "x", object{"sns-topic": text("a user's")}, map[string]string{"sns-topic": "a user's"}},
	} {
		m := unwrapped(t, c.which, c.body, c.as)
		if !maps.Equal(m.Attributes, c.want) || c.want == nil && m.Attributes != nil {
			t.Errorf("%s has the attributes %q", name, m.Attributes)
		}
	}
	// A replay brings what was found when its message was opened.
	if m := unwrapped(t, awssqs.SNS, "x", letter); m.Attributes["sns-topic"] != "forged" || m.Meta.Dead == nil {
		t.Errorf("a letter has the attributes %q", m.Attributes)
	}
}
