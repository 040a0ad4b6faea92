package awssqs_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

const (
	snsBody = `{
  "Type" : "Notification",
  "MessageId" : "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
  "TopicArn" : "arn:aws:sns:us-west-2:123456789012:MyTopic",
  "Subject" : "My First Message",
  "Message" : %q,
  "Timestamp" : "2012-05-02T00:54:06.655Z",
  "SignatureVersion" : "1",
  "Signature" : "EXAMPLEw6JRN...",
  "MessageAttributes" : %s
}`
	busBody = `{"version":"0","id":"6a7e8feb-b491-4cf7-a9f1-bf3703467718","detail-type":"EC2 Instance State-change Notification",
"source":"aws.ec2","account":"111122223333","time":"2017-12-22T18:43:48Z","region":"us-west-1",
"resources":["arn:aws:ec2:us-west-1:123456789012:instance/i-1234567890abcdef0"],"detail":{"instance-id": "i-1234567890abcdef0","state":"terminated"}}`
	bucketBody = `{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","awsRegion":"us-west-2","eventTime":"1970-01-01T00:00:00.001Z",
"eventName":"ObjectCreated:Put","s3":{"s3SchemaVersion":"1.0","bucket":{"name":"amzn-s3-demo-bucket","arn":"arn:aws:s3:::amzn-s3-demo-bucket"},
"object":{"key":"HappyFace.jpg","size":1024,"eTag":"d41d8cd98f00b204e9800998ecf8427e","versionId":"096fKKXTRTtl3on89fVO.nfljtsv6qko","sequencer":%q}}}]}`
	testBody = `{"Service":"Amazon S3","Event":"s3:TestEvent","Time":"2014-10-13T15:57:02.089Z","Bucket":"bucketname","RequestId":"5582815E1AEA5ADF","HostId":"8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR+YstdA6Knx4Ip8EXAMPLE"}`
)

func sns(message, attributes string) string { return fmt.Sprintf(snsBody, message, attributes) }

func bucket(sequencer string) string { return fmt.Sprintf(bucketBody, sequencer) }

// unwrapped is what a receive makes of a body.
func unwrapped(t *testing.T, which awssqs.Envelope, body string, attributes object) *broker.Message {
	t.Helper()
	return received(t, &awssqs.Options{Unwrap: which}, body, attributes)
}

func received(t *testing.T, o *awssqs.Options, body string, attributes object) *broker.Message {
	t.Helper()
	m := delivery(body, "r", "")
	if attributes != nil {
		m["MessageAttributes"] = attributes
	}
	b, _ := stubbed(t, stubURL, o, func(stubCall) stubAnswer { return brings(m) })
	ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Visibility: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return ms[0]
}

