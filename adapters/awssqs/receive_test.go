package awssqs_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/retry"
)

func brings(ms ...object) stubAnswer { return stubAnswer{out: object{"Messages": ms}} }

func bodiesOf(ms []*broker.Message) (bs []string) {
	for _, m := range ms {
		bs = append(bs, string(m.Body))
	}
	return bs
}

func TestReceiveAsksInWholeSeconds(t *testing.T) {
	for _, c := range []struct {
		o                broker.ReceiveOptions
		wait, visibility float64
	}{
		{broker.ReceiveOptions{Max: 1, Visibility: time.Minute}, 0, 60},
		{broker.ReceiveOptions{Max: 1, Wait: 999 * time.Millisecond, Visibility: 1001 * time.Millisecond}, 0, 2},
		{broker.ReceiveOptions{Max: 1, Wait: 2900 * time.Millisecond, Visibility: time.Second}, 2, 1},
		{broker.ReceiveOptions{Max: 1, Wait: -1, Visibility: 12 * time.Hour}, 8, 43200},
	} {
		b, s := stubbed(t, stubURL, nil, func(stubCall) stubAnswer { return brings() })
		if ms, err := b.Receive(t.Context(), c.o); len(ms) > 0 || err != nil {
			t.Fatal(ms, err)
		}
		in := s.of("ReceiveMessage")[0].in
		if wait, ok := in["WaitTimeSeconds"]; !ok || wait != c.wait {
			t.Errorf("%+v: WaitTimeSeconds is %v, want %v: a missing one is the queue's own", c.o, wait, c.wait)
		}
		if in["VisibilityTimeout"] != c.visibility {
			t.Errorf("%+v: VisibilityTimeout is %v, want %v", c.o, in["VisibilityTimeout"], c.visibility)
		}
		if _, ok := in["ReceiveRequestAttemptId"]; ok {
			t.Errorf("%+v: a standard queue was given a ReceiveRequestAttemptId", c.o)
		}
	}
}

func TestReceiveRefusesOptions(t *testing.T) {
	b, s := stubbed(t, stubURL, nil, func(stubCall) stubAnswer { return brings() })
	for _, o := range []broker.ReceiveOptions{
		{},
		{Max: 11},
		{Max: -1},
		{Max: 1, Wait: 8*time.Second + 1},
		{Max: 1, Visibility: time.Second - 1},
		{Max: 1, Visibility: 12*time.Hour + 1},
		{Max: 1, Visibility: -1},
		{Max: 1, Visibility: math.MaxInt64},
		{Max: 1, Wait: math.MaxInt64},
		{Max: math.MaxInt},
	} {
		if _, err := b.Receive(t.Context(), o); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("%+v was answered: %v", o, err)
		}
	}
	if n := len(s.calls); n > 0 {
		t.Errorf("%d calls were made", n)
	}
}

func TestReceiveReadsMessage(t *testing.T) {
	m := delivery("hello", "r1", "g")
	m["MessageAttributes"] = object{
		"a":     object{"DataType": "String", "StringValue": "x"},
		"n":     object{"DataType": "Number.int", "StringValue": "7"},
		"bin":   object{"DataType": "Binary", "BinaryValue": "AP8="},
		"onceq": object{"DataType": "String", "StringValue": `{"v":1,"id":"j"}`},
	}
	b, _ := stubbed(t, stubURL, nil, func(stubCall) stubAnswer { return brings(m) })
	ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 10, Visibility: time.Minute})
	if err != nil || len(ms) != 1 {
		t.Fatal(ms, err)
	}
	got := ms[0]
	if got.ID != "id-r1" || got.Receipt != "r1" || string(got.Body) != "hello" || got.Group != "g" || got.Attempt != 3 || got.Published.UnixMilli() != 1764000000123 {
		t.Errorf("the message came as %+v", got)
	}
	if len(got.Attributes) != 3 || got.Attributes["a"] != "x" || got.Attributes["n"] != "7" || got.Attributes["bin"] != "\x00\xff" {
		t.Errorf("the attributes came as %q", got.Attributes)
	}
	if got.Meta == nil || got.Meta.ID != "j" {
		t.Errorf("the metadata came as %+v, %v", got.Meta, got.MetaErr)
	}
}

