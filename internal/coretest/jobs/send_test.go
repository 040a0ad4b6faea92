package jobs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// mailbox is a Sender that notes its calls.
type mailbox struct {
	l     broker.Limits
	calls [][]broker.Outgoing
	send  func(call int, ms []broker.Outgoing) error
}

func (b *mailbox) Limits() broker.Limits { return b.l }

func (b *mailbox) Send(_ context.Context, ms []broker.Outgoing) ([]string, error) {
	b.calls = append(b.calls, slices.Clone(ms))
	if b.send == nil {
		return make([]string, len(ms)), nil
	}
	return make([]string, len(ms)), b.send(len(b.calls), ms)
}

func outgoing(n int) []broker.Outgoing {
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		ms[i].Body = fmt.Append(nil, i)
	}
	return ms
}

func TestSendFillsInWhatIsMissing(t *testing.T) {
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	before := time.Now()
	ms := outgoing(300)
	ms[1].Meta = &broker.Meta{Key: "mine"}
	ms[2].Meta = &broker.Meta{ID: "id"}
	ms[3].Meta = &broker.Meta{Created: before.Add(-time.Hour), Type: "typed"}
	if err := onceq.Send(t.Context(), &mailbox{l: broker.Limits{SendBatch: 10}}, ms); err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]bool)
	for i, m := range ms {
		if ids[m.Meta.ID] = true; !uuid.MatchString(m.Meta.ID) && i != 2 {
			t.Errorf("the id of message %d is %q", i, m.Meta.ID)
		}
		if m.Meta.Key != m.Meta.ID && i != 1 {
			t.Errorf("the key of message %d is %q, its id %q", i, m.Meta.Key, m.Meta.ID)
		}
		if i != 3 && (m.Meta.Created.Before(before) || time.Since(m.Meta.Created) < 0) {
			t.Errorf("message %d was created %v", i, m.Meta.Created)
		}
	}
	if len(ids) != len(ms) || ms[1].Meta.Key != "mine" || ms[2].Meta.Key != "id" || !ms[3].Meta.Created.Equal(before.Add(-time.Hour)) || ms[3].Meta.Type != "typed" {
		t.Errorf("%d ids; %+v", len(ids), ms[:4])
	}
}

// Two messages made from one Meta are two jobs. With one id the second would be a duplicate of the
// first.
func TestSendWithASharedMeta(t *testing.T) {
	shared := &broker.Meta{Type: "mail"}
	ms := outgoing(3)
	for i := range ms {
		ms[i].Meta = shared
	}
	if err := onceq.Send(t.Context(), &mailbox{}, ms); err != nil {
		t.Fatal(err)
	}
	if ms[0].Meta.ID == ms[1].Meta.ID || ms[1].Meta.ID == ms[2].Meta.ID || ms[2].Meta.Type != "mail" {
		t.Errorf("the ids are %q, %q, %q", ms[0].Meta.ID, ms[1].Meta.ID, ms[2].Meta.ID)
	}
	one := broker.Outgoing{Meta: shared}
	two := broker.Outgoing{Meta: shared}
	if err := errors.Join(onceq.SendOne(t.Context(), &mailbox{}, &one), onceq.SendOne(t.Context(), &mailbox{}, &two)); err != nil {
		t.Fatal(err)
	}
	if one.Meta.ID == two.Meta.ID {
		t.Error("two sends of one Meta are one job")
	}
}

func TestSendAgainIsTheSameJob(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		ms := outgoing(25)
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Send && c.N <= 2 {
				return faulty.Err(rig.ErrBoom, c.N == 2)
			}
			return nil
		})
		for range 2 {
			if err := onceq.Send(r.Context(), r.Q.Broker, ms); err == nil {
				t.Fatal("the send's error was swallowed")
			}
		}
		if err := onceq.Send(r.Context(), r.Q.Broker, ms); err != nil {
			t.Fatal(err)
		}
		r.WantQueue(50)
		r.RunFor(time.Minute)
		r.WantQueue(0)
		for _, m := range ms {
			if n := r.Seen.Started(m.Meta.Key); n != 1 {
				t.Errorf("job %s ran %d times", m.Meta.ID, n)
			}
		}
		one := broker.Outgoing{Body: []byte("one")}
		for range 2 {
			if err := onceq.SendOne(r.Context(), r.Q.Broker, &one); err != nil {
				t.Fatal(err)
			}
		}
		r.RunFor(time.Minute)
		if n := r.Seen.Started(one.Meta.Key); n != 1 {
			t.Errorf("the job ran %d times", n)
		}
	})
}

