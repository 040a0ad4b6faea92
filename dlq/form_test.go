package dlq_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/letter/lettertest"
)

var rewrite = flag.Bool("rewrite", false, "write what the code makes into testdata, instead of comparing it")

// The letters in testdata are what workers have put into queues. A worker, a replay or a purge of
// another version reads them, so no byte of them may change.

// TestFormOfLetters compares every fit of every kind of letter with testdata.
func TestFormOfLetters(t *testing.T) {
	var b strings.Builder
	for _, l := range formLetters() {
		fmt.Fprintf(&b, "%s\n\t%s\n", l.name, form(&l.out))
	}
	compare(t, "letters.txt", b.String())
}

// TestFormOfReplays compares what a replay sends for these letters: as it is, signed, and cut down
// because the queue takes less.
func TestFormOfReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass(time.Until(lettertest.Failed) + time.Hour) // the virtual clock begins before the letters' time
		var b strings.Builder
		for _, c := range []struct {
			name string
			o    dlq.Options
			r    dlq.ReplayOptions
			to   taken
		}{
			{"plain", dlq.Options{}, dlq.ReplayOptions{Expired: true, Unproven: true}, taken{}},
			{"signed", dlq.Options{LetterKeys: dlq.Keys{[]byte(strings.Repeat("k", 32))}}, dlq.ReplayOptions{TrustUnsigned: true, Expired: true, Unproven: true}, taken{}},
			{"not signed", dlq.Options{LetterKeys: dlq.Keys{[]byte(strings.Repeat("k", 32))}}, dlq.ReplayOptions{Expired: true, Unproven: true}, taken{}},
			{"a group is required", dlq.Options{}, dlq.ReplayOptions{Expired: true, Unproven: true}, taken{l: broker.Limits{RequireGroup: true}}},
			{"three attributes", dlq.Options{}, dlq.ReplayOptions{Expired: true, Unproven: true}, taken{l: broker.Limits{MaxAttributes: 3}}},
			{"too large at first", dlq.Options{}, dlq.ReplayOptions{Expired: true, Unproven: true}, taken{refuses: 2}},
			{"edited", dlq.Options{}, dlq.ReplayOptions{Expired: true, Unproven: true, Edit: func(o *broker.Outgoing) error {
				if o.Meta == nil {
					o.Meta = &broker.Meta{ID: "new"}
				}
				o.Meta.Key += "-2"
				return nil
			}}, taken{}},
		} {
			for _, l := range formLetters() {
				c.to.tries, c.to.b = 0, &b
				c.r.To = &c.to
				fmt.Fprintf(&b, "%s, %s\n", c.name, l.name)
				q := open(t, &given{m: received(l.out)}, &c.o)
				if rep, err := q.Replay(context.Background(), c.r); err != nil {
					t.Fatal(err)
				} else if rep.Replayed != 1 {
					fmt.Fprintf(&b, "\t%v\n", rep)
				}
			}
		}
		compare(t, "replays.txt", b.String())
	})
}

type formLetter struct {
	name string
	out  broker.Outgoing
}

