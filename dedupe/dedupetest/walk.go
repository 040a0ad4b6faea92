package dedupetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file has the random walks: many calls on few keys, each compared with the tables. The case
// walks calls them, one after the other, so nothing is locked.

// walkUnit is the unit of the walks' times. What is granted is an odd multiple of it, and what goes
// by is an even one. So no lease and no retention ends just when a call is made.
const walkUnit = 10 * time.Minute

// walk makes random calls on few keys and compares each with the tables.
type walk struct {
	r      *rand.Rand
	keys   []dedupe.Key
	tokens map[dedupe.Key][]dedupe.Token // the last ones, the newest last
	fences map[dedupe.Key][]uint64
	trace  []string
}

func (e *env) walkRandomly(handles ...*env) {
	walks, steps := 1, 250
	if e.h.Virtual {
		walks, steps = 4, 1000
	}
	for i := range walks {
		seed := e.h.Seed
		if seed == 0 {
			seed = rand.Uint64()
		}
		w := &walk{
			r:      rand.New(rand.NewPCG(seed, uint64(i))),
			tokens: make(map[dedupe.Key][]dedupe.Token),
			fences: make(map[dedupe.Key][]uint64),
		}
		for n := range 3 {
			w.keys = append(w.keys, key(fmt.Sprintf("walk-%d-%d", i, n)))
		}
		for range steps {
			h := handles[w.r.IntN(len(handles))]
			h.Doing = fmt.Sprintf("a random walk (Harness.Seed %d), last of %d calls:\n  %s", seed, len(w.trace), strings.Join(w.trace[max(0, len(w.trace)-12):], "\n  "))
			w.step(h)
			if e.Failed() {
				return
			}
		}
	}
}

func (w *walk) step(e *env) {
	k := w.keys[w.r.IntN(len(w.keys))]
	switch n := w.r.IntN(100); {
	case n < 40:
		w.claim(e, k)
	case n < 58:
		w.renew(e, k)
	case n < 82:
		w.settle(e, k)
	case n < 86:
		f := dedupe.Forgotten{Key: k, Fence: w.fence(k), Force: w.flip(3)}
		w.log("forget %s fence %d force %v", k.Key, f.Fence, f.Force)
		e.forget(f)
	default:
		d := walkUnit * time.Duration(2*(1+w.r.IntN(4)))
		w.log("%v go by", d)
		if e.h.Virtual {
			e.age(k, d)
			return
		}
		for _, k := range w.keys {
			e.age(k, d)
		}
	}
}

func (w *walk) claim(e *env, k dedupe.Key) {
	q := dedupe.ClaimRequest{
		Key: k, Token: w.token(k, e, 3), TTL: w.grant(), Fingerprint: w.print(), Owner: w.word("worker"), MessageID: w.word("message"),
	}
	if w.flip(2) {
		q.Sent = sent.Add(time.Duration(w.r.IntN(1000)) * time.Second)
	}
	if w.flip(3) {
		q.Policy = dedupe.Park
	}
	if w.flip(4) {
		q.Reopen = w.fence(k)
	}
	w.log("claim %s token %s ttl %v print %s policy %v reopen %d", k.Key, tail(q.Token), q.TTL, show(q.Fingerprint), q.Policy, q.Reopen)
	c := e.claim(q)
	w.log("  = %v fence %d", c.Outcome, c.Lease.Fence)
	if c.Outcome == dedupe.Won {
		w.tokens[k] = append(w.tokens[k], q.Token)
		w.fences[k] = append(w.fences[k], c.Lease.Fence)
	}
}

func (w *walk) renew(e *env, k dedupe.Key) {
	n := dedupe.Renewal{Key: k, Token: w.token(k, e, 10), TTL: w.grant(), Started: w.flip(2)}
	switch w.r.IntN(4) {
	case 0:
		n.State = []byte(w.word("step"))
	case 1:
		n.State = []byte{}
	}
	if n.State != nil {
		n.StateNo = 1 + w.r.IntN(e.at(k).StateNo+2)
	}
	w.log("renew %s token %s ttl %v started %v state %s number %d", k.Key, tail(n.Token), n.TTL, n.Started, show(n.State), n.StateNo)
	w.log("  = %v", e.renew(n))
}

func (w *walk) settle(e *env, k dedupe.Key) {
	t := dedupe.Settlement{
		Key: k, Token: w.token(k, e, 10), To: dedupe.Released + dedupe.Status(w.r.IntN(4)),
		Uncounted: w.flip(3), Joined: w.flip(4), Retain: w.grant(),
	}
	switch w.r.IntN(3) {
	case 0:
		t.Result = []byte(w.word("result"))
	case 1:
		t.Result = []byte{}
	}
	if w.flip(2) {
		t.ErrClass, t.ErrText = w.word("class"), w.word("text")
	}
	w.log("settle %s token %s to %v uncounted %v joined %v retain %v", k.Key, tail(t.Token), t.To, t.Uncounted, t.Joined, t.Retain)
	a := e.settle(t)
	w.log("  = %v %v", a.Status, a.Err)
}

// token is a recent one of k, mostly the last. Once in fresh calls it is a new one.
func (w *walk) token(k dedupe.Key, e *env, fresh int) dedupe.Token {
	ts := w.tokens[k]
	if len(ts) == 0 || w.flip(fresh) {
		return e.token()
	}
	return ts[len(ts)-1-min(w.back(), len(ts)-1)]
}

func (w *walk) fence(k dedupe.Key) uint64 {
	fs := w.fences[k]
	if len(fs) == 0 {
		return w.r.Uint64N(10)
	}
	return fs[len(fs)-1-min(w.back(), len(fs)-1)]
}

// back is how far in the past to look: mostly not at all.
func (w *walk) back() int { return max(0, w.r.IntN(6)-3) }

func (w *walk) flip(n int) bool { return w.r.IntN(n) == 0 }

func (w *walk) grant() time.Duration { return walkUnit * time.Duration(1+2*w.r.IntN(5)) }

func (w *walk) print() []byte {
	return [][]byte{nil, nil, []byte("A"), []byte("B")}[w.r.IntN(4)]
}

func (w *walk) word(s string) string { return fmt.Sprintf("%s-%d", s, w.r.IntN(1000)) }

func (w *walk) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func tail(t dedupe.Token) string { return t.Hex()[20:] }
