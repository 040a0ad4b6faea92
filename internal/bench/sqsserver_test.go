package bench

import (
	"bytes"
	"crypto/md5" //nolint:gosec // what SQS answers with
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// This file owns the server of the SQS benchmarks. It does as little as a consumer lets it, because
// it works on the client's processors: sqsfake, which is strict, takes more of them than the client
// does. It knows no FIFO queues, no dead letters and no errors. Each request has a goroutine of
// net/http's. plainSQS.mu guards the queues and the counts, plainQueue.mu a queue.

// plainVisibility is the timeout of all queues.
const plainVisibility = 30 * time.Second

// plainSQS answers each call after a delay.
type plainSQS struct {
	addr  string
	delay time.Duration

	mu     sync.Mutex
	queues map[string]*plainQueue
	counts map[string]int64 // requests, by action
}

type plainQueue struct {
	mu     sync.Mutex
	ready  []*plainMessage
	held   map[string]*plainMessage // by receipt
	wake   chan struct{}            // closed when a message comes
	serial int
}

type plainMessage struct {
	id       string
	text     []byte // what an answer says of it, but for what changes
	receives int
	until    time.Time // when it is visible again
}

// plainRequest has the members of all calls.
type plainRequest struct {
	QueueURL            string `json:"QueueUrl"`
	QueueName           string
	MaxNumberOfMessages int
	WaitTimeSeconds     int
	VisibilityTimeout   *int
	plainEntry
	Entries []plainEntry
}

type plainEntry struct {
	ID                string `json:"Id"`
	MessageBody       string
	MessageAttributes json.RawMessage
	ReceiptHandle     string
	VisibilityTimeout int
}

func newPlainSQS(addr string, delay time.Duration) *plainSQS {
	return &plainSQS{addr: addr, delay: delay, queues: make(map[string]*plainQueue), counts: make(map[string]int64)}
}

// countsPath answers how many requests there were.
const countsPath = "/requests"

func (s *plainSQS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == countsPath {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(s.counts) // a client that is gone
		return
	}
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	var q plainRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if q.QueueName == "" {
		q.QueueName = q.QueueURL[strings.LastIndexByte(q.QueueURL, '/')+1:]
	}
	queue := s.queue(action, q.QueueName)
	<-time.After(s.delay) // the network's time
	var out bytes.Buffer
	switch action {
	case "CreateQueue", "GetQueueUrl":
		fmt.Fprintf(&out, `{"QueueUrl":%q}`, s.addr+"/000000000000/"+q.QueueName)
	case "GetQueueAttributes":
		fmt.Fprintf(&out, `{"Attributes":{"VisibilityTimeout":"%d","QueueArn":"arn:aws:sqs:us-east-1:000000000000:%s"}}`, plainVisibility/time.Second, q.QueueName)
	case "SendMessage":
		id, sum := queue.send(&q.plainEntry)
		fmt.Fprintf(&out, `{"MessageId":%q,"MD5OfMessageBody":%q}`, id, sum)
	case "SendMessageBatch":
		each(&out, q.Entries, func(e *plainEntry) {
			id, sum := queue.send(e)
			fmt.Fprintf(&out, `{"Id":%q,"MessageId":%q,"MD5OfMessageBody":%q}`, e.ID, id, sum)
		})
	case "ReceiveMessage":
		queue.receive(r, &q, &out)
	case "DeleteMessage":
		queue.remove(q.ReceiptHandle)
		out.WriteString("{}")
	case "DeleteMessageBatch":
		each(&out, q.Entries, func(e *plainEntry) {
			queue.remove(e.ReceiptHandle)
			fmt.Fprintf(&out, `{"Id":%q}`, e.ID)
		})
	case "ChangeMessageVisibility":
		queue.hold(q.ReceiptHandle, *q.VisibilityTimeout)
		out.WriteString("{}")
	case "ChangeMessageVisibilityBatch":
		each(&out, q.Entries, func(e *plainEntry) {
			queue.hold(e.ReceiptHandle, e.VisibilityTimeout)
			fmt.Fprintf(&out, `{"Id":%q}`, e.ID)
		})
	default:
		http.Error(w, "no such action: "+action, http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_, _ = w.Write(out.Bytes())
}

// queue counts the request and finds its queue, which needs no CreateQueue.
func (s *plainSQS) queue(action, name string) *plainQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[action]++
	q := s.queues[name]
	if q == nil {
		q = &plainQueue{held: make(map[string]*plainMessage), wake: make(chan struct{})}
		s.queues[name] = q
	}
	return q
}

// each writes the answer to a batch, in which nothing fails.
func each(out *bytes.Buffer, es []plainEntry, do func(e *plainEntry)) {
	out.WriteString(`{"Successful":[`)
	for i := range es {
		if i > 0 {
			out.WriteByte(',')
		}
		do(&es[i])
	}
	out.WriteString(`],"Failed":[]}`)
}

func (q *plainQueue) send(e *plainEntry) (id, sum string) {
	digest := md5.Sum([]byte(e.MessageBody)) //nolint:gosec // what SQS answers with
	sum = hex.EncodeToString(digest[:])
	body, _ := json.Marshal(e.MessageBody) // of a string
	text := fmt.Appendf(nil, `"Body":%s,"MD5OfBody":%q`, body, sum)
	if len(e.MessageAttributes) > 0 {
		text = fmt.Appendf(text, `,"MessageAttributes":%s`, e.MessageAttributes)
	}
	text = fmt.Appendf(text, `,"Attributes":{"SentTimestamp":"%d","ApproximateReceiveCount":`, time.Now().UnixMilli())
	q.mu.Lock()
	defer q.mu.Unlock()
	q.serial++
	id = fmt.Sprintf("00000000-0000-4000-8000-%012d", q.serial)
	q.ready = append(q.ready, &plainMessage{id: id, text: text})
	close(q.wake)
	q.wake = make(chan struct{})
	return id, sum
}

// receive waits for messages, and looks for those whose time is over where there are no others.
func (q *plainQueue) receive(r *http.Request, p *plainRequest, out *bytes.Buffer) {
	visible := plainVisibility
	if p.VisibilityTimeout != nil {
		visible = time.Duration(*p.VisibilityTimeout) * time.Second
	}
	end := time.After(time.Duration(p.WaitTimeSeconds) * time.Second)
	for {
		wake, some := q.take(max(1, p.MaxNumberOfMessages), visible, out)
		if some {
			return
		}
		select {
		case <-wake:
		case <-time.After(time.Second):
		case <-end:
			out.WriteString("{}")
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (q *plainQueue) take(most int, visible time.Duration, out *bytes.Buffer) (wake chan struct{}, some bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if len(q.ready) == 0 {
		for receipt, m := range q.held {
			if now.After(m.until) {
				delete(q.held, receipt)
				q.ready = append(q.ready, m)
			}
		}
	}
	n := min(most, len(q.ready))
	if n == 0 {
		return q.wake, false
	}
	for i, m := range q.ready[:n] {
		m.receives++
		m.until = now.Add(visible)
		times := strconv.Itoa(m.receives)
		receipt := m.id + "#" + times
		q.held[receipt] = m
		out.WriteString([2]string{`{"Messages":[`, `,`}[min(i, 1)])
		out.WriteString(`{"MessageId":"` + m.id + `","ReceiptHandle":"` + receipt + `",`)
		out.Write(m.text)
		out.WriteString(`"` + times + `"}}`)
	}
	out.WriteString(`]}`)
	q.ready = q.ready[n:]
	return nil, true
}

func (q *plainQueue) remove(receipt string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.held, receipt)
}

func (q *plainQueue) hold(receipt string, seconds int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if m := q.held[receipt]; m != nil {
		m.until = time.Now().Add(time.Duration(seconds) * time.Second)
	}
}
