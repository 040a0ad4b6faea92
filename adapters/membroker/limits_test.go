package membroker_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

func TestLimits(t *testing.T) {
	sqs := broker.Limits{
		ReceiveBatch: 10, SettleBatch: 10, SendBatch: 10, MinHold: time.Second, MaxHold: 12 * time.Hour, MaxTotal: 12 * time.Hour,
		MaxNack: 12 * time.Hour, MaxDelay: 15 * time.Minute, MaxWait: 20 * time.Second, MaxBody: 1048576, MaxAttributes: 10,
		Attempts: true, Extends: true, PerRequestCost: true,
	}
	fifo := sqs
	fifo.MaxDelay, fifo.OrderedGroups, fifo.RequireGroup = 0, true, true
	pubsub := broker.Limits{
		ReceiveBatch: 1000, SettleBatch: 1000, SendBatch: 1000, MinHold: 10 * time.Second, MaxHold: 10 * time.Minute,
		MaxNack: 10 * time.Minute, MaxWait: 30 * time.Second, MaxBody: 10_000_000, MaxAttributes: 100,
		OrderedGroups: true, Extends: true, PerRequestCost: true,
	}
	for p, want := range map[membroker.Preset]broker.Limits{membroker.SQSStandard: sqs, membroker.SQSFIFO: fifo, membroker.PubSub: pubsub} {
		if got := open(t, membroker.Options{Preset: p}).Limits(); got != want {
			t.Errorf("%v: %+v, want %+v", p, got, want)
		}
	}
	dead := open(t, membroker.Options{Preset: membroker.PubSub})
	if !open(t, membroker.Options{Preset: membroker.PubSub, Redrive: &membroker.Redrive{MaxReceives: 5, To: dead.Broker}}).Limits().Attempts {
		t.Error("PubSub counts attempts where it has a dead-letter policy")
	}
}

func TestOptions(t *testing.T) {
	memory, standard := open(t, membroker.Options{}), open(t, membroker.Options{Preset: membroker.SQSStandard})
	for _, c := range []struct {
		o    membroker.Options
		want string
	}{
		{membroker.Options{Preset: 9}, "Options.Preset: Preset(9)"},
		{membroker.Options{Visibility: -1}, "Options.Visibility: -1ns is not within 1ms and 8760h"},
		{membroker.Options{Preset: membroker.SQSFIFO, Visibility: 13 * time.Hour}, "Options.Visibility: 13h0m0s is not within 1s and 12h"},
		{membroker.Options{Preset: membroker.PubSub, Visibility: 9 * time.Second}, "Options.Visibility: 9s is not within 10s and 10m"},
		{membroker.Options{Redrive: &membroker.Redrive{MaxReceives: 1}}, "Options.Redrive.To: nil"},
		{membroker.Options{Redrive: &membroker.Redrive{MaxReceives: 1, To: standard.Broker}}, "Options.Redrive.To: preset SQSStandard"},
		{membroker.Options{Redrive: &membroker.Redrive{To: memory.Broker}}, "Options.Redrive.MaxReceives: 0 is not within 1 and"},
		{membroker.Options{Preset: membroker.SQSStandard, Redrive: &membroker.Redrive{MaxReceives: 1001, To: standard.Broker}}, "Options.Redrive.MaxReceives: 1001 is not within 1 and 1000"},
	} {
		if b, err := membroker.New(&c.o); b != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	if b, err := membroker.New(nil); err != nil || b.Limits() != memory.Limits() {
		t.Error(err)
	}
	if s := fmt.Sprint(membroker.Memory, membroker.PubSub); s != "Memory PubSub" {
		t.Error(s)
	}
}

func TestBatchAndTimeLimits(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		l := q.Limits()
		q.send("a")
		m := q.one("a")
		at := func(n int) []broker.Hold { return make([]broker.Hold, n) }
		_, batch := q.Send(t.Context(), make([]broker.Outgoing, l.SendBatch+1))
		want(t, batch, broker.ErrUnsupported)
		want(t, q.Ack(t.Context(), make([]broker.Receipt, l.SettleBatch+1)), broker.ErrUnsupported)
		want(t, q.Nack(t.Context(), at(l.SettleBatch+1)), broker.ErrUnsupported)
		want(t, q.Extend(t.Context(), at(l.SettleBatch+1)), broker.ErrUnsupported)
		for _, o := range []broker.ReceiveOptions{
			{Max: 0},
			{Max: -1},
			{Max: l.ReceiveBatch + 1},
			{Max: 1, Wait: l.MaxWait + 1},
			{Max: 1, Visibility: -1},
			{Max: 1, Visibility: l.MinHold - 1},
			{Max: 1, Visibility: l.MaxHold + 1},
		} {
			_, err := q.Receive(t.Context(), o)
			want(t, err, broker.ErrUnsupported)
		}
		for _, d := range []time.Duration{-1, 0, l.MinHold - 1, l.MaxHold + 1, 1<<63 - 1} {
			want(t, q.extend(m, d), broker.ErrUnsupported)
		}
		for _, d := range []time.Duration{-1, l.MaxNack + 1, 1<<63 - 1} {
			want(t, q.nack(m, d), broker.ErrUnsupported)
		}
		for _, d := range []time.Duration{-1, l.MaxDelay + 1, 1<<63 - 1} {
			_, err := q.Send(t.Context(), []broker.Outgoing{{Body: []byte("a"), Group: "g", Delay: d}})
			want(t, err, broker.ErrUnsupported)
		}
		q.depth(0, 1, 0)
		want(t, q.extend(m, l.MaxHold), nil)
		want(t, q.extend(m, l.MinHold), nil)
		want(t, q.nack(m, l.MaxNack), nil)
	})
}