func TestSendInBatches(t *testing.T) {
	b := &mailbox{l: broker.Limits{SendBatch: 10}}
	if err := onceq.Send(t.Context(), b, outgoing(25)); err != nil {
		t.Fatal(err)
	}
	sizes := []int{}
	for _, c := range b.calls {
		sizes = append(sizes, len(c))
	}
	if !slices.Equal(sizes, []int{10, 10, 5}) {
		t.Errorf("the batches are %v", sizes)
	}
	b.calls = nil
	if err := onceq.Send(t.Context(), b, nil); err != nil || len(b.calls) != 0 {
		t.Errorf("sending nothing: %v, %d calls", err, len(b.calls))
	}
}

func TestSendAnswersByPosition(t *testing.T) {
	b := &mailbox{l: broker.Limits{SendBatch: 10}, send: func(call int, ms []broker.Outgoing) error {
		switch call {
		case 1:
			errs := make([]error, len(ms))
			errs[3] = broker.ErrTooLarge
			return broker.JoinEntries(errs)
		case 2:
			return rig.ErrBoom
		}
		return nil
	}}
	err := onceq.Send(t.Context(), b, outgoing(25))
	if _, ok := errors.AsType[*broker.BatchError](err); !ok {
		t.Fatalf("Send answered %v", err)
	}
	for i := range 25 {
		var want error
		switch {
		case i == 3:
			want = broker.ErrTooLarge
		case i >= 10 && i < 20:
			want = rig.ErrBoom
		}
		if got := broker.ErrAt(err, i); !errors.Is(got, want) || (want == nil) != (got == nil) {
			t.Errorf("entry %d: %v, want %v", i, got, want)
		}
	}
	if len(b.calls) != 3 {
		t.Errorf("%d calls: nothing but throttling is repeated", len(b.calls))
	}
}

func TestSendRepeatsWhatIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &mailbox{send: func(call int, ms []broker.Outgoing) error {
			if call == 1 {
				return broker.ErrThrottled // as a whole
			}
			errs := make([]error, len(ms))
			for i := range ms[1:] {
				errs[i+1] = fmt.Errorf("wrapped: %w", broker.ErrThrottled) // the first goes through
			}
			return broker.JoinEntries(errs)
		}}
		b.l.SendBatch = 10
		err := onceq.Send(t.Context(), b, outgoing(6))
		var got []string
		for _, c := range b.calls {
			var s strings.Builder
			for _, m := range c {
				s.WriteString(string(m.Body))
			}
			got = append(got, s.String())
		}
		if want := []string{"012345", "012345", "12345", "2345", "345"}; !slices.Equal(got, want) {
			t.Errorf("the calls sent %q, want %q", got, want)
		}
		for i := range 6 {
			if e := broker.ErrAt(err, i); (i < 4) != (e == nil) {
				t.Errorf("entry %d: %v", i, e)
			}
		}
	})
}

func TestSendEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &mailbox{send: func(int, []broker.Outgoing) error { return broker.ErrThrottled }}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if err := onceq.Send(ctx, b, outgoing(1)); !errors.Is(err, broker.ErrThrottled) {
			t.Errorf("Send answered %v", err)
		}
		if took := time.Since(begin); took > 60*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// Each of these messages fits, but not all of them into one request.
func TestSendOfMuchTogether(t *testing.T) {
	q := rig.NewBroker(t, membroker.Options{Preset: membroker.SQSStandard})
	ms := outgoing(20)
	for i := range ms {
		ms[i].Body = make([]byte, 300_000)
	}
	ms[7].Body = make([]byte, 2<<20)
	err := onceq.Send(t.Context(), q, ms)
	for i := range ms {
		if e := broker.ErrAt(err, i); (i == 7) != errors.Is(e, broker.ErrTooLarge) || i != 7 && e != nil {
			t.Errorf("entry %d: %v", i, e)
		}
	}
	if n := rig.Depth(t, q); n != 19 {
		t.Errorf("%d messages are in the queue, want 19", n)
	}
}

func TestSendRefusesMistakes(t *testing.T) {
	now := time.Now()
	for want, m := range map[string]broker.Outgoing{
		"Meta.Key":     {Meta: &broker.Meta{Key: strings.Repeat("k", 1025)}},
		"NUL":          {Meta: &broker.Meta{Key: "\x00"}},
		"UTF-8":        {Meta: &broker.Meta{Key: "\xff"}},
		"Delay":        {Delay: -1},
		"Meta.Timeout": {Meta: &broker.Meta{Timeout: -1}},
		"Meta.Timeout: 30ns is below 1ms; is its unit missing?": {Meta: &broker.Meta{Timeout: 30}},
		"Meta.NotBefore": {Meta: &broker.Meta{NotBefore: now, Expires: now}},
		"Attributes":     {Attributes: map[string]string{broker.MetaAttribute: "x"}},
	} {
		b := &mailbox{l: broker.Limits{SendBatch: 1}}
		err := onceq.Send(t.Context(), b, []broker.Outgoing{{}, m})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "message 1") || len(b.calls) != 0 {
			t.Errorf("Send answered %v after %d calls, want an error of message 1 with %q, and nothing sent", err, len(b.calls), want)
		}
		if err := onceq.SendOne(t.Context(), b, &m); err == nil || len(b.calls) != 0 {
			t.Errorf("SendOne answered %v", err)
		}
	}
	if onceq.Send(t.Context(), nil, outgoing(1)) == nil || onceq.Send(t.Context(), (*membroker.Broker)(nil), outgoing(1)) == nil || onceq.SendOne(t.Context(), &mailbox{}, nil) == nil {
		t.Error("nil was taken")
	}
}

