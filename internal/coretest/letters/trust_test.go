package letters

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/onceqtest"
)

func printed(r *rig.Rig) {
	r.Cfg.Fingerprint = func(m *broker.Message) []byte { return m.Body }
}

// replayAll replays the dead-letter queue, as an operator does who has mended the cause.
func replayAll(r *rig.Rig, o *dlq.Options, edit func(*broker.Outgoing) error) dlq.Report {
	r.Helper()
	q := must.Get(dlq.New(r.DLQ, o))
	rig.Pass(time.Second) // what failed in this very instant is newer than the replay
	rep, err := q.Replay(r.Context(), dlq.ReplayOptions{To: r.Q.Broker, Edit: edit})
	if err != nil {
		r.Fatal(err)
	}
	return rep
}

func forged(k string, n int) []broker.Outgoing {
	var ms []broker.Outgoing
	for i := range n {
		ms = append(ms, broker.Outgoing{
			Body: fmt.Append(nil, "forged ", i),
			Meta: &broker.Meta{Key: k, Dead: &broker.Letter{Fence: uint64(i + 1)}},
		})
	}
	return ms
}

// A sender that knows a key, and not its fence, must not bring about a letter that reopens the
// failure of that key for another body. With a fingerprint, that shows the other body. Without one,
// the message itself must be the one that failed.
func TestForgedLettersReopenNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   rig.Option
		class string
	}{
		{"fingerprint", printed, onceq.ClassMismatch},
		{"no fingerprint", func(*rig.Rig) {}, onceq.ClassDuplicate},
		{"keys", rig.Signs, onceq.ClassDuplicate},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d rig.Down
			rig.Bubble(t, d.Handle, func(r *rig.Rig) {
				r.Send("a")
				r.RunFor(time.Second)
				r.PutRaw(forged("a", 10)...)
				r.RunFor(time.Second)
				ls := r.Letters()
				if len(ls) != 11 {
					t.Fatalf("%d letters, want 11", len(ls))
				}
				for _, l := range ls {
					d, own := l.Meta.Dead, string(l.Body) == "a"
					if own != (d.Fence != 0) || !own && (d.Class != c.class || d.FirstErr == "boom") {
						t.Errorf("the letter of %q is %+v", l.Body, d)
					}
				}
				// The forged ones come first.
				slices.SortFunc(ls, func(a, b *broker.Message) int { return len(b.Body) - len(a.Body) })
				d.Mended = true
				for _, l := range ls {
					r.PutRaw(broker.Outgoing{Body: l.Body, Attributes: l.Attributes, Meta: l.Meta})
				}
				r.RunFor(time.Minute)
				if !slices.Equal(d.Ran, []string{"a"}) {
					t.Errorf("ran %q", d.Ran)
				}
			}, c.set, rig.With(func(c *rig.Setup) { c.Concurrency = 1 }))
		})
	}
}

// The letter of a duplicate loses nothing. A replay acks it, once the job that has its key is done.
func TestReplayOfDuplicates(t *testing.T) {
	var d rig.Down
	rig.Bubble(t, d.Handle, func(r *rig.Rig) {
		r.Send("a", "a")
		r.RunFor(time.Second)
		r.Put(broker.Outgoing{Body: []byte("other"), Meta: &broker.Meta{Key: "a"}})
		r.RunFor(time.Second)
		d.Mended = true
		for range 2 {
			replayAll(r, nil, nil)
			r.RunFor(time.Minute)
		}
		r.NoLetters()
		r.WantQueue(0)
		r.WantStatus("a", dedupe.Done)
		if len(d.Ran) != 1 {
			t.Errorf("%d runs", len(d.Ran))
		}
	})
}

