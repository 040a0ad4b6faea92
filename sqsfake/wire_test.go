package sqsfake_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/sqsfake"
)

// post sends a raw request.
func post(t *testing.T, srv *sqsfake.Server, action, body string) (status int, header http.Header, answer string) {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(body)))
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	if action != "" {
		req.Header.Set("X-Amz-Target", "AmazonSQS."+action)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b := must.Get(io.ReadAll(resp.Body))
	return resp.StatusCode, resp.Header, string(b)
}

func TestErrorsOnTheWire(t *testing.T) {
	srv := sqsfake.New(nil)
	u, err := srv.CreateQueue("q", nil)
	if err != nil {
		t.Fatal(err)
	}
	on := func(rest string) string { return `{"QueueUrl":"` + u + `"` + rest + `}` }
	for _, c := range []struct {
		action, body string
		status       int
		shape, query string
		text         string
	}{
		{"SendMessage", `{"QueueUrl":"` + u + `x","MessageBody":"a"}`, 400, "com.amazonaws.sqs#QueueDoesNotExist", codeNoQueue + ";Sender", "does not exist"},
		{"SendMessage", on(``), 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender", "MessageBody"},
		{"SendMessage", `{"MessageBody":"a"}`, 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender", "QueueUrl"},
		{"SendMessage", on(`,"MessageBody":null`), 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender", "MessageBody"},
		{"SendMessage", on(`,"MessageBody":"a","Colour":1`), 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", `SendMessage has no parameter "Colour"`},
		{"SendMessage", on(`,"MessageBody":"a","WaitTimeSeconds":1`), 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", `SendMessage has no parameter "WaitTimeSeconds"`},
		{"SendMessage", on(`,"MessageBody":7`), 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", "MessageBody must be a string"},
		{"SendMessage", on(`,"MessageBody":"a","DelaySeconds":"1"`), 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", "DelaySeconds must be an integer"},
		{"SendMessage", on(`,"MessageBody":"a","DelaySeconds":1.5`), 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", "DelaySeconds must be an integer"},
		{"SendMessage", on(`,"MessageBody":"a","MessageAttributes":{"n":{"DataType":"String","StringValue":"v","Colour":"b"}}`), 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", `MessageAttributes.n has no parameter "Colour"`},
		{"SendMessage", on(`,"MessageBody":"a","MessageAttributes":{"n":{"DataType":"Binary","BinaryValue":"!"}}`), 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", "base64"},
		{"SendMessage", on(`,"MessageBody":"a","MessageAttributes":{"n":{"DataType":"String","StringListValues":["v"]}}`), 400, "com.amazonaws.sqs#UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation;Sender", "list values"},
		{"SendMessageBatch", on(`,"Entries":[{"Id":"0","MessageBody":"a","ReceiptHandle":"h"}]`), 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", `an entry of SendMessageBatch has no parameter "ReceiptHandle"`},
		{"SendMessageBatch", on(`,"Entries":[{"MessageBody":"a"}]`), 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender", "Id"},
		{"ChangeMessageVisibilityBatch", on(`,"Entries":[{"Id":"0","ReceiptHandle":"h"}]`), 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender", "VisibilityTimeout"},
		{"ChangeMessageVisibility", on(`,"ReceiptHandle":"h"`), 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender", "VisibilityTimeout"},
		{"ReceiveMessage", on(`,"MaxNumberOfMessages":0`), 400, "com.amazon.coral.service#InvalidParameterValueException", "InvalidParameterValue;Sender", "Value 0 for parameter MaxNumberOfMessages is invalid"},
		{"ReceiveMessage", on(`,"AttributeNames":["Colour"]`), 400, "com.amazonaws.sqs#InvalidAttributeName", "InvalidAttributeName;Sender", "Unknown Attribute Colour."},
		{"DeleteMessage", on(`,"ReceiptHandle":"h"`), 404, "com.amazonaws.sqs#ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid;Sender", `"h" is not a valid receipt handle`},
		{"DeleteQueue", `{"QueueUrl":"a/q"}`, 404, "com.amazonaws.sqs#InvalidAddress", "InvalidAddress;Sender", "/000000000000/NAME"},
		{"DeleteQueue", `{"QueueUrl":"` + strings.Replace(u, "000000000000", "111111111111", 1) + `"}`, 400, "com.amazonaws.sqs#QueueDoesNotExist", codeNoQueue + ";Sender", ""},
		{"GetQueueUrl", `{"QueueName":"q","QueueOwnerAWSAccountId":"111111111111"}`, 400, "com.amazonaws.sqs#QueueDoesNotExist", codeNoQueue + ";Sender", ""},
		{"ListQueues", `{"MaxResults":0}`, 400, "com.amazon.coral.service#InvalidParameterValueException", "InvalidParameterValue;Sender", "MaxResults"},
		{"ListQueues", `{"NextToken":"x"}`, 400, "com.amazon.coral.service#InvalidParameterValueException", "InvalidParameterValue;Sender", "NextToken"},
		{"ListQueues", `{`, 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", ""},
		{"ListQueues", `{} x`, 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", "something follows"},
		{"ListQueues", `[]`, 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", "must be an object"},
		{"ListQueues", ``, 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", "must be an object"},
		{"ListQueues", "{\"QueueNamePrefix\":\"\xff\"}", 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender", "UTF-8"},
		{"DropQueue", `{}`, 404, "com.amazon.coral.service#UnknownOperationException", "InvalidAction;Sender", `"DropQueue" is not valid`},
	} {
		status, header, answer := post(t, srv, c.action, c.body)
		var doc struct {
			Type    string `json:"__type"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal([]byte(answer), &doc); err != nil {
			t.Errorf("%s %s: %q: %v", c.action, c.body, answer, err)
			continue
		}
		if status != c.status || doc.Type != c.shape || header.Get("X-Amzn-Query-Error") != c.query || !strings.Contains(doc.Message, c.text) {
			t.Errorf("%s %s: %d %q %s", c.action, c.body, status, header.Get("X-Amzn-Query-Error"), answer)
		}
		if header.Get("X-Amzn-Requestid") == "" || header.Get("Content-Type") != "application/x-amz-json-1.0" {
			t.Errorf("%s: headers %v", c.action, header)
		}
	}
}

// TestAbsence: AWS leaves out lists without entries, and answers an action without output by no
// body at all. Clients ask for the member.
func TestAbsence(t *testing.T) {
	inBubble(t, &sqsfake.Options{RecreateAtOnce: true}, func(r *rig) {
		tt := r.Judge.(*testing.T)
		q := r.queue("q")
		on := func(rest string) string { return `{"QueueUrl":"` + *q + `"` + rest + `}` }
		handle := func() string {
			r.send(q, "a")
			return `"ReceiptHandle":"` + *r.receiveOne(q).ReceiptHandle + `"`
		}
		const account = `"Label":"l","AWSAccountIds":["668614515564"],"Actions":["*"]`
		for _, c := range []struct {
			action, body string
			want         string // of the answer; - before what it must not have
		}{
			{"ListQueues", `{"QueueNamePrefix":"none"}`, `{}`},
			{"ListQueues", `{}`, `"QueueUrls":["`},
			{"ListQueueTags", on(``), `{}`},
			{"ListDeadLetterSourceQueues", on(``), `{"queueUrls":[]}`},
			{"GetQueueAttributes", on(`,"AttributeNames":["Policy"]`), `{}`},
			{"GetQueueAttributes", on(``), `{}`},
			{"SendMessageBatch", on(`,"Entries":[{"Id":"0","MessageBody":"a"}]`), `-Failed`},
			{"SendMessageBatch", on(`,"Entries":[{"Id":"0","MessageBody":"\u0001"}]`), `-Successful`},
			{"DeleteMessageBatch", on(`,"Entries":[{"Id":"0",` + handle() + `}]`), `{"Successful":[{"Id":"0"}]}`},
			{"ReceiveMessage", `{"QueueUrl":"` + *r.queue("empty") + `"}`, `{}`},
			{"DeleteMessage", on("," + handle()), ``},
			{"ChangeMessageVisibility", on(`,"VisibilityTimeout":9,` + handle()), ``},
			{"SetQueueAttributes", on(`,"Attributes":{"DelaySeconds":"1"}`), ``},
			{"TagQueue", on(`,"Tags":{"a":"b"}`), ``},
			{"UntagQueue", on(`,"TagKeys":["a"]`), ``},
			{"AddPermission", on("," + account), ``},
			{"RemovePermission", on(`,"Label":"l"`), ``},
			{"PurgeQueue", on(``), ``},
			{"DeleteQueue", on(``), ``},
		} {
			status, header, answer := post(tt, r.srv, c.action, c.body)
			absent, wants := strings.CutPrefix(c.want, "-")
			switch {
			case status != 200:
				r.Fatalf("%s %s: %d %s", c.action, c.body, status, answer)
			case wants && strings.Contains(answer, absent), strings.HasPrefix(absent, `"`) && !strings.Contains(answer, absent):
				r.Fatalf("%s answered %s", c.action, answer)
			case !wants && !strings.HasPrefix(absent, `"`) && answer != c.want:
				r.Fatalf("%s answered %q, want %q", c.action, answer, c.want)
			case header.Get("Content-Type") != "application/x-amz-json-1.0":
				r.Fatalf("%s: headers %v", c.action, header)
			}
		}
	})
}

// TestTraceHeader: the header of a request is that of its messages which have none of their own.
// The SDK sends it inside Lambda.
func TestTraceHeader(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("q")
		const own = `,"MessageSystemAttributes":{"AWSTraceHeader":{"DataType":"String","StringValue":"Root=own"}}`
		for _, c := range []struct{ action, rest, want string }{
			{"SendMessage", `"MessageBody":"a"`, "Root=header"},
			{"SendMessage", `"MessageBody":"a"` + own, "Root=own"},
			{"SendMessageBatch", `"Entries":[{"Id":"0","MessageBody":"a"}]`, "Root=header"},
		} {
			req := httptest.NewRequestWithContext(r.Context(), http.MethodPost, "/", strings.NewReader(`{"QueueUrl":"`+*q+`",`+c.rest+`}`))
			req.Header.Set("X-Amz-Target", "AmazonSQS."+c.action)
			req.Header.Set("X-Amzn-Trace-Id", "Root=header")
			r.srv.ServeHTTP(httptest.NewRecorder(), req)
			m := r.receiveOne(q)
			if got := m.Attributes["AWSTraceHeader"]; got != c.want {
				r.Fatalf("%s %s: %q", c.action, c.rest, got)
			}
			r.wantCode(r.remove(q, m), "")
		}
	})
}

// TestExplicitZeros: an SDK that sends zeros, unlike Go's, must be understood.
func TestExplicitZeros(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		tt := r.Judge.(*testing.T)
		q := r.queue("q", "DelaySeconds", "60", "VisibilityTimeout", "60", "ReceiveMessageWaitTimeSeconds", "20")
		if status, _, answer := post(tt, r.srv, "SendMessage", `{"QueueUrl":"`+*q+`","MessageBody":"a","DelaySeconds":0}`); status != 200 {
			r.Fatal(answer)
		}
		start := time.Now()
		for range 2 { // a timeout of 0 shows it again at once
			_, _, answer := post(tt, r.srv, "ReceiveMessage", `{"QueueUrl":"`+*q+`","VisibilityTimeout":0,"WaitTimeSeconds":0}`)
			if !strings.Contains(answer, `"Body":"a"`) {
				r.Fatal(answer)
			}
		}
		r.deleteQueue(q)
		if took := time.Since(start); took != 0 {
			r.Fatalf("it took %v", took)
		}
	})
}

func TestEscapes(t *testing.T) {
	srv := sqsfake.New(&sqsfake.Options{ShortPolls: sqsfake.ShortPollsWhole})
	u, err := srv.CreateQueue("q", nil)
	if err != nil {
		t.Fatal(err)
	}
	body := `\u0041\ud834\udd1e\"\\\/\n\t\u00e9`
	_, _, sent := post(t, srv, "SendMessage", `{ "QueueUrl" : "`+u+`" , "MessageBody" : "`+body+`" }`)
	_, _, answer := post(t, srv, "ReceiveMessage", `{"QueueUrl":"`+u+`"}`)
	var got struct {
		Messages []struct{ Body, MD5OfBody string }
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil || len(got.Messages) != 1 {
		t.Fatalf("%s: %v", answer, err)
	}
	if want := "A𝄞\"\\/\n\té"; got.Messages[0].Body != want || !strings.Contains(sent, got.Messages[0].MD5OfBody) {
		t.Errorf("received %q with %s; sent: %s", got.Messages[0].Body, got.Messages[0].MD5OfBody, sent)
	}
}

func TestQueryProtocolIsRefused(t *testing.T) {
	status, header, answer := post(t, sqsfake.New(nil), "", "Action=ListQueues&Version=2012-11-05")
	if status != 400 || header.Get("Content-Type") != "text/xml" || !strings.Contains(answer, "<Code>UnsupportedProtocol</Code>") {
		t.Errorf("%d %v %s", status, header, answer)
	}
}

func TestControl(t *testing.T) {
	srv := sqsfake.New(&sqsfake.Options{Seed: 7})
	ask := func(method, path, body string) (int, string) {
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/_sqsfake/health", "", 200, `{"status":"ok","seed":"7"}`},
		{"PUT", "/_sqsfake/faults", `[{"action":"SendMessage","skip":1,"delay":"200ms","code":"RequestThrottled","entries":[1]},{"status":500}]`, 200, `{"faults":2}`},
		{"PUT", "/_sqsfake/faults", `[{"colour":"blue"}]`, 400, `unknown field "colour"`},
		{"PUT", "/_sqsfake/faults", `[{"action":"Send"}]`, 400, `no action "Send"`},
		{"PUT", "/_sqsfake/faults", `[{"delay":"soon"}]`, 400, `soon`},
		{"GET", "/_sqsfake/nothing", "", 404, "known are"},
	} {
		if status, got := ask(c.method, c.path, c.body); status != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, got)
		}
	}
	if status, _, _ := post(t, srv, "ListQueues", `{}`); status != 500 {
		t.Errorf("the fault that was put does nothing: %d", status)
	}
	if _, got := ask("GET", "/_sqsfake/requests", ""); got != `{"ListQueues":1}` {
		t.Errorf("requests %s", got)
	}
	ask("DELETE", "/_sqsfake/requests", "")
	if _, got := ask("GET", "/_sqsfake/requests", ""); got != `{}` {
		t.Errorf("requests %s", got)
	}
}

func TestTooLargeRequest(t *testing.T) {
	srv := sqsfake.Start(t, nil)
	resp, err := http.Post(srv.URL, "application/x-amz-json-1.0", io.MultiReader(bytes.NewReader(make([]byte, 9<<20))))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 400 || !strings.Contains(string(b), "larger than") {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
}

// FuzzRequest: no request brings the server down, and every answer is JSON.
func FuzzRequest(f *testing.F) {
	srv := sqsfake.New(nil)
	u, err := srv.CreateQueue("q", nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{
		`{"QueueUrl":"` + u + `","MessageBody":"a\u0041","MessageAttributes":{"n":{"DataType":"String","StringValue":"v"}}}`,
		`{"QueueUrl":"` + u + `","Entries":[{"Id":"0","MessageBody":"a"}]}`,
		`{"QueueUrl":"` + u + `","Attributes":{"RedrivePolicy":"{}"}}`, `{"QueueUrl":null}`, `{`, `{"a":"\`,
		`{"TaskHandle":"eyJ0YXNrSWQiOiIxIiwic291cmNlQXJuIjoiMSJ9"}`, `{"QueueUrl":"` + u + `","ReceiptHandle":"AQEB"}`,
	} {
		for _, action := range []string{"SendMessage", "SendMessageBatch", "SetQueueAttributes", "CancelMessageMoveTask", "DeleteMessage"} {
			f.Add(action, s)
		}
	}
	f.Fuzz(func(t *testing.T, action, body string) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		req.Header.Set("X-Amz-Target", "AmazonSQS."+action)
		if strings.Contains(body, "WaitTimeSeconds") {
			t.Skip("it would wait")
		}
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, req)
		if none := w.Code == http.StatusOK && w.Body.Len() == 0; !none && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: %d %q", action, body, w.Code, w.Body)
		}
	})
}

// TestSDKSignsWhatItLikes: the signature and the time of a request are not looked at.
func TestSDKSignsWhatItLikes(t *testing.T) {
	inBubble(t, nil, func(r *rig) { // in the year 2000
		if _, err := r.api.ListQueues(r.Context(), &sqs.ListQueuesInput{}); err != nil {
			r.Fatal(err)
		}
	})
}