func TestUnwrap(t *testing.T) {
	topic := "arn:aws:sns:us-west-2:123456789012:MyTopic"
	bus := map[string]string{"eventbridge-source": "aws.ec2", "eventbridge-account": "111122223333", "eventbridge-region": "us-west-1"}
	both := maps.Clone(bus)
	both["sns-topic"] = topic
	replay := maps.Clone(bus)
	replay["eventbridge-replay-name"] = "r1"
	detail := `{"instance-id": "i-1234567890abcdef0","state":"terminated"}`
	for name, c := range map[string]struct {
		which         awssqs.Envelope
		body          string
		want, id, typ string
		created       string
		attributes    map[string]string
	}{
		"SNS": {
			awssqs.SNS, sns("Hello world!", `{"a":{"Type":"String","Value":"1"},"b":{"Type":"Binary","Value":"AP8="}}`), "Hello world!", "sns:22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", "",
			"2012-05-02T00:54:06.655Z",
			map[string]string{"a": "1", "b": "\x00\xff", "sns-topic": topic},
		},
		"EventBridge":            {awssqs.EventBridge, busBody, detail, "eb:aws.ec2:6a7e8feb-b491-4cf7-a9f1-bf3703467718", "EC2 Instance State-change Notification", "2017-12-22T18:43:48Z", bus},
		"S3":                     {awssqs.S3, bucket("s1"), bucket("s1"), "*", "s3:ObjectCreated:Put", "1970-01-01T00:00:00.001Z", nil},
		"S3's test":              {awssqs.S3, testBody, testBody, "s3-test:5582815E1AEA5ADF", "s3:TestEvent", "2014-10-13T15:57:02.089Z", nil},
		"EventBridge within SNS": {awssqs.EventBridgeInSNS, sns(busBody, `{}`), detail, "eb:aws.ec2:6a7e8feb-b491-4cf7-a9f1-bf3703467718", "EC2 Instance State-change Notification", "2017-12-22T18:43:48Z", both},
		"S3 within SNS":          {awssqs.S3InSNS, sns(bucket("s1"), `{}`), bucket("s1"), "*", "s3:ObjectCreated:Put", "1970-01-01T00:00:00.001Z", map[string]string{"sns-topic": topic}},
		"a replay": {
			awssqs.EventBridge, strings.Replace(busBody, `"id"`, `"replay-name":"r1","id"`, 1), detail, "eb:aws.ec2:6a7e8feb-b491-4cf7-a9f1-bf3703467718",
			"EC2 Instance State-change Notification", "2017-12-22T18:43:48Z", replay,
		},
		"an id of two parts":      {awssqs.EventBridge, strings.Replace(busBody, `"id":"`, `"id":"x:`, 1), strings.Replace(busBody, `"id":"`, `"id":"x:`, 1), "", "", "", nil},
		"a topic of another kind": {awssqs.SNS, strings.Replace(sns("x", `{}`), "aws:sns", "aws:sqs", 1), strings.Replace(sns("x", `{}`), "aws:sns", "aws:sqs", 1), "", "", "", nil},
		"without an id":           {awssqs.SNS, strings.Replace(sns("x", `{}`), "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", "", 1), strings.Replace(sns("x", `{}`), "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", "", 1), "", "", "", nil},
		"a bus in a bus":          {awssqs.EventBridgeInSNS, busBody, busBody, "", "", "", nil},
		"not asked for":           {awssqs.S3 | awssqs.EventBridge, sns("x", `{}`), sns("x", `{}`), "", "", "", nil},
		"not asked for, a bus":    {awssqs.S3 | awssqs.SNS, busBody, busBody, "", "", "", nil},
		"not asked for, a bucket": {awssqs.SNS | awssqs.EventBridge, bucket("s1"), bucket("s1"), "", "", "", nil},
		"none asked for":          {0, sns("x", `{}`), sns("x", `{}`), "", "", "", nil},
		"plain":                   {awssqs.AllEnvelopes, "plain", "plain", "", "", "", nil},
		"JSON":                    {awssqs.AllEnvelopes, `{"Type":"Notification","Message":"m"}`, `{"Type":"Notification","Message":"m"}`, "", "", "", nil},
		"another type":            {awssqs.SNS, strings.Replace(sns("x", `{}`), "Notification", "SubscriptionConfirmation", 1), strings.Replace(sns("x", `{}`), "Notification", "SubscriptionConfirmation", 1), "", "", "", nil},
		"records of another":      {awssqs.S3, `{"Records":[{"eventSource":"aws:ses"}]}`, `{"Records":[{"eventSource":"aws:ses"}]}`, "", "", "", nil},
		"broken JSON":             {awssqs.AllEnvelopes, busBody[:len(busBody)-1], busBody[:len(busBody)-1], "", "", "", nil},
		"an empty object":         {awssqs.AllEnvelopes, "{}", "{}", "", "", "", nil},
	} {
		m := unwrapped(t, c.which, c.body, nil)
		if string(m.Body) != c.want || !maps.Equal(m.Attributes, c.attributes) || m.MetaErr != nil {
			t.Errorf("%s came as %q with %q, %v", name, m.Body, m.Attributes, m.MetaErr)
		}
		if c.id == "" {
			if m.Meta != nil {
				t.Errorf("%s has the metadata %+v", name, m.Meta)
			}
			continue
		}
		created := must.Get(time.Parse(time.RFC3339, c.created))
		if m.Meta == nil || c.id != "*" && m.Meta.ID != c.id || m.Meta.ID == "" || m.Meta.Type != c.typ || !m.Meta.Created.Equal(created) || m.Meta.Key != "" {
			t.Errorf("%s has the metadata %+v", name, m.Meta)
		}
	}
}

// A repeated notification is the same job, another version of the object is another one.
func TestUnwrapKeys(t *testing.T) {
	id := func(body string) string { return unwrapped(t, awssqs.S3|awssqs.S3InSNS, body, nil).Meta.ID }
	first := id(bucket("s1"))
	if again := id(bucket("s1")); again != first {
		t.Errorf("the same notification is %s and %s", first, again)
	}
	if through := id(sns(bucket("s1"), `{}`)); through != first {
		t.Errorf("through a topic it is %s, and %s without", through, first)
	}
	for name, other := range map[string]string{
		"sequencer": bucket("s2"),
		"name":      strings.Replace(bucket("s1"), "ObjectCreated:Put", "ObjectRemoved:Delete", 1),
		"object":    strings.Replace(bucket("s1"), "HappyFace", "SadFace", 1),
		"bucket":    strings.Replace(bucket("s1"), `"name":"amzn`, `"name":"other`, 1),
		"version":   strings.Replace(bucket("s1"), "096fKK", "096fKL", 1),
	} {
		if id(other) == first {
			t.Errorf("another %s is the same job", name)
		}
	}
}

// What neither puts nor deletes an object has no sequencer: tagged twice, one version of it is two
// happenings.
func TestUnwrapWithoutSequencer(t *testing.T) {
	id := func(body string) string { return unwrapped(t, awssqs.S3, body, nil).Meta.ID }
	tagged := strings.Replace(strings.Replace(bucket("x"), `,"sequencer":"x"`, "", 1), `"s3":`, `"responseElements":{"x-amz-request-id":"r1"},"s3":`, 1)
	if id(tagged) != id(strings.ReplaceAll(tagged, "\n", " ")) {
		t.Error("the same notification is two jobs")
	}
	for name, other := range map[string]string{
		"time":    strings.Replace(tagged, "00.001Z", "00.002Z", 1),
		"request": strings.Replace(tagged, `"r1"`, `"r2"`, 1),
	} {
		if id(other) == id(tagged) {
			t.Errorf("another %s is the same job", name)
		}
	}
	if put := bucket("x"); id(put) != id(strings.Replace(put, "00.001Z", "00.002Z", 1)) {
		t.Error("where there is a sequencer, the time tells jobs apart")
	}
}

