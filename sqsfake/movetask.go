package sqsfake

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// This file owns move tasks, and the three actions that start, list and cancel them. The actions
// run in the goroutine of a request, and step in that of a task's timer. All of them take the
// server's lock, which guards the tasks.

// The states of a move task.
const (
	taskRunning   = "RUNNING"
	taskCompleted = "COMPLETED"
	taskCancelled = "CANCELLED"
	taskFailed    = "FAILED"
)

const (
	maxMoveRate = 500
	keptTasks   = 10
	// unratedEvery and unratedStep are the pace of a task without a rate, which AWS adapts
	// to the backlog.
	unratedEvery = 10 * time.Millisecond
	unratedStep  = 100
)

// moveTask moves messages from a dead-letter queue to another one or back to where they
// came from.
type moveTask struct {
	id          string
	source      *queue
	destination string // an ARN; "" means each message's source
	rate        int64  // a second; 0 is the server's own pace
	status      string
	failure     string
	moved       int64
	toMove      int64
	started     time.Time
	timer       *time.Timer
}

func (t *moveTask) handle() string {
	doc, _ := json.Marshal(map[string]string{"taskId": t.id, "sourceArn": t.source.arn})
	return base64.StdEncoding.EncodeToString(doc)
}

func (t *moveTask) end(status, failure string) {
	t.status, t.failure = status, failure
	t.timer.Stop()
}

// step moves what is due. It moves the visible messages only; those in flight or held back
// by their group's first one stay.
func (t *moveTask) step() {
	q := t.source
	now := q.lock()
	defer q.unlock(now)
	if t.status != taskRunning {
		return
	}
	n, every := unratedStep, unratedEvery
	if t.rate > 0 {
		n, every = 1, time.Second/time.Duration(t.rate)
	}
	for ; n > 0; n-- {
		m := q.nextReady()
		if m == nil {
			t.end(taskCompleted, "")
			return
		}
		if !t.move(m, now) {
			return
		}
	}
	if q.nextReady() == nil {
		t.end(taskCompleted, "")
		return
	}
	t.timer.Reset(every)
}

// move takes one message to its destination, where it is a new one: another id, another
// enqueue time, no receives. A deduplication id does not swallow it.
func (t *moveTask) move(m *message, now int64) bool {
	arn := t.destination
	if arn == "" {
		arn = m.source
	}
	if arn == "" {
		t.end(taskFailed, "CouldNotDetermineMessageSource")
		return false
	}
	to := t.source.s.byARN(arn)
	if to == nil || to.fifo != t.source.fifo {
		t.end(taskFailed, errNoQueue.code)
		return false
	}
	t.source.drop(m)
	c := *m.content
	c.id, c.source = newUUID(), ""
	to.take1(&message{content: &c, sent: now}, now)
	t.moved++
	return true
}

// sourceQueue finds the queue of an ARN parameter.
func (c *call) sourceQueue(parameter, arn string) (*queue, *apiError) {
	if strings.Count(arn, ":") != 5 || !strings.HasPrefix(arn, "arn:") {
		return nil, errParameter.withf("You must use this format to specify the %s: arn:<partition>:<service>:<region>:<account-id>:<resource-id>", parameter)
	}
	q := c.s.byARN(arn)
	if q == nil {
		return nil, errNoResource.withf("The resource that you specified for the %s parameter doesn't exist.", parameter)
	}
	return q, nil
}

func (c *call) startMessageMoveTask() *apiError {
	s, in := c.s, &c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := c.sourceQueue("SourceArn", in.source)
	if err != nil {
		return err
	}
	if len(s.sourcesOf(q)) == 0 {
		return errParameter.withf("Source queue must be configured as a Dead Letter Queue.")
	}
	if in.given.has(pDestinationARN) {
		to, err := c.sourceQueue("DestinationArn", in.destination)
		if err != nil {
			return err
		}
		if to == q {
			return badValue("DestinationArn", in.destination, "The destination queue must not be the source queue.")
		}
		if to.fifo != q.fifo {
			return badValue("DestinationArn", in.destination, "The destination queue must be of the same type as the source queue.")
		}
	}
	if in.given.has(pRate) && (in.rate < 1 || in.rate > maxMoveRate) {
		return badValue("MaxNumberOfMessagesPerSecond", in.rate, "Must be between 1 and 500, if provided.")
	}
	if n := len(q.tasks); n > 0 && q.tasks[n-1].status == taskRunning {
		return errParameter.withf("There is already a task running. Only one active task is allowed for a source queue arn at a given time.")
	}
	q.begin(s.now())
	t := &moveTask{
		id: newUUID(), source: q, destination: in.destination, rate: in.rate,
		status: taskRunning, toMove: int64(q.counts[ready]), started: time.Now(),
	}
	every := unratedEvery
	if t.rate > 0 {
		every = time.Second / time.Duration(t.rate)
	}
	t.timer = time.AfterFunc(every, t.step)
	q.tasks = append(q.tasks, t)
	if len(q.tasks) > keptTasks {
		q.tasks = q.tasks[1:]
	}
	c.out.open('{')
	c.out.field("TaskHandle", t.handle())
	c.out.close('}')
	return nil
}

func (c *call) listMessageMoveTasks() *apiError {
	in, limit := &c.in, int64(1)
	if in.given.has(pMaxResults) {
		if in.maxResults < 1 || in.maxResults > keptTasks {
			return badValue("MaxResults", in.maxResults, "Must be between 1 and 10, if provided.")
		}
		limit = in.maxResults
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	q, err := c.sourceQueue("SourceArn", in.source)
	if err != nil {
		return err
	}
	w := &c.out
	w.open('{')
	w.key("Results")
	w.open('[')
	for i := len(q.tasks) - 1; i >= 0 && limit > 0; i, limit = i-1, limit-1 {
		t := q.tasks[i]
		w.open('{')
		if t.status == taskRunning {
			w.field("TaskHandle", t.handle())
		}
		w.field("Status", t.status)
		w.field("SourceArn", q.arn)
		w.optional("DestinationArn", t.destination)
		if t.rate > 0 {
			w.numberField("MaxNumberOfMessagesPerSecond", t.rate)
		}
		w.numberField("ApproximateNumberOfMessagesMoved", t.moved)
		w.numberField("ApproximateNumberOfMessagesToMove", t.toMove)
		w.optional("FailureReason", t.failure)
		w.numberField("StartedTimestamp", t.started.UnixMilli())
		w.close('}')
	}
	w.close(']')
	w.close('}')
	return nil
}

func (c *call) cancelMessageMoveTask() *apiError {
	var h struct{ TaskID, SourceARN string }
	doc, err := base64.StdEncoding.DecodeString(c.in.taskHandle)
	if err != nil || json.Unmarshal(doc, &h) != nil || h.TaskID == "" || h.SourceARN == "" {
		return errParameter.withf("Value for parameter TaskHandle is invalid.")
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	q, wrong := c.sourceQueue("SourceArn", h.SourceARN)
	if wrong != nil {
		return wrong
	}
	for _, t := range q.tasks {
		if t.id != h.TaskID {
			continue
		}
		if t.status != taskRunning {
			return errUnsupported.withf("Only a task that is RUNNING can be cancelled; this one is %s.", t.status)
		}
		t.end(taskCancelled, "")
		c.out.open('{')
		c.out.numberField("ApproximateNumberOfMessagesMoved", t.moved)
		c.out.close('}')
		return nil
	}
	return errNoResource.withf("Task does not exist.")
}
