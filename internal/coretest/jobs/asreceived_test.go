package onceq_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// spoil changes all that can be changed in a message, but for the bytes of its body.
func spoil(m *broker.Message) {
	m.Body = []byte("plain text")
	m.Attributes["secret"] = "plain"
	delete(m.Attributes, "tenant")
	if m.Meta.Dead != nil {
		m.Meta.Dead.Attributes = map[string]string{"mine": "1"}
		m.Meta.Dead.Fence = 1
	}
	m.Meta.ID, m.Meta.Key, m.Meta.Type, m.Meta.CorrelationID = "other", "other", "other", "other"
	m.Meta.Created, m.Meta.NotBefore, m.Meta.Expires = time.Time{}, time.Now().Add(time.Hour), time.Time{}
	m.Meta = &broker.Meta{ID: "another", Key: "another"}
	m.ID, m.Group, m.Receipt, m.MetaErr = "other", "other", "other", errBoom
	m.Attempt, m.Published, m.Deadline = 99, time.Time{}, time.Time{}
}

func sealed() broker.Outgoing {
	return broker.Outgoing{
		Body: []byte("sealed"), Attributes: map[string]string{"tenant": "t-1"},
		Meta: &broker.Meta{ID: "j-1", Key: "a", Type: "mail", CorrelationID: "c-1"},
	}
}

// observes is an Observer that spoils what it is shown.
type observes struct{ *seen }

func (o observes) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	spoil(j.Message)
	return o.seen.JobStarted(ctx, j)
}

// The letter is made from the message as it came, whoever has changed the copy: a replay must run
// the same job.
func TestLetterIsMadeFromWhatCame(t *testing.T) {
	for name, who := range map[string]struct {
		handler onceq.HandlerFunc
		set     func(c *setup)
	}{
		"handler": {func(_ context.Context, j *onceq.Job) error { spoil(j.Message); return onceq.Permanent(errBoom) }, func(*setup) {}},
		"replaced": {
			func(_ context.Context, j *onceq.Job) error {
				j.Message = &broker.Message{}
				return onceq.Permanent(errBoom)
			}, func(*setup) {},
		},
		"removed":  {func(_ context.Context, j *onceq.Job) error { j.Message = nil; return onceq.Permanent(errBoom) }, func(*setup) {}},
		"Observer": {failing, func(c *setup) { c.Observer = observes{c.Observer.(*seen)} }},
		"Key": {failing, func(c *setup) {
			c.Key = func(m *broker.Message) (dedupe.Key, error) { spoil(m); return key("a"), nil }
		}},
		"Fingerprint": {failing, func(c *setup) {
			c.Fingerprint = func(m *broker.Message) []byte { spoil(m); return []byte("f") }
		}},
		"Key that refuses": {failing, func(c *setup) {
			c.Key = func(m *broker.Message) (dedupe.Key, error) { spoil(m); return dedupe.Key{}, errBoom }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, who.handler, func(r *rig) {
				r.put(sealed())
				r.run(time.Minute)
				class := onceq.ClassPermanent
				if name == "Key that refuses" {
					class = onceq.ClassNoKey
				}
				m := r.letter(class)
				want := sealed()
				if string(m.Body) != "sealed" || !maps.Equal(m.Attributes, want.Attributes) {
					t.Errorf("the letter has the body %q and the attributes %v", m.Body, m.Attributes)
				}
				if g, w := m.Meta, want.Meta; g.ID != w.ID || g.Key != w.Key || g.Type != w.Type || g.CorrelationID != w.CorrelationID || !g.NotBefore.IsZero() {
					t.Errorf("the letter's metadata is %+v", g)
				}
				ends := r.seen.of("a")
				if name == "Key that refuses" {
					ends = r.seen.of("")
				}
				if len(ends) != 1 || ends[0].JobID != "j-1" || ends[0].Type != "mail" || ends[0].Receives != 1 {
					t.Errorf("the record is %+v", ends)
				}
				r.wantQueue(0)
			}, with(who.set))
		})
	}
}