// Parts are joined by their lengths: no text of one can be taken for two.
func TestUnwrapJoinsByLengths(t *testing.T) {
	record := func(name, bucket, key, version, sequencer string) string {
		return fmt.Sprintf(`{"eventSource":"aws:s3","eventName":%q,"s3":{"bucket":{"name":%q},"object":{"key":"%s","versionId":"%s","sequencer":%q}}}`, name, bucket, key, version, sequencer)
	}
	all := func(rs ...string) string { return `{"Records":[` + strings.Join(rs, ",") + `]}` }
	eight := strings.Repeat(`\u0000`, 7) + `\u0005`
	ids := map[string]string{}
	for _, body := range []string{
		all(record("n", "b", "k", "v", "s")),
		all(record("n", "b", `k\u0000v`, "", "s")),
		all(record("n", "b", "k", "v", "s"), record("n", "b", "k", "v", "s")),
		all(record("n", "b", `k\u0000v`, "s", "t")),
		all(record("n", "b", "k", `v\u0000s`, "t")),
		all(record("n", "b", "k"+eight+"v", "s", "t")),
		all(record("n", "b", "k", "v"+eight+"s", "t")),
		all(record("n", "b", `k\u0000v\u0000s\u0000n\u0000b\u0000k`, "v", "s")),
		all(record("n", "b", "k", `v`, "s"), record("n", "b", "k", "v", "t")),
	} {
		m := unwrapped(t, awssqs.S3, body, nil)
		if m.Meta == nil {
			t.Fatalf("%s is not read", body)
		}
		if was, taken := ids[m.Meta.ID]; taken {
			t.Errorf("%s and %s are one job", was, body)
		}
		ids[m.Meta.ID] = body
	}
	r := record("n", "b", "k", "v", "s")
	for n, reads := range map[int]bool{1: true, 100: true, 101: false} {
		if m := unwrapped(t, awssqs.S3, all(slices.Repeat([]string{r}, n)...), nil); (m.Meta != nil) != reads {
			t.Errorf("%d records are read: %v", n, m.Meta != nil)
		}
	}
}

// A job of ours that went through a topic is the job that it was.
func TestOursThroughATopic(t *testing.T) {
	ours := func(meta string) string {
		return fmt.Sprintf(`{"onceq":{"Type":"String","Value":%q},"traceparent":{"Type":"String","Value":"00-1"}}`, meta)
	}
	trusting := &awssqs.Options{Unwrap: awssqs.EventBridgeInSNS | awssqs.S3InSNS, TrustTopics: []string{"arn:aws:sns:us-west-2:123456789012:MyTopic"}}
	m := received(t, trusting, sns("AP8=", ours(`{"v":1,"id":"j","k":"order-7","be":"base64"}`)), nil)
	if m.Meta == nil || m.Meta.Key != "order-7" || !bytes.Equal(m.Body, []byte("\x00\xff")) || len(m.Attributes) != 2 || m.Attributes["traceparent"] != "00-1" {
		t.Errorf("it came as %q with %q and %+v", m.Body, m.Attributes, m.Meta)
	}
	// Its body is the user's own, whatever it looks like.
	m = received(t, trusting, sns(busBody, ours(`{"v":1,"id":"j"}`)), nil)
	if m.Meta == nil || m.Meta.ID != "j" || string(m.Body) != busBody {
		t.Errorf("it came as %q with %+v", m.Body, m.Meta)
	}
	m = received(t, trusting, sns(busBody, ours(`{"id":"j"}`)), nil)
	if m.Meta != nil || m.MetaErr == nil || string(m.Body) != busBody {
		t.Errorf("with bad metadata it came as %q with %+v, %v", m.Body, m.Meta, m.MetaErr)
	}
	// And so without a topic: a body of ours is never opened.
	m = received(t, trusting, busBody, object{"onceq": object{"DataType": "String", "StringValue": `{"v":1,"id":"j"}`}})
	if m.Meta == nil || m.Meta.ID != "j" || string(m.Body) != busBody {
		t.Errorf("it came as %q with %+v", m.Body, m.Meta)
	}
}

func FuzzUnwrap(f *testing.F) {
	for _, body := range []string{sns("x", `{}`), busBody, bucket("s"), testBody, "{}", `{"Records":[{}]}`} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if body == "" {
			return
		}
		m := unwrapped(t, awssqs.AllEnvelopes|awssqs.EventBridgeInSNS|awssqs.S3InSNS, strings.ToValidUTF8(body, "?"), nil)
		if m.Meta != nil && m.Meta.ID == "" {
			t.Errorf("%q has metadata without an id", body)
		}
	})
}