// formLetters are the letters of each kind of message, in each fit, with and without a fence.
func formLetters() (ls []formLetter) {
	moved := lettertest.Message()
	old := lettertest.Dead()
	old.Attributes = map[string]string{"inside": "1", "tenant": "old"}
	moved.Meta.Dead = &old
	hidden := lettertest.Message()
	hidden.Attributes[dlq.UnreadableAttribute] = "hidden"
	keyless := lettertest.Foreign()
	keyless.Group = ""
	long := strings.Repeat("a long text, ö ", 20)
	own, other := lettertest.Key(), letter.Key{Scope: "payments:charge", Key: "tenant-3/order-7"}
	for _, m := range []struct {
		name   string
		m      *broker.Message
		k      letter.Key
		text   string
		record letter.Key
	}{
		{"ours", lettertest.Message(), lettertest.Key(), "last", letter.Key{}},
		{"a long text", lettertest.Message(), lettertest.Key(), long, letter.Key{}},
		{"foreign", lettertest.Foreign(), lettertest.Key(), "last", letter.Key{}},
		{"no key", keyless, letter.Key{}, "last", letter.Key{}},
		{"unreadable", lettertest.Unreadable(), lettertest.Key(), "last", letter.Key{}},
		{"moved back", moved, lettertest.Key(), "last", letter.Key{}},
		{"hidden metadata", hidden, lettertest.Key(), "last", letter.Key{}},
		{"with its record", lettertest.Message(), own, "last", own},
		{"with a record of another name", lettertest.Message(), other, "last", other},
		{"foreign, with its record", lettertest.Foreign(), own, "last", own},
	} {
		for _, fence := range []uint64{0, 41} {
			for f := range letter.Fits {
				d := lettertest.Dead()
				d.Fence, d.LastErr = fence, m.text
				d.Scope, d.Key = m.record.Scope, m.record.Key
				switch {
				case m.m.MetaErr != nil:
					d.Class = "bad-meta"
				case fence == 0:
					d.Class = "expired"
				}
				ls = append(ls, formLetter{fmt.Sprintf("%s, fence %d, fit %d", m.name, fence, f), letter.Make(m.m, m.k, d, f)})
			}
		}
	}
	return ls
}

// form is all that a driver is given, in a line.
func form(o *broker.Outgoing) string {
	var b strings.Builder
	fmt.Fprintf(&b, "body=%q group=%q dedup=%s delay=%v", o.Body, o.Group, o.DedupID, o.Delay)
	for _, k := range slices.Sorted(maps.Keys(o.Attributes)) {
		fmt.Fprintf(&b, " %s=%q", k, o.Attributes[k])
	}
	if o.Meta != nil {
		fmt.Fprintf(&b, " onceq=%s", broker.EncodeMeta(o.Meta))
	}
	return b.String()
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Fatalf("%s, line %d differs; the code makes\n%q\nwant\n%q", name, i+1, g[min(i, len(g)):min(i+1, len(g))], w[min(i, len(w)):min(i+1, len(w))])
		}
	}
}

// received is the letter as a worker of a dead-letter queue would get it.
func received(o broker.Outgoing) *broker.Message {
	m := &broker.Message{
		ID: "l-1", Body: o.Body, Attributes: maps.Clone(o.Attributes), Group: o.Group, Receipt: "r",
		Published: lettertest.Failed, Attempt: 1,
	}
	if o.Meta != nil {
		m.Meta, m.MetaErr = broker.DecodeMeta(broker.EncodeMeta(o.Meta))
	}
	return m
}

// given is a dead-letter queue with one letter.
type given struct{ m *broker.Message }

func (g *given) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	m := g.m
	if g.m = nil; m != nil {
		m.Deadline = time.Now().Add(o.Visibility)
		return []*broker.Message{m}, nil
	}
	pass(o.Wait)
	return nil, ctx.Err()
}
func (*given) Extend(context.Context, []broker.Hold) error { return nil }
func (*given) Nack(context.Context, []broker.Hold) error   { return nil }
func (*given) Ack(context.Context, []broker.Receipt) error { return nil }
func (*given) Close() error                                { return nil }
func (*given) Limits() broker.Limits {
	return broker.Limits{ReceiveBatch: 10, SettleBatch: 10, Extends: true}
}

// taken writes down what is sent. It refuses each message as too large, as often as refuses says.
type taken struct {
	l       broker.Limits
	refuses int
	tries   int
	b       *strings.Builder
}

func (s *taken) Limits() broker.Limits {
	l := s.l
	l.SendBatch = 10
	return l
}

func (s *taken) Send(_ context.Context, out []broker.Outgoing) ([]string, error) {
	errs := make([]error, len(out))
	for i := range out {
		fmt.Fprintf(s.b, "\t%s\n", form(&out[i]))
		if s.tries++; s.tries <= s.refuses {
			errs[i] = fmt.Errorf("%w: say the test", broker.ErrTooLarge)
		}
	}
	return make([]string, len(out)), broker.JoinEntries(errs)
}
