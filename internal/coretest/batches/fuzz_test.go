package batches

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/must"
)

// What a fuzzed configuration sets, by the bits of an input.
const (
	fuzzSQS         = 1 << iota // the queues have the limits of SQS, else of memory
	fuzzMeta                    // the message has a metadata attribute
	fuzzKey                     // ProcessorConfig.Key is set
	fuzzKeyScope                // and chooses the scope as well
	fuzzKeyErr                  // and answers an error
	fuzzFingerprint             // ProcessorConfig.Fingerprint is set
	fuzzMux                     // the handler is a Mux with the type "t"
	fuzzPark
	fuzzOneAttempt
	fuzzTenAttributes // as many as SQS carries
	fuzzLongKey
	fuzzFull // the message is as large as SQS carries: its letter does not fit
)

// step is what a fuzzed body asks its handler for.
type step struct{ Do string }

func fuzzHandler(_ context.Context, j *onceq.Job, s step) (any, error) {
	switch s.Do {
	case "error":
		return nil, rig.ErrBoom
	case "permanent":
		return nil, onceq.Permanent(rig.ErrBoom)
	case "retry":
		return nil, onceq.RetryAfter(time.Hour, rig.ErrBoom)
	case "panic":
		panic(j.ID())
	case "text":
		return nil, errors.New(string(j.Message.Body))
	case "unencodable":
		return func() {}, nil
	}
	return s, nil
}

// FuzzProcess lets anything that a producer may send go through a Processor: nothing panics, and
// nothing is lost. A message is acked only when its key is done or its dead letter is stored, and
// the letter holds all that it held.
func FuzzProcess(f *testing.F) {
	meta := broker.EncodeMeta(&broker.Meta{ID: "j", Type: "t", Key: "k", Created: time.UnixMilli(1764000000000)})
	f.Add([]byte(`{"Do":"nothing"}`), meta, "a", "1", "k", uint16(fuzzMeta))
	f.Add([]byte(`{"Do":"permanent"}`), meta, "a", "\x00", "k", uint16(fuzzMeta|fuzzSQS|fuzzFingerprint))
	f.Add([]byte(`{"Do":"panic"}`), meta, "a", "1", "k", uint16(fuzzMeta|fuzzPark|fuzzTenAttributes|fuzzSQS))
	f.Add([]byte(`{"Do":"error"}`), `{"v":1,"k":"k","ma":1}`, "a", "1", "k", uint16(fuzzMeta|fuzzMux))
	f.Add([]byte(`{"Do":"text","x":"\u0000"}`), `{"v":1,"k":"k","t":"t"}`, "onceq-unreadable", "1", "k", uint16(fuzzMeta|fuzzMux|fuzzOneAttempt))
	f.Add([]byte(`{"Do":"retry"}`), `{"v":1,"nb":1,"ex":2,"to":1}`, "", "", "k", uint16(fuzzMeta))
	f.Add([]byte(`{"Do":"unencodable"}`), `{"v":1,"nb":253402300799999}`, "a", "1", "\xff", uint16(fuzzKey))
	f.Add([]byte(`x`), `{"v":9,"k":"x","new":1}`, "a", "1", "é", uint16(fuzzKey|fuzzKeyScope|fuzzLongKey|fuzzMeta))
	f.Add([]byte("\x00"), `{`, "a", "1", "", uint16(fuzzMeta|fuzzKeyErr|fuzzKey))
	f.Add([]byte(`{"Do":"permanent"}`), meta, "a", "1", "k", uint16(fuzzMeta|fuzzSQS|fuzzFull))
	f.Add([]byte(`{"Do":"permanent"}`), `{`, "a", "1", "k", uint16(fuzzMeta|fuzzSQS|fuzzFull))
	f.Add([]byte(`{}`), `{"v":1,"k":"k","dead":{"f":1,"c":"error","ua":{"b":"2","a":"3"}}}`, "a", "1", "", uint16(fuzzMeta|fuzzSQS|fuzzTenAttributes))
	f.Fuzz(func(t *testing.T, body []byte, raw, name, value, k string, bits uint16) {
		z := newFuzzed(t, k, bits)
		attributes := map[string]string{name: value}
		if bits&fuzzMeta != 0 {
			attributes[broker.MetaAttribute] = raw
		}
		if bits&fuzzTenAttributes != 0 {
			for i := byte('0'); len(attributes) < 10; i++ {
				attributes["more"+string(i)] = "x"
			}
		}
		if bits&fuzzFull != 0 {
			room := 1<<20 - len(body)
			for name, value := range attributes {
				room -= len(name) + len(value) + len("String")
			}
			body = append(bytes.Clone(body), bytes.Repeat([]byte(" "), max(0, room))...)
		}
		for range 2 { // a duplicate
			if z.queue.SendRaw(t.Context(), body, attributes) != nil {
				return // the service does not carry it
			}
			z.deliver()
		}
		for _, l := range z.taken { // an operator replays what there is
			_ = onceq.SendOne(t.Context(), z.queue, &broker.Outgoing{Body: l.Body, Attributes: l.Attributes, Meta: l.Meta})
			z.deliver()
		}
	})
}

