package onceq_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/onceqtest"
)

// down is a handler that fails for good until it is mended, and notes the bodies that it ran to
// their end.
type down struct {
	mended bool

	mu  sync.Mutex
	ran []string
}

func (d *down) handle(_ context.Context, j *onceq.Job) error {
	if !d.mended {
		return onceq.Permanent(errBoom)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ran = append(d.ran, string(j.Message.Body))
	return nil
}

func printed(r *rig) {
	r.cfg.Fingerprint = func(m *broker.Message) []byte { return m.Body }
}

var signingKeys = dlq.Keys{bytes.Repeat([]byte("k"), 32), bytes.Repeat([]byte("l"), 32)}

func signs(r *rig) { r.cfg.LetterKeys = signingKeys }

// replayAll replays the dead-letter queue, as an operator does who has mended the cause.
func (r *rig) replayAll(o *dlq.Options, edit func(*broker.Outgoing) error) dlq.Report {
	r.Helper()
	q, err := dlq.New(r.dlq, o)
	if err != nil {
		r.Fatal(err)
	}
	pass(time.Second) // what failed in this very instant is newer than the replay
	rep, err := q.Replay(r.Context(), dlq.ReplayOptions{To: r.q.Broker, Edit: edit})
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
			Meta: &broker.Meta{Key: k, Dead: &broker.Dead{Fence: uint64(i + 1)}},
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
		set   option
		class string
	}{
		{"fingerprint", printed, onceq.ClassMismatch},
		{"no fingerprint", func(*rig) {}, onceq.ClassDuplicate},
		{"keys", signs, onceq.ClassDuplicate},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d down
			bubble(t, d.handle, func(r *rig) {
				r.send("a")
				r.run(time.Second)
				r.putRaw(forged("a", 10)...)
				r.run(time.Second)
				ls := r.letters()
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
				d.mended = true
				for _, l := range ls {
					r.putRaw(broker.Outgoing{Body: l.Body, Attributes: l.Attributes, Meta: l.Meta})
				}
				r.run(time.Minute)
				if !slices.Equal(d.ran, []string{"a"}) {
					t.Errorf("ran %q", d.ran)
				}
			}, c.set, with(func(c *setup) { c.Concurrency = 1 }))
		})
	}
}