// A mark that came with an encoded body is no metadata.
func TestReceiveDecodesBodies(t *testing.T) {
	for _, c := range []struct {
		body, meta, want string
		has              bool
		bad              bool
	}{
		{"AP8=", `{"v":1,"be":"base64"}`, "\x00\xff", false, false},
		{"\n", `{"v":1,"be":"base64"}`, "", false, false},
		{"AP8=", `{"v":1,"id":"j","be":"base64"}`, "\x00\xff", true, false},
		{"AP8=", `{"v":1}`, "AP8=", true, false},
		{"AP8=", `{"v":1,"be":"rot13"}`, "AP8=", false, true},
		{"not base64", `{"v":1,"be":"base64"}`, "not base64", false, true},
		{"AP8=", `{"be":"base64"}`, "AP8=", false, true},
	} {
		m := delivery(c.body, "r", "")
		m["MessageAttributes"] = object{"onceq": object{"DataType": "String", "StringValue": c.meta}}
		b, _ := stubbed(t, stubURL, nil, func(stubCall) stubAnswer { return brings(m) })
		ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Visibility: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		got := ms[0]
		if string(got.Body) != c.want || (got.Meta != nil) != c.has || errors.Is(got.MetaErr, broker.ErrBadMeta) != c.bad {
			t.Errorf("%q with %s came as %q with %+v, %v", c.body, c.meta, got.Body, got.Meta, got.MetaErr)
		}
		if left := got.Attributes["onceq"]; c.bad != (left == c.meta) || !c.bad && got.Attributes != nil {
			t.Errorf("%q with %s left the attributes %q", c.body, c.meta, got.Attributes)
		}
		if got.Meta != nil && got.Meta.BodyEncoding != "" {
			t.Errorf("%q came with the mark %q", c.body, got.Meta.BodyEncoding)
		}
	}
}

// The deadline is counted from the answer, less the smaller of the poll's length, 5 s and a quarter
// of the timeout.
func TestDeadlineIsEarly(t *testing.T) {
	for _, c := range []struct{ took, visibility, margin time.Duration }{
		{0, time.Minute, 0},
		{3 * time.Second, time.Minute, 3 * time.Second},
		{7 * time.Second, time.Minute, 5 * time.Second},
		{7 * time.Second, 8 * time.Second, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, _ := stubbed(t, stubURL, nil, func(stubCall) stubAnswer {
				a := brings(delivery("a", "r", ""))
				a.wait = c.took
				return a
			})
			started := time.Now()
			ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1, Visibility: c.visibility})
			if err != nil {
				t.Fatal(err)
			}
			if want := started.Add(c.took + c.visibility - c.margin); !ms[0].Deadline.Equal(want) {
				t.Errorf("a poll of %v with a timeout of %v: Deadline is %v off", c.took, c.visibility, ms[0].Deadline.Sub(want))
			}
		})
	}
}

func TestVisibilityOfQueueIsAskedOnce(t *testing.T) {
	asked := stubAnswer{out: object{"Attributes": object{"VisibilityTimeout": "45"}}}
	for name, c := range map[string]struct {
		answers []stubAnswer
		want    []float64 // of the receives that are made
	}{
		"known":     {[]stubAnswer{asked}, []float64{45, 45}},
		"forbidden": {[]stubAnswer{{code: "AccessDenied", status: 403}}, []float64{30, 30}},
		"failing":   {[]stubAnswer{{code: "InvalidSecurity"}, asked}, []float64{45}},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			b, st := stubbed(t, stubURL, nil, func(call stubCall) stubAnswer {
				if call.op == "ReceiveMessage" {
					return brings()
				}
				n++
				return c.answers[min(n, len(c.answers))-1]
			})
			failed := 0
			for range 2 {
				if _, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1}); err != nil {
					failed++
				}
			}
			rs := st.of("ReceiveMessage")
			if len(rs) != len(c.want) || failed != 2-len(c.want) || n != len(c.answers) {
				t.Fatalf("%d receives, %d failed, %d questions", len(rs), failed, n)
			}
			for i, r := range rs {
				if r.in["VisibilityTimeout"] != c.want[i] {
					t.Errorf("receive %d asked for %v, want %v", i, r.in["VisibilityTimeout"], c.want[i])
				}
			}
		})
	}
}

func TestSilentPollEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := stubbed(t, stubURL, nil, func(stubCall) stubAnswer { return stubAnswer{wait: time.Hour} })
		started := time.Now()
		_, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1, Visibility: time.Minute})
		if took := time.Since(started); took != 18*time.Second || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Errorf("after %v it was answered: %v", took, err)
		}
	})
}