// fuzzed is a Processor between two queues.
type fuzzed struct {
	*testing.T
	queue, dead *faulty.Broker
	store       *memstore.Store
	b           *onceq.Batches
	runs        map[dedupe.Key]int // that ended well
	taken       []*broker.Message  // letters
}

func newFuzzed(t *testing.T, k string, bits uint16) *fuzzed {
	t.Helper()
	o := membroker.Options{}
	if bits&fuzzSQS != 0 {
		o.Preset = membroker.SQSStandard
	}
	st := must.Get(memstore.New(nil))
	z := &fuzzed{T: t, queue: rig.NewBroker(t, o), dead: rig.NewBroker(t, o), store: st, runs: make(map[dedupe.Key]int)}
	h := onceq.Chain(onceq.JSONResult(fuzzHandler), func(next onceq.Handler) onceq.Handler {
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			err := next.Handle(ctx, j)
			if err == nil {
				z.runs[j.Key()]++
			}
			return err
		})
	})
	c := onceq.ProcessorConfig{Handler: h, Store: st, Scope: rig.Scope}
	if bits&fuzzMux != 0 {
		m := new(onceq.Mux)
		m.On("t", h, nil)
		c.Handler = m
	}
	if bits&fuzzLongKey != 0 {
		k = strings.Repeat(k, dedupe.MaxKey+1)
	}
	if bits&fuzzKey != 0 {
		c.Key = func(*broker.Message) (key dedupe.Key, err error) {
			key.Key = k
			if bits&fuzzKeyScope != 0 {
				key.Scope = k
			}
			if bits&fuzzKeyErr != 0 {
				err = errors.New(k)
			}
			return key, err
		}
	}
	if bits&fuzzFingerprint != 0 {
		c.Fingerprint = func(m *broker.Message) []byte { return m.Body }
	}
	if bits&fuzzPark != 0 {
		c.Defaults.Interrupted = dedupe.Park
	}
	if bits&fuzzOneAttempt != 0 {
		c.Defaults.MaxAttempts = 1
	}
	p, err := onceq.NewProcessor(c)
	if err != nil {
		t.Fatal(err)
	}
	if z.b, err = p.Batches(onceq.BatchConfig{DeadLetter: z.dead}); err != nil {
		t.Fatal(err)
	}
	return z
}

// deliver receives what is visible, one by one, and does with it what the Processor says.
func (z *fuzzed) deliver() {
	z.Helper()
	for {
		ms, err := z.queue.Receive(z.Context(), broker.ReceiveOptions{Max: 1})
		if err != nil {
			z.Fatal(err)
		}
		if len(ms) == 0 {
			return
		}
		m := *ms[0]
		m.Body, m.Attributes, m.Meta = bytes.Clone(m.Body), maps.Clone(m.Attributes), m.Meta.Clone()
		var got []onceq.Disposition
		z.b.Process(z.Context(), []onceq.Delivery{{Message: ms[0]}}, nil, func(_ int, d onceq.Disposition) { got = append(got, d) })
		if len(got) != 1 {
			z.Fatalf("%d dispositions of one delivery", len(got))
		}
		z.check(&m, got[0])
		if got[0].Action == onceq.Ack {
			err = z.queue.Ack(z.Context(), []broker.Receipt{m.Receipt})
		} else {
			// Out of the way of the next delivery; the Processor's own delay may be 0.
			err = z.queue.Nack(z.Context(), []broker.Hold{{Receipt: m.Receipt, For: time.Hour}})
		}
		if err != nil {
			z.Fatal(err)
		}
	}
}

