package batches

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// TestSent: a job's record tells when it was sent: what its metadata says, else when the broker
// took the message. A retry keeps it, and the record tells of the attempt before it.
func TestSent(t *testing.T) {
	tries := 0
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		if tries++; tries == 1 {
			return errors.New("no answer")
		}
		return nil
	}, func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.Created = time.Now().Add(-time.Hour)
		r.Put(m)
		r.RunFor(time.Minute)
		rec := r.Record("a")
		if !rec.Sent.Equal(m.Meta.Created) {
			t.Errorf("Sent is %v, want %v", rec.Sent, m.Meta.Created)
		}
		if rec.Status != dedupe.Done || len(rec.Past) != 1 || rec.Past[0].End != dedupe.Released || rec.Past[0].Err != "no answer" {
			t.Errorf("the record is %v with the Past %+v", rec.Status, rec.Past)
		}
	})
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.Created = time.Time{}
		sent := time.Now()
		r.Put(m)
		rig.Pass(time.Hour)
		r.RunFor(time.Second)
		if rec := r.Record("a"); !rec.Sent.Equal(sent) {
			t.Errorf("Sent is %v, want when the broker took it, %v", rec.Sent, sent)
		}
	})
}

// TestSentOfABatch: the same for deliveries that somebody else has received. Nobody has sent a Do.
func TestSentOfABatch(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		if _, err := d.Do("do", nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
		if rec := d.Record("do"); rec.Status != dedupe.Done || !rec.Sent.IsZero() {
			t.Errorf("a Do is %v, sent %v", rec.Status, rec.Sent)
		}
	})
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		ds := rig.Deliveries("a")
		ds[0].Message.Meta.Created = created
		r.WantEnds(r.Batch(r.Context(), onceq.BatchOptions{}, ds...), "done")
		if rec := r.Record("a"); !rec.Sent.Equal(created) {
			t.Errorf("Sent is %v, want %v", rec.Sent, created)
		}
	})
}
