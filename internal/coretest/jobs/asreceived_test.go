package jobs

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
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
	m.ID, m.Group, m.Receipt, m.MetaErr = "other", "other", "other", rig.ErrBoom
	m.Attempt, m.Published, m.Deadline = 99, time.Time{}, time.Time{}
}

func sealed() broker.Outgoing {
	return broker.Outgoing{
		Body: []byte("sealed"), Attributes: map[string]string{"tenant": "t-1"},
		Meta: &broker.Meta{ID: "j-1", Key: "a", Type: "mail", CorrelationID: "c-1"},
	}
}

// observes is an Observer that spoils what it is shown.
type observes struct{ *rig.Seen }

func (o observes) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	spoil(j.Message)
	return o.Seen.JobStarted(ctx, j)
}

// The letter is made from the message as it came, whoever has changed the copy: a replay must run
// the same job.
func TestLetterIsMadeFromWhatCame(t *testing.T) {
	for name, who := range map[string]struct {
		handler onceq.HandlerFunc
		set     func(c *rig.Setup)
	}{
		"handler": {func(_ context.Context, j *onceq.Job) error { spoil(j.Message); return onceq.Permanent(rig.ErrBoom) }, func(*rig.Setup) {}},
		"replaced": {
			func(_ context.Context, j *onceq.Job) error {
				j.Message = &broker.Message{}
				return onceq.Permanent(rig.ErrBoom)
			}, func(*rig.Setup) {},
		},
		"removed":  {func(_ context.Context, j *onceq.Job) error { j.Message = nil; return onceq.Permanent(rig.ErrBoom) }, func(*rig.Setup) {}},
		"Observer": {rig.Failing, func(c *rig.Setup) { c.Observer = observes{c.Observer.(*rig.Seen)} }},
		"Key": {rig.Failing, func(c *rig.Setup) {
			c.Key = func(m *broker.Message) (dedupe.Key, error) { spoil(m); return rig.Key("a"), nil }
		}},
		"Fingerprint": {rig.Failing, func(c *rig.Setup) {
			c.Fingerprint = func(m *broker.Message) []byte { spoil(m); return []byte("f") }
		}},
		"Key that refuses": {rig.Failing, func(c *rig.Setup) {
			c.Key = func(m *broker.Message) (dedupe.Key, error) { spoil(m); return dedupe.Key{}, rig.ErrBoom }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, who.handler, func(r *rig.Rig) {
				r.Put(sealed())
				r.RunFor(time.Minute)
				class := onceq.ClassPermanent
				if name == "Key that refuses" {
					class = onceq.ClassNoKey
				}
				m := r.Letter(class)
				want := sealed()
				if string(m.Body) != "sealed" || !maps.Equal(m.Attributes, want.Attributes) {
					t.Errorf("the letter has the body %q and the attributes %v", m.Body, m.Attributes)
				}
				if g, w := m.Meta, want.Meta; g.ID != w.ID || g.Key != w.Key || g.Type != w.Type || g.CorrelationID != w.CorrelationID || !g.NotBefore.IsZero() {
					t.Errorf("the letter's metadata is %+v", g)
				}
				ends := r.Seen.Of("a")
				if name == "Key that refuses" {
					ends = r.Seen.Of("")
				}
				if len(ends) != 1 || ends[0].JobID != "j-1" || ends[0].Type != "mail" || ends[0].Receives != 1 {
					t.Errorf("the record is %+v", ends)
				}
				r.WantQueue(0)
			}, rig.With(who.set))
		})
	}
}