// check holds a disposition against what is stored.
func (z *fuzzed) check(m *broker.Message, d onceq.Disposition) {
	z.Helper()
	var letters []*broker.Message
	for {
		got, err := z.dead.Receive(z.Context(), broker.ReceiveOptions{Max: 10})
		if err != nil {
			z.Fatal(err)
		}
		if len(got) == 0 {
			break
		}
		letters = append(letters, got...)
	}
	r := d.Report
	switch {
	case d.Action == onceq.Ack && len(letters) == 0:
		recs, err := z.store.Get(z.Context(), []dedupe.Key{r.Key})
		if err != nil || recs[0] == nil || recs[0].Status != dedupe.Done {
			z.Fatalf("acked as %q without a letter, and the record is %+v, %v", r.Outcome, recs[0], err)
		}
		if z.runs[r.Key] != 1 {
			z.Fatalf("done, and the handler has ended well %d times", z.runs[r.Key])
		}
	case d.Action == onceq.Ack && len(letters) == 1:
		z.checkLetter(m, letters[0], r)
		z.taken = append(z.taken, letters[0])
	case d.Action == onceq.Nack && len(letters) == 0:
		if r.Outcome != "retried" && r.Outcome != "early" && r.Outcome != "kept" {
			z.Fatalf("given back as %q", r.Outcome)
		}
	default:
		z.Fatalf("%v as %q, and %d letters", d.Action, r.Outcome, len(letters))
	}
}

func (z *fuzzed) checkLetter(m, l *broker.Message, r onceq.JobReport) {
	z.Helper()
	if r.ErrClass == "" || len(r.ErrClass) > 64 {
		z.Errorf("a letter of class %q", r.ErrClass)
	}
	if !bytes.Equal(l.Body, m.Body) {
		z.Errorf("the letter's body is %q, want %q", l.Body, m.Body)
	}
	bare := l.Meta == nil && len(m.Body) >= 1<<19
	if l.MetaErr != nil && (m.MetaErr == nil || !bare) {
		z.Errorf("the letter's metadata cannot be read: %v", l.MetaErr)
	}
	if l.Meta == nil && !bare {
		z.Errorf("a bare letter of %d bytes and %d attributes", len(m.Body), len(m.Attributes))
	}
	have := maps.Clone(l.Attributes)
	if have == nil {
		have = make(map[string]string)
	}
	if l.Meta != nil && l.Meta.Dead != nil {
		d := l.Meta.Dead
		if d.Class != r.ErrClass || d.Fence != r.Fence && r.Outcome == "failed" {
			z.Errorf("the letter is %+v, and the record %+v", d, r)
		}
		for k, v := range d.Attributes {
			if _, outer := have[k]; !outer {
				have[k] = v
			}
		}
	}
	for k, v := range m.Attributes {
		if k == dlq.UnreadableAttribute {
			continue // the name is ours
		}
		if m.MetaErr != nil && k == broker.MetaAttribute && !bare {
			k = dlq.UnreadableAttribute
		}
		if got, ok := have[k]; !ok || got != v && got != strings.ToValidUTF8(v, "\uFFFD") {
			z.Errorf("the letter's attribute %q is %q, want %q", k, got, v)
		}
	}
}

// FuzzJSON: a body either decodes, and the handler's result can be read again, or it is a dead
// letter.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,null,"\ud800"]}`, `1e400`, `"`, ``, `null`, `{"a":1,"a":2}`, "\xff", ` 7 `, `7 8`, `[[[[]]]]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		st := must.Get(memstore.New(nil))
		var want any
		bad := json.Unmarshal(body, &want)
		p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
			Handler: onceq.JSONResult(func(_ context.Context, _ *onceq.Job, v any) (any, error) { return v, nil }),
			Store:   st, Scope: rig.Scope,
		}))
		b := must.Get(p.Batches(onceq.BatchConfig{DeadLetter: onceq.KeepInQueue}))
		m := &broker.Message{ID: "m", Body: body, Meta: &broker.Meta{Key: "k"}}
		b.Process(t.Context(), []onceq.Delivery{{Message: m}}, nil, func(_ int, d onceq.Disposition) {
			got, status, err := onceq.Result[any](t.Context(), st, d.Report.Key)
			switch {
			case err != nil:
				t.Error(err)
			case bad != nil && (d.Action != onceq.Nack || d.Report.ErrClass != onceq.ClassDecode || status != dedupe.Released):
				t.Errorf("%v, %q, %v for a body that does not decode: %v", d.Action, d.Report.ErrClass, status, bad)
			case bad == nil && (d.Action != onceq.Ack || status != dedupe.Done || !reflect.DeepEqual(got, want)):
				t.Errorf("%v, %v, result %#v, want %#v", d.Action, status, got, want)
			}
		})
	})
}