// The letter of a duplicate loses nothing. A replay acks it, once the job that has its key is done.
func TestReplayOfDuplicates(t *testing.T) {
	var d down
	bubble(t, d.handle, func(r *rig) {
		r.send("a", "a")
		r.run(time.Second)
		r.put(broker.Outgoing{Body: []byte("other"), Meta: &broker.Meta{Key: "a"}})
		r.run(time.Second)
		d.mended = true
		for range 2 {
			r.replayAll(nil, nil)
			r.run(time.Minute)
		}
		r.noLetters()
		r.wantQueue(0)
		r.wantStatus("a", dedupe.Done)
		if len(d.ran) != 1 {
			t.Errorf("%d runs", len(d.ran))
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
		set     option
		foreign bool
	}{
		{"ours", func(*rig) {}, false},
		{"under keys", signs, false},
		{"foreign", func(r *rig) {
			r.cfg.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: "a"}, nil }
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, failing, func(r *rig) {
				r.dlq.SetFault(func(context.Context, onceqtest.Call) faulty.Faults { return faulty.Fail(errBoom) })
				if c.foreign {
					if err := r.q.SendRaw(r.Context(), []byte("a"), map[string]string{"x": "1"}); err != nil {
						t.Fatal(err)
					}
				} else {
					m := message("a")
					m.Attributes = map[string]string{"x": "1", broker.TraceAttribute: "00-1"}
					r.put(m)
				}
				r.run(10 * time.Second) // it ends before the letter is put
				r.wantStatus("a", dedupe.Failed)
				r.dlq.SetFault(nil)
				pass(time.Minute)
				// The queue's own redrive, or a console, makes another message of the same
				// content.
				ms, err := r.q.Broker.Receive(r.Context(), broker.ReceiveOptions{Max: 1})
				if err != nil || len(ms) != 1 {
					t.Fatal(ms, err)
				}
				again := asItWas(ms[0])
				if !c.foreign { // as a producer that sends it twice does
					again.Meta = again.Meta.Clone()
					again.Meta.ID, again.Meta.Created = "another", time.Now()
					again.Attributes[broker.TraceAttribute] = "00-2"
				}
				r.putRaw(again)
				if err := r.q.Broker.Nack(r.Context(), []broker.Hold{{Receipt: ms[0].Receipt}}); err != nil {
					t.Fatal(err)
				}
				r.run(time.Second)
				ls := r.letters()
				if len(ls) != 2 {
					t.Fatalf("%d letters, want 2", len(ls))
				}
				for _, l := range ls {
					if l.Meta.Dead.Fence != r.record("a").Fence || l.Meta.Dead.Class != onceq.ClassPermanent {
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
			bubble(t, failing, func(r *rig) {
				m := message("a")
				m.Meta.ID = "job"
				r.put(m)
				r.run(time.Second)
				r.letter(onceq.ClassPermanent)
				again := message("a")
				again.Meta.ID = "job"
				change(&again)
				r.put(again)
				r.run(time.Second)
				if d := r.letter(onceq.ClassDuplicate).Meta.Dead; d.Fence != 0 || d.Signature != "" {
					t.Errorf("the letter is %+v", d)
				}
			})
		})
	}
}

// A letter with another body is not acked in silence, although its key is done meanwhile.
func TestReplayOfADoneKeyWithAnotherBody(t *testing.T) {
	var d down
	bubble(t, d.handle, func(r *rig) {
		r.send("a")
		r.run(time.Second)
		l := r.letter(onceq.ClassPermanent)
		d.mended = true
		r.putRaw(broker.Outgoing{Body: []byte("corrected"), Meta: l.Meta})
		r.run(time.Second)
		r.putRaw(broker.Outgoing{Body: l.Body, Meta: l.Meta})
		r.run(time.Second)
		r.letter(onceq.ClassMismatch)
		if !slices.Equal(d.ran, []string{"corrected"}) {
			t.Errorf("ran %q", d.ran)
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
			var d down
			bubble(t, d.handle, func(r *rig) {
				m := message("a")
				m.Attributes = map[string]string{"x": "1", broker.TraceAttribute: "00-1"}
				r.put(m)
				r.run(time.Second)
				l := r.letter(onceq.ClassPermanent)
				d.mended = true
				again := broker.Outgoing{Body: l.Body, Attributes: maps.Clone(l.Attributes), Meta: l.Meta.Clone()}
				c.change(&again)
				r.putRaw(again)
				r.run(time.Minute)
				if (len(d.ran) == 1) != c.reopens {
					t.Errorf("ran %q", d.ran)
				}
				told := r.log.count("none of ProcessorConfig.LetterKeys has signed it")
				if c.reopens != (told == 0) {
					t.Errorf("%d log records", told)
				}
				r.wantQueue(0)
			}, signs)
		})
	}
}

// A signature is for one scope. Two scopes may share a LetterKey, and still take only their own
// letters.
func TestSignaturesAreOfAScope(t *testing.T) {
	bubble(t, failing, func(r *rig) {
		r.send("a")
		r.run(time.Second)
		l := r.letter(onceq.ClassPermanent)
		w := r.worker(func(c *setup) { c.Scope = "other" })
		r.w = w
		r.putRaw(broker.Outgoing{Body: l.Body, Meta: l.Meta})
		r.run(time.Second)
		if n := r.log.count("none of ProcessorConfig.LetterKeys has signed it"); n != 1 {
			t.Errorf("%d log records", n)
		}
	}, signs)
}

// A letter of a key that was rotated out of the first place still counts, and its replay is signed
// by the new one.
func TestKeysAreRotated(t *testing.T) {
	var d down
	newer := dlq.Keys{bytes.Repeat([]byte("n"), 32), signingKeys[0]}
	bubble(t, d.handle, func(r *rig) {
		r.send("a")
		r.run(time.Second)
		r.cfg.LetterKeys = newer
		r.w = r.worker(nil)
		r.replayAll(&dlq.Options{LetterKeys: newer}, nil)
		r.run(time.Second)
		l := r.letter(onceq.ClassPermanent)
		if !newer[:1].Signed(l) {
			t.Error("the letter is not signed by the first key")
		}
		r.putRaw(broker.Outgoing{Body: l.Body, Meta: l.Meta})
		d.mended = true
		r.run(time.Second)
		r.wantStatus("a", dedupe.Done)
	}, signs)
}

// The signature counts where a letter is cut down until it fits.
func TestSignatureOfALetterThatIsCut(t *testing.T) {
	bubble(t, returns(onceq.Permanent(fmt.Errorf("%s", strings.Repeat("long ", 300)))), func(r *rig) {
		m := message("a")
		m.Body = bytes.Repeat([]byte("x"), 1<<20-900)
		r.put(m)
		r.run(time.Second)
		l := r.letter(onceq.ClassPermanent)
		if len(l.Meta.Dead.LastErr) > 2*letter.TrimmedText || !signingKeys.Signed(l) {
			t.Errorf("the letter is %+v", l.Meta.Dead)
		}
	}, preset(membroker.SQSStandard), signs)
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
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.run(time.Second)
		r.wantStatus("a", dedupe.Parked)
		fence := r.record("a").Fence
		if n := r.log.count(fmt.Sprint(fence)); n != 0 {
			t.Errorf("the fence of a parked job is in %d log lines", n)
		}
		crashes = false
		r.putRaw(broker.Outgoing{Body: []byte("forged"), Meta: &broker.Meta{Key: "a", Dead: &broker.Dead{Fence: fence}}})
		r.run(time.Second)
		r.wantStatus("a", dedupe.Parked)
		if !slices.Equal(ran, []string{"a"}) {
			t.Errorf("ran %q", ran)
		}
	}, parks, signs)
	crashes = true
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.run(time.Second)
		r.wantStatus("a", dedupe.Parked)
		if n := r.log.count(fmt.Sprint("fence=", r.record("a").Fence)); n != 0 {
			t.Errorf("the fence of a parked job that is kept is in %d log lines", n)
		}
	}, parks, keeps)
	bubble(t, failing, func(r *rig) {
		r.send("a", "a") // the second finds it failed
		r.run(time.Minute)
		r.wantStatus("a", dedupe.Failed)
		if n := r.log.count(fmt.Sprint("fence=", r.record("a").Fence)); n != 0 {
			t.Errorf("the fence of a failed job is in %d log lines", n)
		}
	})
	bubble(t, returns(nil), func(r *rig) {
		r.send("a")
		r.run(time.Second)
		if n := r.log.count(fmt.Sprint("fence=", r.record("a").Fence)); n != 1 {
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
				var d down
				d.mended = true
				bubble(t, d.handle, func(r *rig) {
					m := broker.Outgoing{Body: []byte("forged"), Meta: &broker.Meta{ID: "f", Key: "a"}}
					old(m.Meta)
					r.putRaw(m)
					r.run(time.Second)
					r.letter(name)
					r.send("a")
					r.run(time.Second)
					r.wantStatus("a", dedupe.Done)
					r.noLetters()
					if rec := r.record("a"); rec.Attempt != 1 {
						t.Errorf("the record is %+v", rec)
					}
					if !slices.Equal(d.ran, []string{"a"}) {
						t.Errorf("ran %q", d.ran)
					}
				}, with(func(c *setup) {
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
	var d down
	d.mended = true
	bubble(t, d.handle, func(r *rig) {
		a, b := message("a"), message("b")
		a.Meta.Expires = time.Now().Add(-time.Second)
		b.Meta.Created = time.Now().Add(-time.Hour * 24 * 365)
		r.put(a, b)
		r.run(time.Second)
		rep := r.replayAll(nil, func(o *broker.Outgoing) error { o.Meta.Expires = time.Time{}; return nil })
		if rep.Replayed != 1 || len(rep.Skipped) != 1 {
			t.Errorf("the report is %v", rep)
		}
		r.run(time.Second)
		r.wantStatus("a", dedupe.Done)
		r.wantStatus("b", dedupe.Released)
		r.letter(onceq.ClassUnproven)
	})
}

// A group goes on after a message that is too old. Where letters stay in the queue, so does that
// message.
func TestTooOldInAGroupAndKept(t *testing.T) {
	var d down
	d.mended = true
	bubble(t, d.handle, func(r *rig) {
		m := message("a")
		m.Group, m.Meta.Expires = "g", time.Now().Add(-time.Second)
		r.put(m)
		r.send("g/b")
		r.run(time.Second)
		r.letter(onceq.ClassExpired)
		r.wantStatus("b", dedupe.Done)
	}, preset(membroker.SQSFIFO))
	bubble(t, d.handle, func(r *rig) {
		m := message("a")
		m.Meta.Expires = time.Now().Add(-time.Second)
		r.put(m)
		r.run(3 * time.Hour)
		r.wantStatus("a", dedupe.Released)
		r.wantQueue(1)
		if got := r.q.delays("a"); !slices.Equal(slices.Compact(got), []time.Duration{time.Hour}) {
			t.Errorf("nacked with %v", got)
		}
	}, keeps)
}

func TestReservedAttributeIsNotSent(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		m := message("a")
		m.Attributes = map[string]string{dlq.UnreadableAttribute: "x"}
		if err := onceq.SendOne(r.Context(), r.q.Broker, &m); err == nil || !strings.Contains(err.Error(), "onceq-unreadable") {
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
			return onceq.Permanent(errBoom)
		}
		ran = append(ran, j.Type()+" "+j.Key().Key)
		return nil
	}
	hidden := broker.EncodeMeta(&broker.Meta{ID: "z", Type: "refund", Key: "victims-key", Dead: &broker.Dead{Fence: 77}})
	bubble(t, h, func(r *rig) {
		r.putRaw(broker.Outgoing{
			Body: []byte("x"), Attributes: map[string]string{dlq.UnreadableAttribute: hidden},
			Meta: &broker.Meta{ID: "i", Type: "mail", Key: "k-1"},
		})
		r.run(time.Second)
		crash = false
		r.replayAll(nil, nil)
		r.run(time.Second)
		if !slices.Equal(ran, []string{"mail k-1"}) {
			t.Errorf("ran %q", ran)
		}
		r.noLetters()
	})
}

// Where a message's body has caused an error, the text holds no number of the body. The text of a
// drain's error holds nothing that steers a terminal.
func TestErrorsQuoteNoBody(t *testing.T) {
	type card struct{ Number string }
	h := onceq.JSON(func(context.Context, *onceq.Job, card) error { return nil })
	bubble(t, h.Handle, func(r *rig) {
		r.put(broker.Outgoing{Body: []byte(`{"Number":4111111111111111}`), Meta: &broker.Meta{Key: "a"}})
		r.run(time.Second)
		d := r.letter(onceq.ClassDecode).Meta.Dead
		if strings.Contains(d.LastErr, "4111") || !strings.Contains(d.LastErr, "number at byte 26 into Number of type string") {
			t.Errorf("the letter tells %q", d.LastErr)
		}
		if n := r.log.count("4111"); n != 0 {
			t.Errorf("%d log lines hold the number", n)
		}
	})
	if got := (&onceq.DrainError{Jobs: []string{"a\x1b[2J", strings.Repeat("b", 100_000)}}).Error(); !strings.Contains(got, `a\x1b[2J`) || len(got) > 400 {
		t.Errorf("the drain's error is %.500q", got)
	}
}

// An id or a type of any length is cut in the logs.
func TestLogLinesAreShort(t *testing.T) {
	bubble(t, failing, func(r *rig) { // with a line of its own about the letter
		r.putRaw(broker.Outgoing{Body: []byte("a"), Meta: &broker.Meta{ID: strings.Repeat("i", 100_000), Key: "a"}})
		r.run(time.Second)
		if r.log.count("stays in the queue") == 0 {
			t.Error("no line tells of the job that stays")
		}
		for l := range strings.Lines(r.log.buf.String()) {
			if len(l) > 2000 {
				t.Errorf("a log line of %d bytes: %.80q…", len(l), l)
			}
		}
	}, keeps)
	bubble(t, returns(nil), func(r *rig) {
		r.putRaw(broker.Outgoing{Body: []byte("a"), Meta: &broker.Meta{
			ID: strings.Repeat("i", 100_000), Type: strings.Repeat("t", 100_000), Key: "a", NotBefore: time.Now().Add(time.Minute),
		}})
		r.run(time.Hour)
		r.wantStatus("a", dedupe.Done)
		for l := range strings.Lines(r.log.buf.String()) {
			if len(l) > 2000 {
				t.Errorf("a log line of %d bytes: %.80q…", len(l), l)
			}
		}
	})
}
