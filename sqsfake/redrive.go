package sqsfake

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// This file owns redrive policies: how they are read, and how a message moves to the dead-letter
// queue. settings.go calls what parses them, take calls redrive, and unlock calls settle. The
// server's lock guards all that touches queues; the parsing needs none. Moves back are in
// movetask.go.

// redrivePolicy says where messages go that nobody could handle.
type redrivePolicy struct {
	target      string // an ARN
	maxReceives int
}

// allowPolicy says which queues may use a queue as their dead-letter queue.
type allowPolicy struct {
	permission string
	sources    []string // ARNs
}

func (p *allowPolicy) allows(arn string) bool {
	if p == nil {
		return true
	}
	switch p.permission {
	case "denyAll":
		return false
	case "byQueue":
		return slices.Contains(p.sources, arn)
	default:
		return true
	}
}

func parseRedrivePolicy(text string) (*redrivePolicy, *apiError) {
	if text == "" {
		return nil, nil
	}
	var raw struct {
		Target *string `json:"deadLetterTargetArn"`
		Max    any     `json:"maxReceiveCount"`
	}
	if json.Unmarshal([]byte(text), &raw) != nil {
		return nil, badValue("RedrivePolicy", text, "Redrive policy is not a valid JSON map.")
	}
	if raw.Target == nil {
		return nil, badValue("RedrivePolicy", text, "Redrive policy does not contain mandatory attribute: deadLetterTargetArn.")
	}
	if raw.Max == nil {
		return nil, badValue("RedrivePolicy", text, "Redrive policy does not contain mandatory attribute: maxReceiveCount.")
	}
	n, err := strconv.Atoi(fmt.Sprint(raw.Max)) // a number, or one in quotes
	if err != nil || n < 1 || n > 1000 {
		return nil, badValue("RedrivePolicy", text, fmt.Sprintf("Invalid value for maxReceiveCount: %v, valid values are from 1 to 1000 both inclusive.", raw.Max))
	}
	if strings.Count(*raw.Target, ":") != 5 || !strings.HasPrefix(*raw.Target, "arn:") {
		return nil, badValue("RedrivePolicy", text, "Invalid value for deadLetterTargetArn.")
	}
	return &redrivePolicy{target: *raw.Target, maxReceives: n}, nil
}

func parseAllowPolicy(text string) (*allowPolicy, *apiError) {
	if text == "" {
		return nil, nil
	}
	var raw struct {
		Permission string   `json:"redrivePermission"`
		Sources    []string `json:"sourceQueueArns"`
	}
	if json.Unmarshal([]byte(text), &raw) != nil {
		return nil, badValue("RedriveAllowPolicy", text, "Redrive allow policy is not a valid JSON map.")
	}
	byQueue := raw.Permission == "byQueue"
	switch {
	case raw.Permission != "allowAll" && raw.Permission != "denyAll" && !byQueue:
		return nil, badValue("RedriveAllowPolicy", text, "Invalid value for redrivePermission: one of allowAll, denyAll, byQueue.")
	case byQueue && (len(raw.Sources) < 1 || len(raw.Sources) > 10):
		return nil, badValue("RedriveAllowPolicy", text, "sourceQueueArns must have 1 to 10 elements where redrivePermission is byQueue.")
	case !byQueue && len(raw.Sources) > 0:
		return nil, badValue("RedriveAllowPolicy", text, "sourceQueueArns is valid only where redrivePermission is byQueue.")
	}
	return &allowPolicy{permission: raw.Permission, sources: raw.Sources}, nil
}

// checkTarget checks that a queue may send its dead letters where a policy says.
func (s *Server) checkTarget(p *redrivePolicy, text, arn string, fifo bool) *apiError {
	if p == nil {
		return nil
	}
	target := s.byARN(p.target)
	switch {
	case target == nil:
		return badValue("RedrivePolicy", text, "Dead letter target does not exist.")
	case target.fifo != fifo:
		return badValue("RedrivePolicy", text, "Dead-letter queue must be same type of queue as the source.")
	case !target.settings.allow.allows(arn):
		return badValue("RedrivePolicy", text, "The dead-letter queue's RedriveAllowPolicy does not allow this queue.")
	}
	return nil
}

// redrive moves m to the dead-letter queue if it has had its receives. AWS does so when
// somebody asks for the message once more, not when its timeout ends.
func (q *queue) redrive(m *message, now int64) bool {
	p := q.settings.redrive
	if p == nil || int64(m.serial) < int64(p.maxReceives) {
		return false
	}
	target := q.s.byARN(p.target)
	if target == nil || target.fifo != q.fifo {
		return false // the target was deleted: the message stays
	}
	q.drop(m)
	c := *m.content
	c.source = q.arn
	moved := &message{content: &c, receives: m.receives, first: m.first, sent: m.sent}
	if target.fifo {
		// A standard queue's dead letters keep their age, so that retention goes on; a FIFO
		// queue's begin anew.
		moved.sent = now
	}
	target.take1(moved, now)
	return true
}

// take1 adds a message that comes from another queue.
func (q *queue) take1(m *message, now int64) {
	if q.fifo {
		m.sequence = q.s.nextSequence()
	}
	q.add(m, now, 0)
	q.s.touched = append(q.s.touched, q)
}

// settle lets the queues that got messages from others serve their waiting receives.
func (s *Server) settle(now int64) {
	for len(s.touched) > 0 {
		q := s.touched[len(s.touched)-1]
		s.touched = s.touched[:len(s.touched)-1]
		q.begin(now)
		q.end(now)
	}
}

// sourcesOf are the queues whose dead letters go to q, by name.
func (s *Server) sourcesOf(q *queue) []*queue {
	var sources []*queue
	for _, name := range s.sortedNames("") {
		if o := s.queues[name]; o.settings.redrive != nil && o.settings.redrive.target == q.arn {
			sources = append(sources, o)
		}
	}
	return sources
}

func (c *call) listDeadLetterSourceQueues() *apiError {
	c.s.mu.Lock()
	sources := c.s.sourcesOf(c.q)
	c.s.mu.Unlock()
	names := make([]string, len(sources))
	for i, q := range sources {
		names[i] = q.name
	}
	return c.writePage("queueUrls", names)
}
