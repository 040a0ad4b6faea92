package brokertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file has the cases of groups and of deduplication. Run calls each in a subtest with a queue
// of its own. A case has one goroutine, so nothing is locked.

func groupsInOrder(e *env) {
	const groups, each = 4, 6
	var os []broker.Outgoing
	for i := range each {
		for g := range groups {
			os = append(os, e.inGroup(fmt.Sprintf("group-%c", 'a'+g), fmt.Sprintf("%c%d", 'a'+g, i)))
		}
	}
	e.send(os...)
	next := [groups]int{}
	until := time.Now().Add(e.v * 2)
	for came := 0; came < groups*each; {
		ms := e.poll(e.b, min(5, e.l.ReceiveBatch), until)
		if len(ms) == 0 {
			e.Fatalf("%d of %d messages came within %v", came, groups*each, e.v*2)
		}
		for _, m := range ms {
			g := int(m.Body[0] - 'a')
			if want := fmt.Sprintf("%c%d", 'a'+g, next[g]); string(m.Body) != want {
				e.Fatalf("%q came where %q was due", m.Body, want)
			}
			next[g]++
			if want := fmt.Sprintf("group-%c", 'a'+g); m.Group != want {
				e.Errorf("%q came with Group %q, want %q", m.Body, m.Group, want)
			}
		}
		e.ack(ms...)
		came += len(ms)
	}
	e.gone("after the ack of all")
}

// due brings the message with that body, which must be the next one.
func due(e *env, body string) *broker.Message {
	e.Helper()
	m := e.takeOne()
	if string(m.Body) != body {
		e.Fatalf("%q came where %q was due", m.Body, body)
	}
	return m
}

func failedHeadHoldsGroup(e *env) {
	e.send(e.inGroup("a", "a1"), e.inGroup("a", "a2"), e.inGroup("b", "b1"), e.inGroup("a", "a3"))
	head := e.takeOne()
	if string(head.Body) == "b1" {
		e.ack(head)
		head = due(e, "a1")
	} else {
		if string(head.Body) != "a1" {
			e.Fatalf("%q came first", head.Body)
		}
		e.ack(due(e, "b1"))
	}
	e.quiet(time.Now().Add(e.v/4), "a follower of a held head")
	// Another group's message comes while this one waits. It may take prompt to come, so the delay
	// is longer, and a send on a busy host takes nothing of it.
	e.send(e.inGroup("b", "b2"))
	delay := min(e.v, e.l.MaxNack)
	from := time.Now().Add(delay)
	e.nack(head, delay)
	by := time.Now().Add(delay + e.h.Slack)
	if delay > 0 {
		e.ack(due(e, "b2"))
		head = e.between(from, by, "the group of a head that waits for its delay")
	} else {
		head = e.takeOne()
		if string(head.Body) == "b2" {
			e.ack(head)
			head = e.takeOne()
		} else {
			e.ack(due(e, "b2"))
		}
	}
	if string(head.Body) != "a1" {
		e.Fatalf("%q came where the nacked head was due", head.Body)
	}
	e.ack(head)
	e.ack(due(e, "a2"))
	e.ack(due(e, "a3"))
	e.gone("after the ack of all")
}

func expiredHeadComesFirst(e *env) {
	e.send(e.inGroup("a", "a1"), e.inGroup("a", "a2"))
	head := due(e, "a1")
	head = e.heldAndBack(head, time.Now(), "the group of a held head")
	e.ack(head)
	e.ack(due(e, "a2"))
	e.gone("after the ack of all")
}

func hiddenBlocksLaterOnly(e *env) {
	e.send(e.inGroup("a", "a1"), e.inGroup("a", "a2"), e.inGroup("a", "a3"))
	ms := e.poll(e.b, 2, time.Now().Add(e.prompt))
	if len(ms) < 2 {
		e.Logf("the driver brings one message of a group at a time: none is hidden behind another one")
		return
	}
	if string(ms[0].Body) != "a1" || string(ms[1].Body) != "a2" {
		e.Fatalf("these came first: %s", bodies(ms))
	}
	e.nack(ms[0], 0)
	head := due(e, "a1")
	e.ack(head)
	e.quiet(time.Now().Add(e.v/4), "a message behind one that is held")
	e.ack(ms[1])
	e.ack(due(e, "a3"))
	e.gone("after the ack of all")
}

