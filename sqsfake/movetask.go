package sqsfake

import (
	"encoding/base64"
	"encoding/json"
	"time"
)

// This file owns move tasks. step runs in the goroutine of a task's timer and takes the server's
// lock, which guards the tasks. The actions that start, list and cancel them are in moveactions.go.

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
	to := t.source.a.byARN(arn)
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

// stop ends what the queue does by itself.
func (q *queue) stop() {
	q.alarm.Stop()
	for _, t := range q.tasks {
		if t.status == taskRunning {
			t.end(taskFailed, errNoQueue.code)
		}
	}
}