// sendOne answers the one entry's error.
func sendOne(t *testing.T, q queue, o broker.Outgoing) error {
	if o.Group == "" && q.Limits().RequireGroup {
		o.Group = "g"
	}
	_, err := q.Send(t.Context(), []broker.Outgoing{o})
	return err
}

func TestAttributeLimits(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		attributes := make(map[string]string)
		for i := range q.Limits().MaxAttributes {
			attributes[fmt.Sprint("a", i)] = "v"
		}
		want(t, sendOne(t, q, broker.Outgoing{Attributes: attributes}), nil)
		// Ours counts.
		want(t, sendOne(t, q, broker.Outgoing{Attributes: attributes, Meta: &broker.Meta{}}), broker.ErrTooLarge)
		attributes["one more"] = ""
		want(t, sendOne(t, q, broker.Outgoing{Attributes: attributes}), broker.ErrTooLarge)
		want(t, q.SendRaw(t.Context(), nil, attributes), broker.ErrTooLarge)
		both := map[string]string{broker.MetaAttribute: "x"}
		want(t, sendOne(t, q, broker.Outgoing{Attributes: both, Meta: &broker.Meta{}}), broker.ErrBadMeta)
	})
	virtual(t, []membroker.Preset{membroker.PubSub}, func(t *testing.T, q queue) {
		long := strings.Repeat("x", 1024)
		want(t, sendOne(t, q, broker.Outgoing{Attributes: map[string]string{long[:256]: long}}), nil)
		want(t, sendOne(t, q, broker.Outgoing{Attributes: map[string]string{long[:257]: "v"}}), broker.ErrTooLarge)
		want(t, sendOne(t, q, broker.Outgoing{Attributes: map[string]string{"k": long + "x"}}), broker.ErrTooLarge)
	})
	virtual(t, presets[1:], func(t *testing.T, q queue) {
		want(t, sendOne(t, q, broker.Outgoing{Group: strings.Repeat("g", 1025)}), broker.ErrUnsupported)
	})
	virtual(t, []membroker.Preset{membroker.SQSFIFO}, func(t *testing.T, q queue) {
		want(t, sendOne(t, q, broker.Outgoing{DedupID: strings.Repeat("d", 128)}), nil)
		want(t, sendOne(t, q, broker.Outgoing{DedupID: strings.Repeat("d", 129)}), broker.ErrUnsupported)
	})
}

// A message of exactly the limit goes, one byte more does not. The metadata counts as long as it
// really is.
func TestSizeLimit(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		o := broker.Outgoing{
			Attributes: map[string]string{"name": "value"},
			Meta:       &broker.Meta{ID: "1", Key: strings.Repeat("\x01é\xff", 100), Dead: &broker.Dead{Fence: 1<<64 - 1, LastErr: strings.Repeat("<\n", 500)}},
		}
		used := len("name") + len("value") + len(broker.MetaAttribute) + len(broker.EncodeMeta(o.Meta))
		if q.preset == membroker.SQSStandard || q.preset == membroker.SQSFIFO {
			used += 2 * len("String")
		}
		o.Body = make([]byte, q.Limits().MaxBody-used+1)
		want(t, sendOne(t, q, o), broker.ErrTooLarge)
		o.Body = o.Body[1:]
		want(t, sendOne(t, q, o), nil)
	})
}

func TestBatchSize(t *testing.T) {
	virtual(t, presets[1:], func(t *testing.T, q queue) {
		most := q.Limits().MaxBody
		o := broker.Outgoing{Body: make([]byte, most/2), Group: "g"}
		send := func(os ...broker.Outgoing) error {
			_, err := q.Send(t.Context(), os)
			return err
		}
		want(t, send(o, o), nil)
		more := o
		more.Body = make([]byte, most/2+1)
		// The service refuses the whole request.
		err := send(o, more)
		if _, whole := errors.AsType[*broker.BatchError](err); !errors.Is(err, broker.ErrTooLarge) || whole {
			t.Fatal(err)
		}
		q.depth(2, 0, 0)
		// An entry that could never go is answered by itself.
		never := o
		never.Body = make([]byte, most+1)
		err = send(never, o)
		want(t, err, broker.ErrTooLarge)
		want(t, broker.ErrAt(err, 1), nil)
		q.depth(3, 0, 0)
	})
}