func TestCancelledPollMayEnd(t *testing.T) {
	for name, c := range map[string]struct {
		o     *awssqs.Options
		after time.Duration // the cancellation until the answer
		ends  time.Duration // the poll, after the cancellation
		comes bool
	}{
		"within the grace":    {nil, 7 * time.Second, 7 * time.Second, true},
		"beyond the grace":    {&awssqs.Options{ReceiveGrace: 3 * time.Second}, 7 * time.Second, 3 * time.Second, false},
		"without a grace":     {&awssqs.Options{ReceiveGrace: -1}, time.Second, 0, false},
		"a call that is long": {nil, time.Hour, 9 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _ := stubbed(t, stubURL, c.o, func(stubCall) stubAnswer {
					a := brings(delivery("a", "r", ""))
					a.wait = time.Second + c.after
					return a
				})
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				started := time.Now()
				ms, err := b.Receive(ctx, broker.ReceiveOptions{Max: 1, Wait: -1, Visibility: time.Minute})
				if took := time.Since(started) - time.Second; took != c.ends {
					t.Errorf("it ended %v after the cancellation, want %v", took, c.ends)
				}
				if c.comes && (err != nil || len(ms) != 1) || !c.comes && (!errors.Is(err, context.Canceled) || len(ms) > 0) {
					t.Errorf("it was answered %v, %v", bodiesOf(ms), err)
				}
			})
		})
	}
}

func TestCloseCutsPollsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := stubbed(t, stubURL, nil, func(stubCall) stubAnswer { return stubAnswer{wait: time.Hour} })
		time.AfterFunc(time.Second, func() { b.Close() })
		started := time.Now()
		_, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1, Visibility: time.Minute})
		if took := time.Since(started); took != time.Second || !errors.Is(err, broker.ErrClosed) {
			t.Errorf("after %v it was answered: %v", took, err)
		}
		wait := make(chan error, 1)
		b, _ = stubbed(t, stubURL, nil, func(stubCall) stubAnswer { return stubAnswer{wait: time.Hour} })
		go func() { wait <- b.Ack(t.Context(), []broker.Receipt{"r"}) }()
		<-time.After(time.Second)
		b.Close()
		closed := time.Now()
		if err := <-wait; time.Since(closed) > 0 || !errors.Is(err, broker.ErrClosed) {
			t.Errorf("%v after Close an Ack was answered: %v", time.Since(closed), err)
		}
		if _, err := b.Depth(t.Context()); !errors.Is(err, broker.ErrClosed) {
			t.Errorf("Depth was answered: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("a second Close was answered: %v", err)
		}
	})
}

func TestDamagedBodyIsLeftToALaterDelivery(t *testing.T) {
	for name, c := range map[string]struct {
		url         string
		ms          []object
		comes, left []string
	}{
		"its neighbours come": {stubURL, []object{delivery("a", "1", "g"), damaged(delivery("b", "2", "g")), delivery("c", "3", "g")}, []string{"a", "c"}, []string{"2"}},
		"nothing overtakes it in its group": {
			fifoURL, []object{delivery("a", "1", "g"), damaged(delivery("b", "2", "g")), delivery("x", "3", "h"), delivery("c", "4", "g")}, []string{"a", "x"}, []string{"2", "4"},
		},
		"nothing else comes": {stubURL, []object{damaged(delivery("b", "2", ""))}, nil, []string{"2"}},
	} {
		t.Run(name, func(t *testing.T) {
			b, s := stubbed(t, c.url, nil, func(call stubCall) stubAnswer {
				if call.op == "ReceiveMessage" {
					return brings(c.ms...)
				}
				return allApplied(call)
			})
			ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 10, Visibility: time.Minute})
			if got := bodiesOf(ms); !slices.Equal(got, c.comes) {
				t.Errorf("%q came, want %q", got, c.comes)
			}
			if (err != nil) != (c.comes == nil) || err != nil && !errors.Is(err, awssqs.ErrChecksum) {
				t.Errorf("it was answered: %v", err)
			}
			var left []string
			for _, call := range s.of("ChangeMessageVisibilityBatch") {
				for _, e := range call.entries() {
					left = append(left, e["ReceiptHandle"].(string))
					if e["VisibilityTimeout"] != 1.0 {
						t.Errorf("it is to come again after %v s", e["VisibilityTimeout"])
					}
				}
			}
			if !slices.Equal(left, c.left) {
				t.Errorf("%q were given back, want %q", left, c.left)
			}
			if b.Stats().Damaged != 1 {
				t.Errorf("Stats are %+v", b.Stats())
			}
		})
	}
}