func missingGroup(e *env) {
	none := e.out("none")
	none.Group = ""
	ids, err := e.b.Send(e.Context(), []broker.Outgoing{e.out("a"), none, e.out("b")})
	if broker.ErrAt(err, 1) == nil {
		e.Errorf("Send without a group was answered %q, %v", ids, err)
	}
	sentBeside(e, ids, err)
}

// sentBeside checks that the entries 0 and 2 of a Send were sent, whatever entry 1 was answered.
func sentBeside(e *env, ids []string, err error) {
	e.Helper()
	var b *broker.BatchError
	if err != nil && (!errors.As(err, &b) || len(b.Errs) != 3) {
		e.Fatalf("Send of 3 messages, one of them bad, was answered %v; it must be answered by position", err)
	}
	if len(ids) != 3 {
		e.Fatalf("Send of 3 messages answered %d ids", len(ids))
	}
	for i, id := range ids {
		switch at := broker.ErrAt(err, i); {
		case i != 1 && at != nil:
			e.Errorf("entry %d, which is good, was answered: %v", i, at)
		case (at == nil) != (id != ""):
			e.Errorf("entry %d was answered %q, %v; the id of a failed entry is empty, and of no other", i, id, at)
		}
	}
	want := 2
	if broker.ErrAt(err, 1) == nil {
		want = 3
	}
	ms := e.take(want)
	for _, m := range ms {
		if m.ID != ids[0] && m.ID != ids[1] && m.ID != ids[2] {
			e.Errorf("message %s came, which is none of %q", m.ID, ids)
		}
	}
	e.ack(ms...)
	e.gone("after the ack of all that were sent")
}

func dedupID(e *env) {
	first, second := e.out("first"), e.out("second")
	if e.l.OrderedGroups {
		first.Group, second.Group = "g", "g"
	}
	first.DedupID, second.DedupID = "same", "same"
	e.send(first)
	e.send(second)
	if e.h.DedupWindow == 0 {
		for range 2 {
			e.ack(e.takeOne())
		}
		e.gone("after the ack of both")
		return
	}
	sent := time.Now()
	m := due(e, "first")
	e.ack(m)
	e.quiet(time.Now().Add(e.prompt), "the second send")
	// The window outlives the message.
	e.send(second)
	e.quiet(time.Now().Add(e.prompt), "another send after the ack of the first")
	if e.h.Virtual {
		e.Pause(time.Until(sent.Add(e.h.DedupWindow + e.h.Slack)))
		e.send(second)
		e.ack(due(e, "second"))
	}
	e.gone("after the ack of all")
}

func dedupScope(e *env) {
	first, second := e.inGroup("g", "first"), e.inGroup("h", "second")
	first.DedupID, second.DedupID = "same", "same"
	e.send(first)
	e.send(second)
	e.ack(due(e, "first"))
	if e.h.DedupPerGroup {
		e.ack(due(e, "second"))
	}
	e.gone("after the ack of all that are no duplicates")
}

// equalMessages sends what only a driver that looks at bodies takes for duplicates.
func equalMessages(e *env) {
	one := e.out("the same")
	one.DedupID = ""
	if e.l.OrderedGroups {
		one.Group = "g"
	}
	ids := e.send(one, one)
	ids = append(ids, e.send(one)...)
	seen := map[string]bool{}
	for range ids {
		m := e.takeOne()
		if seen[m.ID] {
			e.Errorf("message %s came twice", m.ID)
		}
		seen[m.ID] = true
		e.ack(m)
	}
	e.gone("after the ack of all")
}