// A letter that comes back as it was keeps what was folded into it, and reopens what it says.
func TestReplayIsWhatCame(t *testing.T) {
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		if j.Message.Attributes["tenant"] != "t-1" || j.Message.Attributes["folded"] != "1" {
			t.Errorf("the handler sees the attributes %v", j.Message.Attributes)
		}
		spoil(j.Message)
		return onceq.Permanent(errBoom)
	}, func(r *rig) {
		m := sealed()
		m.Meta.Dead = &broker.Dead{Fence: 7, Attributes: map[string]string{"folded": "1"}}
		r.put(m)
		r.run(time.Minute)
		got := r.letter(onceq.ClassPermanent)
		if want := (map[string]string{"tenant": "t-1", "folded": "1"}); !maps.Equal(got.Attributes, want) || len(got.Meta.Dead.Attributes) != 0 {
			t.Errorf("the letter has the attributes %v, and folded %v", got.Attributes, got.Meta.Dead.Attributes)
		}
		if f := r.record("a").Fence; got.Meta.Dead.Fence != f {
			t.Errorf("the letter's fence is %d, the record's %d", got.Meta.Dead.Fence, f)
		}
	})
}

// What a middleware makes of the message, the handler sees: the middleware decrypts, and the
// handler reads.
func TestChangesOfTheMessageReachTheHandler(t *testing.T) {
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		if string(j.Message.Body) != "plain text" || j.ID() != "j-1" || j.Type() != "mail" {
			t.Errorf("the handler sees %q of job %q, type %q", j.Message.Body, j.ID(), j.Type())
		}
		return nil
	}, func(r *rig) {
		r.put(sealed())
		r.run(time.Minute)
		r.wantStatus("a", dedupe.Done)
	}, with(func(c *setup) {
		c.Key = func(m *broker.Message) (dedupe.Key, error) { spoil(m); return key("a"), nil }
	}))
}

// The group is that of the delivery, and a redelivery finds its job, whatever the handler calls its
// message.
func TestGroupAndHandOverGoByWhatCame(t *testing.T) {
	var d diary
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		body := string(j.Message.Body)
		d.write(t, &onceq.Job{Message: &broker.Message{Body: j.Message.Body, Group: "g"}})
		defer d.ends(&onceq.Job{Message: &broker.Message{Group: "g"}})
		j.Message.Group, j.Message.ID = "", ""
		takes(10 * time.Second)
		if body == "a" && j.Attempt == 1 {
			return errBoom
		}
		return nil
	}, func(r *rig) {
		r.send("g/a", "g/b")
		r.run(time.Minute)
		r.wantStatus("b", dedupe.Done)
		if got := d.ran; len(got) != 3 || got[2] != "b" {
			t.Errorf("ran %q", got)
		}
		r.wantQueue(0)
	}, steady)
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		j.Message.ID = ""
		takes(10 * time.Second)
		return nil
	}, func(r *rig) {
		r.send("a")
		r.start()
		pass(time.Second)
		r.q.expire(t, "a")
		pass(time.Minute)
		r.wantOutcomes("a", "handed-over", "done")
	})
}

// A Do's key is what its caller named.
func TestDoIsToldOfByItsKey(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		_, err := d.do("a", nil, func(_ context.Context, j *onceq.Job) (int, error) {
			j.Message.Meta.ID = "other"
			return 0, nil
		})
		if ends := d.seen.of("a"); err != nil || len(ends) != 1 || ends[0].JobID != "a" {
			t.Errorf("%v; the records are %+v", err, ends)
		}
	})
}

// A claim depends on the message as it came, whatever Key has made of its copy.
func TestClaimGoesByWhatCame(t *testing.T) {
	spoils := with(func(c *setup) {
		c.Key = func(m *broker.Message) (dedupe.Key, error) { spoil(m); return key("a"), nil }
	})
	bubble(t, never(t), func(r *rig) {
		m := sealed()
		m.Meta.Expires = time.Now().Add(time.Second)
		r.put(m)
		pass(time.Second)
		r.run(time.Second)
		r.letter(onceq.ClassExpired)
	}, spoils)
	bubble(t, failing, func(r *rig) {
		r.put(sealed())
		r.run(time.Minute)
		r.replay(r.letter(onceq.ClassPermanent))
		r.run(time.Minute)
		r.wantOutcomes("a", "failed", "failed") // it was reopened
	}, spoils)
}