// On a FIFO queue a receive that nobody answered is the same receive when it is made again.
func TestUnansweredReceiveIsAskedAgain(t *testing.T) {
	type step struct {
		a     stubAnswer
		max   int
		after time.Duration // before the receive
		same  int           // the step whose id it has
		asks  float64       // MaxNumberOfMessages
		hide  time.Duration // the visibility; 0 = a minute
	}
	lost := stubAnswer{lost: errReset}
	for name, steps := range map[string][]step{
		"answered":             {{a: brings(), max: 10, asks: 10}, {a: brings(), max: 10, same: 1, asks: 10}},
		"lost":                 {{a: lost, max: 10, asks: 10}, {a: lost, max: 10, asks: 10}, {a: brings(), max: 10, asks: 10}, {a: brings(), max: 10, same: 3, asks: 10}},
		"a failure of SQS":     {{a: stubAnswer{code: "InternalError", status: 500}, max: 10, asks: 10}, {a: brings(), max: 10, asks: 10}},
		"refused":              {{a: stubAnswer{code: "RequestThrottled"}, max: 10, asks: 10}, {a: brings(), max: 10, same: 1, asks: 10}},
		"no room":              {{a: lost, max: 10, asks: 10}, {a: brings(), max: 9, same: 1, asks: 9}, {a: brings(), max: 10, asks: 10}},
		"more room":            {{a: lost, max: 3, asks: 3}, {a: brings(), max: 10, asks: 3}},
		"another timeout":      {{a: lost, max: 10, asks: 10}, {a: brings(), max: 10, same: 1, asks: 10, hide: 2 * time.Minute}, {a: brings(), max: 10, asks: 10}},
		"visible again":        {{a: lost, max: 10, asks: 10}, {a: brings(), max: 10, after: time.Minute, same: 1, asks: 10}},
		"just not yet visible": {{a: lost, max: 10, asks: 10}, {a: brings(), max: 10, after: time.Minute - 1, asks: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				b, s := stubbed(t, fifoURL, nil, func(stubCall) stubAnswer { n++; return steps[n-1].a })
				for i, st := range steps {
					retry.Rest(context.Background(), st.after)
					_, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: st.max, Visibility: cmp.Or(st.hide, time.Minute)})
					if (err != nil) != (st.a.lost != nil || st.a.code != "") {
						t.Fatalf("step %d was answered: %v", i, err)
					}
				}
				calls := s.of("ReceiveMessage")
				for i, st := range steps {
					id := calls[i].in["ReceiveRequestAttemptId"]
					if id == nil || id == "" {
						t.Fatalf("step %d has no id", i)
					}
					for j := range i {
						if same := calls[j].in["ReceiveRequestAttemptId"] == id; same != (steps[j].same == st.same) {
							t.Errorf("steps %d and %d have the same id: %v", j, i, same)
						}
					}
					if calls[i].in["MaxNumberOfMessages"] != st.asks {
						t.Errorf("step %d asks for %v messages, want %v", i, calls[i].in["MaxNumberOfMessages"], st.asks)
					}
				}
			})
		})
	}
}

func TestChecksumsAreTheUsersChoice(t *testing.T) {
	s := &stub{answer: func(call stubCall) stubAnswer {
		if call.op == "ReceiveMessage" {
			return brings(damaged(delivery("a", "1", "")))
		}
		return stubAnswer{out: object{"Successful": []object{{"Id": "0", "MessageId": "m", "MD5OfMessageBody": strings.Repeat("0", 32)}}}}
	}}
	b := makeBroker(t, s.client(func(o *sqs.Options) { o.DisableMessageChecksumValidation = true }), stubURL, nil)
	ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Visibility: time.Minute})
	if err != nil || len(ms) != 1 {
		t.Errorf("%v, %v", bodiesOf(ms), err)
	}
	if ids, err := b.Send(t.Context(), []broker.Outgoing{sized(1)}); err != nil || ids[0] != "m" {
		t.Errorf("%v, %v", ids, err)
	}
}
