package leansqs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/internal/must"
)

// FuzzAnswers compares with the SDK what is read of an answer, and whether it is an error.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		`{}`, ``, ` {"Messages" : [ ] }`, `{"Messages":null}`, `{"Messages":[{}]}`, `{"Messages":[{"Body":null}]}`, `{"Messages":[null]}`,
		`{"Messages":[{"MessageId":"1","Body":"a\u00e4\"\\\/\b\f\n\r\t","Attributes":{"SentTimestamp":"1","X":"y"}},{"ReceiptHandle":"r"}]}`,
		`{"Messages":[{"MessageId":"1","ReceiptHandle":"r1","Body":"a","MD5OfBody":"x"},{"MessageId":"2","ReceiptHandle":"r2","Body":"b","MD5OfBody":"y"}]}`,
		`{"Messages":[{"MessageId":"1","MessageId":"2"}]}`, `{"Messages":[{"Body":"a","Body":"b"}]}`,
		// What is no UTF-8 the SDK keeps in a text without an escape, and replaces elsewhere.
		"{\"Messages\":[{\"Body\":\"a\xff\\u0041\"}]}", "{\"Messages\":[{\"MessageAttributes\":{\"a\xff\":{\"StringValue\":\"\xc0\"}}}]}",
		// The scanner gives up with something read, and the SDK begins anew.
		`{"Messages":[{"MessageId":"1","Body":"a"},{"MessageId":"2","New":1}]}`, `{"Messages":[{"MessageId":"1","Body":"a","Attributes":{"X":"y"}},null]}`,
		`{"Messages":[{"MessageId":"1","Body":"a"}],"Messages":[{"Body":"b"}]}`, `{"Messages":[{"MessageId":"1","Body":"a"}],"Messages":null}`,
		`{"Messages":[{"MessageId":"1","Attributes":null,"MessageAttributes":null}]}`, `{"Messages":[{"Body":"\ud83d\ude00"}]}`, `{"Messages":[{"Body":"\ud83d"}]}`,
		`{"Messages":[{"MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"AAE="},"b":{"StringValue":"x"}}}]}`,
		`{"Messages":[{"MessageAttributes":{"a":{"BinaryValue":"?"}}}]}`, `{"Messages":[{"MessageAttributes":{"a":{"BinaryValue":""}}}]}`,
		`{"Successful":[{"Id":"0"},{"Id":"1"}]}`, `{"Successful":[{"Id":"0"}],"Failed":[]}`, `{"Failed":[{"Id":"0","Code":"C"}],"Successful":[]}`,
		`{"Successful":[{}]}`, `{"Successful":[{"Id":"0","Id":"1"}]}`, `{"Messages":[]} x`, `{"Messages":[],}`, "{\"Messages\":[{\"Body\":\"\xff\"}]}",
		"{\"Messages\":[{\"Body\":\"\x01\"}]}", `{"messages":[{"Body":"x"}]}`, `{"Messages":[{"body":"x"}]}`, `[]`, `"`, `{"Messages":[{"Body":"\`,
		`{"Messages":[{"Body":"x\u12`, `{"Messages":[{"Body":1}]}`, `{"Successful":[{"Id":"0"}]}{}`, "\ufeff{}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, op := range []string{"receive", "delete", "change"} {
			got := map[string]string{}
			for kind, p := range both(t, always(200, body), func(o *sqs.Options) { o.RetryMaxAttempts = 1 }) {
				out, err := each[op](t.Context(), p)
				got[kind] = fmt.Sprint(plain(out), err)
			}
			if got["sdk"] != got["lean"] {
				t.Errorf("%s: the SDK reads\n%s,\nwe\n%s", op, got["sdk"], got["lean"])
			}
		}
	})
}

// TestAllocations holds what ten messages cost: a receive and a delete. The SDK's client needs
// about 700.
func TestAllocations(t *testing.T) {
	type message = map[string]any
	var ms []message
	for i := range 10 {
		ms = append(ms, message{
			"MessageId": fmt.Sprint("id-", i), "ReceiptHandle": fmt.Sprint("receipt-", i), "Body": "body", "MD5OfBody": "841a2d689ad86bd1611447453c22c6fc",
			"Attributes": message{"ApproximateReceiveCount": "1", "SentTimestamp": "1764000000123"},
		})
	}
	received := must.Get(json.Marshal(message{"Messages": ms}))
	cost := map[string]float64{}
	for kind, p := range both(t, func(_ int, r *http.Request) (*http.Response, error) {
		if r.Header.Get("X-Amz-Target") == "AmazonSQS.ReceiveMessage" {
			return answer(200, string(received)), nil
		}
		return answer(200, `{"Successful":[{"Id":"0"},{"Id":"1"}]}`), nil
	}) {
		cost[kind] = testing.AllocsPerRun(50, func() {
			for _, op := range []string{"receive", "delete"} {
				if _, err := each[op](context.Background(), p); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	t.Log(cost)
	if cost["lean"] > most {
		t.Errorf("a receive and a delete of ten allocate %v times, above %d", cost["lean"], most)
	}
}

const most = 390