func TestSendOneAnswersTheEntrysError(t *testing.T) {
	b := &mailbox{send: func(int, []broker.Outgoing) error { return broker.JoinEntries([]error{broker.ErrTooLarge}) }}
	err := onceq.SendOne(t.Context(), b, &broker.Outgoing{})
	if _, batch := errors.AsType[*broker.BatchError](err); !errors.Is(err, broker.ErrTooLarge) || batch {
		t.Errorf("SendOne answered %T %v", err, err)
	}
}

func TestSendToABrokerThatPanics(t *testing.T) {
	b := &mailbox{send: func(int, []broker.Outgoing) error { panic("broker") }}
	if err := onceq.Send(t.Context(), b, outgoing(2)); err == nil || !strings.Contains(err.Error(), "panic") {
		t.Errorf("Send answered %v", err)
	}
}

// Messages of one group keep their order, whatever the broker takes of a batch.
func TestSendKeepsTheOrderOfGroups(t *testing.T) {
	groups := []string{"a", "b", "a", "", "b", "a", "b", "a", ""}
	for name, c := range map[string]struct {
		send    func(call, i int, body string) error
		ordered bool
		calls   []string // the bodies of each call
		failed  string   // the bodies of the entries that have errors
		behind  string   // those that were never offered
		late    string   // those whose error tells that they were overtaken
	}{
		"refused": { // 4 has overtaken 1, and 6 is not sent
			send: func(call, i int, body string) error {
				if body == "1" {
					return rig.ErrBoom
				}
				return nil
			},
			ordered: true, calls: []string{"01234", "578"}, failed: "16", behind: "6", late: "1",
		},
		"throttled": { // nothing of their groups comes after 2 and 4 in their batch
			send: func(call, i int, body string) error {
				if call == 1 && body == "2" || body == "4" && call < 3 {
					return broker.ErrThrottled
				}
				return nil
			},
			ordered: true, calls: []string{"01234", "24", "4", "5678"},
		},
		"throttled, and overtaken": {
			send: func(call, i int, body string) error {
				if body == "0" {
					return broker.ErrThrottled
				}
				return nil
			},
			ordered: true, calls: []string{"01234", "68"}, failed: "057", behind: "57", late: "0",
		},
		"not ordered": {
			send: func(call, i int, body string) error {
				if call == 1 && body == "0" {
					return broker.ErrThrottled
				}
				if body == "1" {
					return rig.ErrBoom
				}
				return nil
			},
			calls: []string{"01234", "0", "5678"}, failed: "1",
		},
		"throttled for good": {
			send: func(call, i int, body string) error {
				if body >= "2" && groups[body[0]-'0'] == "a" {
					return broker.ErrThrottled
				}
				return nil
			},
			ordered: true, calls: []string{"01234", "2", "2", "2", "2", "68"}, failed: "257", behind: "57",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &mailbox{send: func(call int, ms []broker.Outgoing) error {
					errs := make([]error, len(ms))
					for i, m := range ms {
						errs[i] = c.send(call, i, string(m.Body))
					}
					return broker.JoinEntries(errs)
				}}
				b.l.SendBatch, b.l.OrderedGroups = 5, c.ordered
				ms := outgoing(len(groups))
				for i := range ms {
					ms[i].Group = groups[i]
				}
				err := onceq.Send(t.Context(), b, ms)
				var calls []string
				for _, call := range b.calls {
					var s strings.Builder
					for _, m := range call {
						s.WriteString(string(m.Body))
					}
					calls = append(calls, s.String())
				}
				if !slices.Equal(calls, c.calls) {
					t.Errorf("the calls sent %q, want %q", calls, c.calls)
				}
				var failed, behind, late string
				for i := range ms {
					e := broker.ErrAt(err, i)
					if e == nil {
						continue
					}
					failed += string(ms[i].Body)
					if strings.Contains(e.Error(), "an earlier message") {
						behind += string(ms[i].Body)
					}
					if strings.Contains(e.Error(), "behind them") {
						late += string(ms[i].Body)
					}
				}
				if failed != c.failed || behind != c.behind || late != c.late {
					t.Errorf("failed %q, behind %q, overtaken %q; want %q, %q, %q", failed, behind, late, c.failed, c.behind, c.late)
				}
			})
		})
	}
}