// The message that failed gets the letter of its failure, however it comes again, and also where
// its worker died before it put the letter.
func TestOwnMessageComesAgain(t *testing.T) {
	asItWas := func(m *broker.Message) broker.Outgoing {
		return broker.Outgoing{Body: m.Body, Attributes: m.Attributes, Meta: m.Meta}
	}
	for _, c := range []struct {
		name    string
		set     rig.Option
		foreign bool
	}{
		{"ours", func(*rig.Rig) {}, false},
		{"under keys", rig.Signs, false},
		{"foreign", func(r *rig.Rig) {
			r.Cfg.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: "a"}, nil }
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
				r.DLQ.SetFault(func(context.Context, onceqtest.Call) faulty.Faults { return faulty.Fail(rig.ErrBoom) })
				if c.foreign {
					if err := r.Q.SendRaw(r.Context(), []byte("a"), map[string]string{"x": "1"}); err != nil {
						t.Fatal(err)
					}
				} else {
					m := rig.Message("a")
					m.Attributes = map[string]string{"x": "1", broker.TraceAttribute: "00-1"}
					r.Put(m)
				}
				r.RunFor(10 * time.Second) // it ends before the letter is put
				r.WantStatus("a", dedupe.Failed)
				r.DLQ.SetFault(nil)
				rig.Pass(time.Minute)
				// The queue's own redrive, or a console, makes another message of the same
				// content.
				ms, err := r.Q.Broker.Receive(r.Context(), broker.ReceiveOptions{Max: 1})
				if err != nil || len(ms) != 1 {
					t.Fatal(ms, err)
				}
				again := asItWas(ms[0])
				if !c.foreign { // as a producer that sends it twice does
					again.Meta = again.Meta.Clone()
					again.Meta.ID, again.Meta.Created = "another", time.Now()
					again.Attributes[broker.TraceAttribute] = "00-2"
				}
				r.PutRaw(again)
				if err := r.Q.Broker.Nack(r.Context(), []broker.Hold{{Receipt: ms[0].Receipt}}); err != nil {
					t.Fatal(err)
				}
				r.RunFor(time.Second)
				ls := r.Letters()
				if len(ls) != 2 {
					t.Fatalf("%d letters, want 2", len(ls))
				}
				for _, l := range ls {
					if l.Meta.Dead.Fence != r.Record("a").Fence || l.Meta.Dead.Class != onceq.ClassPermanent {
						t.Errorf("the letter is %+v", l.Meta.Dead)
					}
				}
			}, c.set)
		})
	}
}

// Whoever repeats a job's id with another content gets no letter that reopens its failure.
func TestOwnIsToldByTheContent(t *testing.T) {
	for name, change := range map[string]func(m *broker.Outgoing){
		"body":       func(m *broker.Outgoing) { m.Body = []byte("forged") },
		"type":       func(m *broker.Outgoing) { m.Meta.Type = "refund" },
		"attributes": func(m *broker.Outgoing) { m.Attributes = map[string]string{"to": "me"} },
		"expires":    func(m *broker.Outgoing) { m.Meta.Expires = time.Now().Add(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
				m := rig.Message("a")
				m.Meta.ID = "job"
				r.Put(m)
				r.RunFor(time.Second)
				r.Letter(onceq.ClassPermanent)
				again := rig.Message("a")
				again.Meta.ID = "job"
				change(&again)
				r.Put(again)
				r.RunFor(time.Second)
				if d := r.Letter(onceq.ClassDuplicate).Meta.Dead; d.Fence != 0 || d.Signature != "" {
					t.Errorf("the letter is %+v", d)
				}
			})
		})
	}
}

// A letter with another body is not acked in silence, although its key is done meanwhile.
func TestReplayOfADoneKeyWithAnotherBody(t *testing.T) {
	var d rig.Down
	rig.Bubble(t, d.Handle, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		l := r.Letter(onceq.ClassPermanent)
		d.Mended = true
		r.PutRaw(broker.Outgoing{Body: []byte("corrected"), Meta: l.Meta})
		r.RunFor(time.Second)
		r.PutRaw(broker.Outgoing{Body: l.Body, Meta: l.Meta})
		r.RunFor(time.Second)
		r.Letter(onceq.ClassMismatch)
		if !slices.Equal(d.Ran, []string{"corrected"}) {
			t.Errorf("ran %q", d.Ran)
		}
	}, printed)
}

// otherFirst is s with another first byte.
func otherFirst(s string) string {
	if s[0] == 'x' {
		return "y" + s[1:]
	}
	return "x" + s[1:]
}

