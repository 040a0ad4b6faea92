package sqsfake

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// sourceQueue finds the queue of an ARN parameter.
func (c *call) sourceQueue(parameter, arn string) (*queue, *apiError) {
	if strings.Count(arn, ":") != 5 || !strings.HasPrefix(arn, "arn:") {
		return nil, errParameter.withf("You must use this format to specify the %s: arn:<partition>:<service>:<region>:<account-id>:<resource-id>", parameter)
	}
	q := c.a.byARN(arn)
	if q == nil {
		return nil, errNoResource.withf("The resource that you specified for the %s parameter doesn't exist.", parameter)
	}
	return q, nil
}

func (c *call) startMessageMoveTask() *apiError {
	a, in := c.a, &c.in
	a.mu.Lock()
	defer a.mu.Unlock()
	q, err := c.sourceQueue("SourceArn", in.source)
	if err != nil {
		return err
	}
	if len(a.sourcesOf(q)) == 0 {
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
	q.begin(a.now())
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
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
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
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
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