// A letter that comes back as it was keeps what was folded into it, and reopens what it says.
func TestReplayIsWhatCame(t *testing.T) {
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		if j.Message.Attributes["tenant"] != "t-1" || j.Message.Attributes["folded"] != "1" {
			t.Errorf("the handler sees the attributes %v", j.Message.Attributes)
		}
		spoil(j.Message)
		return onceq.Permanent(rig.ErrBoom)
	}, func(r *rig.Rig) {
		m := sealed()
		m.Meta.Dead = &broker.Dead{Fence: 7, Attributes: map[string]string{"folded": "1"}}
		r.Put(m)
		r.RunFor(time.Minute)
		got := r.Letter(onceq.ClassPermanent)
		if want := (map[string]string{"tenant": "t-1", "folded": "1"}); !maps.Equal(got.Attributes, want) || len(got.Meta.Dead.Attributes) != 0 {
			t.Errorf("the letter has the attributes %v, and folded %v", got.Attributes, got.Meta.Dead.Attributes)
		}
		if f := r.Record("a").Fence; got.Meta.Dead.Fence != f {
			t.Errorf("the letter's fence is %d, the record's %d", got.Meta.Dead.Fence, f)
		}
	})
}

// What a middleware makes of the message, the handler sees: the middleware decrypts, and the
// handler reads.
func TestChangesOfTheMessageReachTheHandler(t *testing.T) {
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		if string(j.Message.Body) != "plain text" || j.ID() != "j-1" || j.Type() != "mail" {
			t.Errorf("the handler sees %q of job %q, type %q", j.Message.Body, j.ID(), j.Type())
		}
		return nil
	}, func(r *rig.Rig) {
		r.Put(sealed())
		r.RunFor(time.Minute)
		r.WantStatus("a", dedupe.Done)
	}, rig.With(func(c *rig.Setup) {
		c.Key = func(m *broker.Message) (dedupe.Key, error) { spoil(m); return rig.Key("a"), nil }
	}))
}

// The group is that of the delivery, and a redelivery finds its job, whatever the handler calls its
// message.
func TestGroupAndHandOverGoByWhatCame(t *testing.T) {
	var d rig.Diary
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		body := string(j.Message.Body)
		d.Write(t, &onceq.Job{Message: &broker.Message{Body: j.Message.Body, Group: "g"}})
		defer d.Left(&onceq.Job{Message: &broker.Message{Group: "g"}})
		j.Message.Group, j.Message.ID = "", ""
		rig.Takes(10 * time.Second)
		if body == "a" && j.Attempt == 1 {
			return rig.ErrBoom
		}
		return nil
	}, func(r *rig.Rig) {
		r.Send("g/a", "g/b")
		r.RunFor(time.Minute)
		r.WantStatus("b", dedupe.Done)
		if got := d.Ran; len(got) != 3 || got[2] != "b" {
			t.Errorf("ran %q", got)
		}
		r.WantQueue(0)
	}, rig.Steady)
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		j.Message.ID = ""
		rig.Takes(10 * time.Second)
		return nil
	}, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		r.Q.Expire(t, "a")
		rig.Pass(time.Minute)
		r.WantOutcomes("a", "handed-over", "done")
	})
}

// A Do's key is what its caller named.
func TestDoIsToldOfByItsKey(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		_, err := d.Do("a", nil, func(_ context.Context, j *onceq.Job) (int, error) {
			j.Message.Meta.ID = "other"
			return 0, nil
		})
		if ends := d.Seen.Of("a"); err != nil || len(ends) != 1 || ends[0].JobID != "a" {
			t.Errorf("%v; the records are %+v", err, ends)
		}
	})
}

// A claim depends on the message as it came, whatever Key has made of its copy.
func TestClaimGoesByWhatCame(t *testing.T) {
	spoils := rig.With(func(c *rig.Setup) {
		c.Key = func(m *broker.Message) (dedupe.Key, error) { spoil(m); return rig.Key("a"), nil }
	})
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		m := sealed()
		m.Meta.Expires = time.Now().Add(time.Second)
		r.Put(m)
		rig.Pass(time.Second)
		r.RunFor(time.Second)
		r.Letter(onceq.ClassExpired)
	}, spoils)
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.Put(sealed())
		r.RunFor(time.Minute)
		r.Replay(r.Letter(onceq.ClassPermanent))
		r.RunFor(time.Minute)
		r.WantOutcomes("a", "failed", "failed") // it was reopened
	}, spoils)
}