// With keys a failure is reopened by a letter that one of them has signed, and by nothing else.
func TestOnlySignedLettersReopen(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(m *broker.Outgoing)
		reopens bool
	}{
		{"as it is", func(*broker.Outgoing) {}, true},
		{"shorter errors", func(m *broker.Outgoing) { m.Meta.Dead.FirstErr, m.Meta.Dead.LastErr = "", "x" }, true},
		{"folded attributes", func(m *broker.Outgoing) { m.Meta.Dead.Attributes, m.Attributes = m.Attributes, nil }, true},
		{"another trace", func(m *broker.Outgoing) { m.Attributes[broker.TraceAttribute] = "00-2" }, true},
		{"another group", func(m *broker.Outgoing) { m.Group = "g" }, true},
		{"no signature", func(m *broker.Outgoing) { m.Meta.Dead.Signature = "" }, false},
		{"no base64", func(m *broker.Outgoing) { m.Meta.Dead.Signature = "%" }, false},
		{"another signature", func(m *broker.Outgoing) { m.Meta.Dead.Signature = otherFirst(m.Meta.Dead.Signature) }, false},
		{"half of it", func(m *broker.Outgoing) { m.Meta.Dead.Signature = m.Meta.Dead.Signature[:22] }, false},
		{"body", func(m *broker.Outgoing) { m.Body = []byte("b") }, false},
		{"attribute", func(m *broker.Outgoing) { m.Attributes["x"] = "2" }, false},
		{"one more attribute", func(m *broker.Outgoing) { m.Attributes["y"] = "" }, false},
		{"type", func(m *broker.Outgoing) { m.Meta.Type = "t" }, false},
		{"id", func(m *broker.Outgoing) { m.Meta.ID = "i" }, false},
		{"correlation", func(m *broker.Outgoing) { m.Meta.CorrelationID = "c" }, false},
		{"not before", func(m *broker.Outgoing) { m.Meta.NotBefore = time.Now() }, false},
		{"expires", func(m *broker.Outgoing) { m.Meta.Expires = time.Now().Add(time.Hour) }, false},
		{"attempts", func(m *broker.Outgoing) { m.Meta.MaxAttempts = 7 }, false},
		{"timeout", func(m *broker.Outgoing) { m.Meta.Timeout = time.Hour }, false},
		{"source", func(m *broker.Outgoing) { m.Meta.Dead.Source = "other" }, false},
		{"time", func(m *broker.Outgoing) { m.Meta.Dead.At = time.Now().Add(time.Hour) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d rig.Down
			rig.Bubble(t, d.Handle, func(r *rig.Rig) {
				m := rig.Message("a")
				m.Attributes = map[string]string{"x": "1", broker.TraceAttribute: "00-1"}
				r.Put(m)
				r.RunFor(time.Second)
				l := r.Letter(onceq.ClassPermanent)
				d.Mended = true
				again := broker.Outgoing{Body: l.Body, Attributes: maps.Clone(l.Attributes), Meta: l.Meta.Clone()}
				c.change(&again)
				r.PutRaw(again)
				r.RunFor(time.Minute)
				if (len(d.Ran) == 1) != c.reopens {
					t.Errorf("ran %q", d.Ran)
				}
				told := r.Logged.Count("none of ProcessorConfig.LetterKeys has signed it")
				if c.reopens != (told == 0) {
					t.Errorf("%d log records", told)
				}
				r.WantQueue(0)
			}, rig.Signs)
		})
	}
}

// A signature is for one scope. Two scopes may share a LetterKey, and still take only their own
// letters.
func TestSignaturesAreOfAScope(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		l := r.Letter(onceq.ClassPermanent)
		w := r.Worker(func(c *rig.Setup) { c.Scope = "other" })
		r.W = w
		r.PutRaw(broker.Outgoing{Body: l.Body, Meta: l.Meta})
		r.RunFor(time.Second)
		if n := r.Logged.Count("none of ProcessorConfig.LetterKeys has signed it"); n != 1 {
			t.Errorf("%d log records", n)
		}
	}, rig.Signs)
}

// A letter of a key that was rotated out of the first place still counts, and its replay is signed
// by the new one.
func TestKeysAreRotated(t *testing.T) {
	var d rig.Down
	newer := dlq.Keys{bytes.Repeat([]byte("n"), 32), rig.SigningKeys[0]}
	rig.Bubble(t, d.Handle, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		r.Cfg.LetterKeys = newer
		r.W = r.Worker(nil)
		replayAll(r, &dlq.Options{LetterKeys: newer}, nil)
		r.RunFor(time.Second)
		l := r.Letter(onceq.ClassPermanent)
		if !newer[:1].Signed(l) {
			t.Error("the letter is not signed by the first key")
		}
		r.PutRaw(broker.Outgoing{Body: l.Body, Meta: l.Meta})
		d.Mended = true
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Done)
	}, rig.Signs)
}

// The signature counts where a letter is cut down until it fits.
func TestSignatureOfALetterThatIsCut(t *testing.T) {
	rig.Bubble(t, rig.Returns(onceq.Permanent(fmt.Errorf("%s", strings.Repeat("long ", 300)))), func(r *rig.Rig) {
		m := rig.Message("a")
		m.Body = bytes.Repeat([]byte("x"), 1<<20-900)
		r.Put(m)
		r.RunFor(time.Second)
		l := r.Letter(onceq.ClassPermanent)
		if len(l.Meta.Dead.LastErr) > 2*letter.TrimmedText || !rig.SigningKeys.Signed(l) {
			t.Errorf("the letter is %+v", l.Meta.Dead)
		}
	}, rig.Preset(membroker.SQSStandard), rig.Signs)
}