func TestSendRaw(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		meta := &broker.Meta{ID: "j-1", Type: "mail", Created: time.UnixMilli(1764000000000).UTC()}
		text := broker.EncodeMeta(meta)
		coded := *meta
		coded.BodyEncoding = "base64"
		strange := *meta
		strange.BodyEncoding = "rot13"
		for _, c := range []struct {
			name, body string
			attributes map[string]string
			want       broker.Message
			bad        bool
		}{
			{"foreign", "b", nil, broker.Message{Body: []byte("b")}, false},
			{"foreign attributes", "b", map[string]string{"k": "é"}, broker.Message{Body: []byte("b"), Attributes: map[string]string{"k": "é"}}, false},
			{"ours", "b", map[string]string{broker.MetaAttribute: text, "k": "v"}, broker.Message{Body: []byte("b"), Attributes: map[string]string{"k": "v"}, Meta: meta}, false},
			{"ours alone", "b", map[string]string{broker.MetaAttribute: text}, broker.Message{Body: []byte("b"), Meta: meta}, false},
			{"base64", "AP8=", map[string]string{broker.MetaAttribute: broker.EncodeMeta(&coded)}, broker.Message{Body: []byte("\x00\xff"), Meta: meta}, false},
			{"broken base64", "!", map[string]string{broker.MetaAttribute: broker.EncodeMeta(&coded)}, broker.Message{Body: []byte("!"), Attributes: map[string]string{broker.MetaAttribute: broker.EncodeMeta(&coded)}}, true},
			{"unknown encoding", "b", map[string]string{broker.MetaAttribute: broker.EncodeMeta(&strange)}, broker.Message{Body: []byte("b"), Attributes: map[string]string{broker.MetaAttribute: broker.EncodeMeta(&strange)}}, true},
			{"garbage", "b", map[string]string{broker.MetaAttribute: "{", "k": "v"}, broker.Message{Body: []byte("b"), Attributes: map[string]string{broker.MetaAttribute: "{", "k": "v"}}, true},
			{"empty", "b", map[string]string{broker.MetaAttribute: ""}, broker.Message{Body: []byte("b"), Attributes: map[string]string{broker.MetaAttribute: ""}}, true},
		} {
			if err := q.SendRaw(t.Context(), []byte(c.body), c.attributes); err != nil {
				t.Fatal(c.name, err)
			}
			for range 2 { // a redelivery is read as the first delivery was
				ms := q.receive(broker.ReceiveOptions{})
				if len(ms) != 1 {
					t.Fatalf("%s: %d messages", c.name, len(ms))
				}
				m := ms[0]
				got := broker.Message{Body: m.Body, Attributes: m.Attributes, Meta: m.Meta}
				if !reflect.DeepEqual(got, c.want) || errors.Is(m.MetaErr, broker.ErrBadMeta) != c.bad || (m.MetaErr != nil) != c.bad {
					t.Fatalf("%s: %+v, meta %+v, %v", c.name, got, m.Meta, m.MetaErr)
				}
				want(t, q.nack(m, 0), nil)
			}
			q.ack(q.receive(broker.ReceiveOptions{})...)
		}
	})
}

// The broker copies a Meta plainly, except for Dead. Another field that a plain copy shares needs a
// line there.
func TestMetaHasNoOtherReferences(t *testing.T) {
	for f := range reflect.TypeFor[broker.Meta]().Fields() {
		switch f.Type.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Chan, reflect.Func, reflect.Interface:
			if f.Name != "Dead" {
				t.Errorf("Meta.%s is shared by a plain copy", f.Name)
			}
		}
	}
}

func TestMetadataTravels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, membroker.Options{})
		meta := broker.Meta{
			ID: "1", Type: "t", Key: "k", CorrelationID: "c", Created: time.Now(), NotBefore: time.Now(), Expires: time.Now(), MaxAttempts: 3,
			Timeout: time.Second, Version: 2, Extra: `"x":1`,
			Dead: &broker.Dead{Fence: 7, Class: "c", FirstErr: "f", LastErr: "l", Attempts: 2, Source: "s", At: time.Now(), Extra: `"y":2`},
		}
		if err := sendOne(t, q, broker.Outgoing{Meta: &meta}); err != nil {
			t.Fatal(err)
		}
		if m := q.receive(broker.ReceiveOptions{})[0]; !reflect.DeepEqual(*m.Meta, meta) || m.Meta == &meta || m.Meta.Dead == meta.Dead {
			t.Fatalf("%+v", m.Meta)
		}
	})
}

func TestEndedContext(t *testing.T) {
	b := newBroker(t, membroker.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, depth := b.Depth(ctx)
	_, policy := b.Redrive(ctx)
	for call, err := range map[string]error{"Depth": depth, "Redrive": policy, "SendRaw": b.SendRaw(ctx, []byte("a"), nil)} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", call, err)
		}
	}
	if d, err := b.Depth(t.Context()); err != nil || d != (broker.Depth{}) {
		t.Errorf("%+v, %v: nothing may have been sent", d, err)
	}
}
