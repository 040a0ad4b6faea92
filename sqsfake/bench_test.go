package sqsfake_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/onceq/onceq/internal/cputime"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/sqsfake"
)

// raw is a client without an SDK: the benchmarks shall measure the server.
type raw struct {
	tb     testing.TB
	srv    *sqsfake.Server
	client *http.Client
	queue  string
}

func newRaw(tb testing.TB, overHTTP bool, name string, o *sqsfake.Options) *raw {
	tb.Helper()
	r := &raw{tb: tb}
	whole := sqsfake.Options{}
	if o != nil {
		whole = *o
	}
	whole.ShortPolls = sqsfake.ShortPollsWhole
	if overHTTP {
		r.srv = sqsfake.Start(tb, &whole)
		r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	} else {
		r.srv = sqsfake.New(&whole)
		r.client = r.srv.Client()
	}
	u, err := r.srv.CreateQueue(name, map[string]string{"VisibilityTimeout": "43200"})
	if err != nil {
		tb.Fatal(err)
	}
	r.queue = u
	return r
}

// call posts a request; rest follows the queue's URL.
func (r *raw) call(action, rest string) []byte {
	req := must.Get(http.NewRequestWithContext(r.tb.Context(), http.MethodPost, r.srv.URL, bytes.NewReader([]byte(`{"QueueUrl":"`+r.queue+`"`+rest+`}`))))
	req.Header["X-Amz-Target"] = []string{"AmazonSQS." + action}
	resp, err := r.client.Do(req)
	if err != nil {
		r.tb.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.tb.Fatalf("%s: %d %s %v", action, resp.StatusCode, b, err)
	}
	return b
}

func sendTen(fifo bool, n int) string {
	b := []byte(`,"Entries":[`)
	for i := range 10 {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"Id":"%d","MessageBody":"message number %d-%d"`, i, n, i)
		if fifo {
			b = fmt.Appendf(b, `,"MessageGroupId":"g%d","MessageDeduplicationId":"%d-%d"`, n, n, i)
		}
		b = append(b, '}')
	}
	return string(append(b, ']'))
}

const receiveTen = `,"MaxNumberOfMessages":10,"WaitTimeSeconds":0,"AttributeNames":["All"],"MessageAttributeNames":["All"]`

func handles(tb testing.TB, answer []byte) []string {
	tb.Helper()
	var out struct {
		Messages []struct{ ReceiptHandle string }
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		tb.Fatal(err)
	}
	hs := make([]string, len(out.Messages))
	for i, m := range out.Messages {
		hs[i] = m.ReceiptHandle
	}
	return hs
}

func deleteAll(hs []string) string {
	b := []byte(`,"Entries":[`)
	for i, h := range hs {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"Id":"%d","ReceiptHandle":"%s"}`, i, h)
	}
	return string(append(b, ']'))
}

// fill sends n messages.
func (r *raw) fill(n int, fifo bool) {
	for i := range n / 10 {
		r.call("SendMessageBatch", sendTen(fifo, i))
	}
}

// reportCPU reports the processor's time from now on, which a busy machine changes less than
// the clock's.
func reportCPU(b *testing.B) func() {
	start := cputime.Used()
	return func() { b.ReportMetric(float64(cputime.Used()-start)/float64(b.N), "cpu-ns/op") }
}

// BenchmarkMessage is one message sent, received and deleted, in batches of ten.
func BenchmarkMessage(b *testing.B) {
	for _, over := range []string{"direct", "http"} {
		for _, name := range []string{"q", "q.fifo"} {
			b.Run(over+"/"+name, func(b *testing.B) {
				r := newRaw(b, over == "http", name, nil)
				b.ReportAllocs()
				defer reportCPU(b)()
				for i := 0; b.Loop(); i++ {
					if i%10 == 0 {
						r.call("SendMessageBatch", sendTen(name != "q", i))
						r.call("DeleteMessageBatch", deleteAll(handles(b, r.call("ReceiveMessage", receiveTen))))
					}
				}
			})
		}
	}
}

// BenchmarkReceiveAmong receives and shows again ten messages of a queue that holds many,
// half of them in flight: the time per receive must not grow with them.
func BenchmarkReceiveAmong(b *testing.B) {
	for _, name := range []string{"q", "q.fifo"} {
		for _, n := range []int{1000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				r := newRaw(b, false, name, &sqsfake.Options{MaxInFlight: 2_000_000})
				r.fill(n, name != "q")
				for range n / 20 {
					r.call("ReceiveMessage", receiveTen)
				}
				defer reportCPU(b)()
				for b.Loop() {
					hs := handles(b, r.call("ReceiveMessage", receiveTen))
					for _, h := range hs {
						r.call("ChangeMessageVisibility", `,"ReceiptHandle":"`+h+`","VisibilityTimeout":0`)
					}
				}
			})
		}
	}
}