// The logs do not show what reopens a job. And whoever learns it elsewhere cannot use it without a
// key.
func TestFenceIsNoSecretWithKeys(t *testing.T) {
	crashes := true
	var ran []string
	h := func(_ context.Context, j *onceq.Job) error {
		ran = append(ran, string(j.Message.Body))
		if crashes {
			panic("crash")
		}
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Parked)
		fence := r.Record("a").Fence
		if n := r.Logged.Count(fmt.Sprint(fence)); n != 0 {
			t.Errorf("the fence of a parked job is in %d log lines", n)
		}
		crashes = false
		r.PutRaw(broker.Outgoing{Body: []byte("forged"), Meta: &broker.Meta{Key: "a", Dead: &broker.Letter{Fence: fence}}})
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Parked)
		if !slices.Equal(ran, []string{"a"}) {
			t.Errorf("ran %q", ran)
		}
	}, rig.Parks, rig.Signs)
	crashes = true
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Parked)
		if n := r.Logged.Count(fmt.Sprint("fence=", r.Record("a").Fence)); n != 0 {
			t.Errorf("the fence of a parked job that is kept is in %d log lines", n)
		}
	}, rig.Parks, keeps)
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.Send("a", "a") // the second finds it failed
		r.RunFor(time.Minute)
		r.WantStatus("a", dedupe.Failed)
		if n := r.Logged.Count(fmt.Sprint("fence=", r.Record("a").Fence)); n != 0 {
			t.Errorf("the fence of a failed job is in %d log lines", n)
		}
	})
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		if n := r.Logged.Count(fmt.Sprint("fence=", r.Record("a").Fence)); n != 1 {
			t.Errorf("the fence of a done job is in %d log lines, want 1", n)
		}
	})
}

// A message that is expired, or too old to be believed, does not take the key from the job that is
// due.
func TestWhatIsTooOldDoesNotTakeTheKey(t *testing.T) {
	for name, old := range map[string]func(m *broker.Meta){
		"expired":  func(m *broker.Meta) { m.Expires = time.Now().Add(-time.Second) },
		"unproven": func(m *broker.Meta) { m.Created = time.Now().Add(-time.Hour * 24 * 365) },
	} {
		for _, fingerprints := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/fingerprints=%v", name, fingerprints), func(t *testing.T) {
				var d rig.Down
				d.Mended = true
				rig.Bubble(t, d.Handle, func(r *rig.Rig) {
					m := broker.Outgoing{Body: []byte("forged"), Meta: &broker.Meta{ID: "f", Key: "a"}}
					old(m.Meta)
					r.PutRaw(m)
					r.RunFor(time.Second)
					r.Letter(name)
					r.Send("a")
					r.RunFor(time.Second)
					r.WantStatus("a", dedupe.Done)
					r.NoLetters()
					if rec := r.Record("a"); rec.Attempt != 1 {
						t.Errorf("the record is %+v", rec)
					}
					if !slices.Equal(d.Ran, []string{"a"}) {
						t.Errorf("ran %q", d.Ran)
					}
				}, rig.With(func(c *rig.Setup) {
					if fingerprints {
						c.Fingerprint = func(m *broker.Message) []byte { return m.Body }
					}
				}))
			})
		}
	}
}

// The letter of an expired job is replayed by an ordinary claim. The letter of a job that may have
// been done before stays.
func TestReplayOfWhatWasTooOld(t *testing.T) {
	var d rig.Down
	d.Mended = true
	rig.Bubble(t, d.Handle, func(r *rig.Rig) {
		a, b := rig.Message("a"), rig.Message("b")
		a.Meta.Expires = time.Now().Add(-time.Second)
		b.Meta.Created = time.Now().Add(-time.Hour * 24 * 365)
		r.Put(a, b)
		r.RunFor(time.Second)
		rep := replayAll(r, nil, func(o *broker.Outgoing) error { o.Meta.Expires = time.Time{}; return nil })
		if rep.Replayed != 1 || len(rep.Skipped) != 1 {
			t.Errorf("the report is %v", rep)
		}
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Done)
		r.WantStatus("b", dedupe.Released)
		r.Letter(onceq.ClassUnproven)
	})
}

// A group goes on after a message that is too old. Where letters stay in the queue, so does that
// message.
func TestTooOldInAGroupAndKept(t *testing.T) {
	var d rig.Down
	d.Mended = true
	rig.Bubble(t, d.Handle, func(r *rig.Rig) {
		m := rig.Message("a")
		m.Group, m.Meta.Expires = "g", time.Now().Add(-time.Second)
		r.Put(m)
		r.Send("g/b")
		r.RunFor(time.Second)
		r.Letter(onceq.ClassExpired)
		r.WantStatus("b", dedupe.Done)
	}, rig.Preset(membroker.SQSFIFO))
	rig.Bubble(t, d.Handle, func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.Expires = time.Now().Add(-time.Second)
		r.Put(m)
		r.RunFor(3 * time.Hour)
		r.WantStatus("a", dedupe.Released)
		r.WantQueue(1)
		if got := r.Q.Delays("a"); !slices.Equal(slices.Compact(got), []time.Duration{time.Hour}) {
			t.Errorf("nacked with %v", got)
		}
	}, keeps)
}

func TestReservedAttributeIsNotSent(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		m := rig.Message("a")
		m.Attributes = map[string]string{dlq.UnreadableAttribute: "x"}
		if err := onceq.SendOne(r.Context(), r.Q.Broker, &m); err == nil || !strings.Contains(err.Error(), "onceq-unreadable") {
			t.Errorf("Send answered %v", err)
		}
	})
}

// A sender has hidden other metadata in an attribute. That attribute stays behind: the letter and
// its replay have the message's own metadata.
func TestHiddenMetadataIsNotReplayed(t *testing.T) {
	var ran []string
	crash := true
	h := func(_ context.Context, j *onceq.Job) error {
		if crash {
			return onceq.Permanent(rig.ErrBoom)
		}
		ran = append(ran, j.Type()+" "+j.Key().Key)
		return nil
	}
	hidden := broker.EncodeMeta(&broker.Meta{ID: "z", Type: "refund", Key: "victims-key", Dead: &broker.Letter{Fence: 77}})
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.PutRaw(broker.Outgoing{
			Body: []byte("x"), Attributes: map[string]string{dlq.UnreadableAttribute: hidden},
			Meta: &broker.Meta{ID: "i", Type: "mail", Key: "k-1"},
		})
		r.RunFor(time.Second)
		crash = false
		replayAll(r, nil, nil)
		r.RunFor(time.Second)
		if !slices.Equal(ran, []string{"mail k-1"}) {
			t.Errorf("ran %q", ran)
		}
		r.NoLetters()
	})
}

// Where a message's body has caused an error, the text holds no number of the body. The text of a
// drain's error holds nothing that steers a terminal.
func TestErrorsQuoteNoBody(t *testing.T) {
	type card struct{ Number string }
	h := onceq.JSON(func(context.Context, *onceq.Job, card) error { return nil })
	rig.Bubble(t, h.Handle, func(r *rig.Rig) {
		r.Put(broker.Outgoing{Body: []byte(`{"Number":4111111111111111}`), Meta: &broker.Meta{Key: "a"}})
		r.RunFor(time.Second)
		d := r.Letter(onceq.ClassDecode).Meta.Dead
		if strings.Contains(d.LastErr, "4111") || !strings.Contains(d.LastErr, "number at byte 26 into Number of type string") {
			t.Errorf("the letter tells %q", d.LastErr)
		}
		if n := r.Logged.Count("4111"); n != 0 {
			t.Errorf("%d log lines hold the number", n)
		}
	})
	if got := (&onceq.DrainError{Jobs: []string{"a\x1b[2J", strings.Repeat("b", 100_000)}}).Error(); !strings.Contains(got, `a\x1b[2J`) || len(got) > 400 {
		t.Errorf("the drain's error is %.500q", got)
	}
}

// An id or a type of any length is cut in the logs.
func TestLogLinesAreShort(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) { // with a line of its own about the letter
		r.PutRaw(broker.Outgoing{Body: []byte("a"), Meta: &broker.Meta{ID: strings.Repeat("i", 100_000), Key: "a"}})
		r.RunFor(time.Second)
		if r.Logged.Count("stays in the queue") == 0 {
			t.Error("no line tells of the job that stays")
		}
		for l := range strings.Lines(r.Logged.String()) {
			if len(l) > 2000 {
				t.Errorf("a log line of %d bytes: %.80q…", len(l), l)
			}
		}
	}, keeps)
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.PutRaw(broker.Outgoing{Body: []byte("a"), Meta: &broker.Meta{
			ID: strings.Repeat("i", 100_000), Type: strings.Repeat("t", 100_000), Key: "a", NotBefore: time.Now().Add(time.Minute),
		}})
		r.RunFor(time.Hour)
		r.WantStatus("a", dedupe.Done)
		for l := range strings.Lines(r.Logged.String()) {
			if len(l) > 2000 {
				t.Errorf("a log line of %d bytes: %.80q…", len(l), l)
			}
		}
	})
}
