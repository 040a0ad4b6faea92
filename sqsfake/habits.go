package sqsfake

import (
	"hash/fnv"
	"math/rand/v2"

	"github.com/onceq/onceq/internal/fakeserver"
)

// StaleHandles says what a standard queue does with the receipt handle of an earlier receive, once
// the message was received again. AWS promises nothing: a delete "might not" delete (its
// reference), and in recordings of AWS by others (LocalStack's
// test_terminate_visibility_timeout_after_receive, moto's #4655) such a handle deletes the message
// and changes its visibility.
type StaleHandles uint8

const (
	// StaleRandom draws it anew for each use.
	StaleRandom StaleHandles = iota
	// StaleWork lets each work: it deletes, hides or shows what somebody else holds by now.
	StaleWork
	// StaleIgnored answers success and does nothing.
	StaleIgnored
)

// ShortPolls says what a receive that does not wait brings from a standard queue.
type ShortPolls uint8

const (
	// ShortPollsSampled brings some of what is there, or nothing, in any order. So AWS does, which
	// asks a part of its servers only.
	ShortPollsSampled ShortPolls = iota
	// ShortPollsWhole brings all that is there, up to what was asked for, in the order of arrival.
	ShortPollsWhole
)

var (
	staleHandles = fakeserver.Words{StaleRandom: "random", StaleWork: "work", StaleIgnored: "ignored"}
	shortPolls   = fakeserver.Words{ShortPollsSampled: "sampled", ShortPollsWhole: "whole"}
)

// MarshalText is the word for a flag: random, work or ignored.
func (h StaleHandles) MarshalText() ([]byte, error) { return staleHandles.Text("sqsfake", int(h)) }

// UnmarshalText reads the word.
func (h *StaleHandles) UnmarshalText(text []byte) error {
	i, err := staleHandles.Value(text)
	*h = StaleHandles(i)
	return err
}

// MarshalText is the word for a flag: sampled or whole.
func (p ShortPolls) MarshalText() ([]byte, error) { return shortPolls.Text("sqsfake", int(p)) }

// UnmarshalText reads the word.
func (p *ShortPolls) UnmarshalText(text []byte) error {
	i, err := shortPolls.Value(text)
	*p = ShortPolls(i)
	return err
}

// drawing makes the random choices of one queue, or of the faults, of their own: what happens on
// another queue changes none of them.
func drawing(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// inSight is how many of the visible messages a short poll looks at.
const inSight = 32

// sample is what a short poll finds of a standard queue's visible messages, up to limit.
func sample(rnd *rand.Rand, visible *fakeserver.List[*message], limit int) []*message {
	ms := make([]*message, 0, inSight)
	for m := visible.First(); m != nil && len(ms) < inSight; m = m.inOrder.Next() {
		ms = append(ms, m)
	}
	n := rnd.IntN(min(limit, len(ms)) + 1)
	for i := range n {
		j := i + rnd.IntN(len(ms)-i)
		ms[i], ms[j] = ms[j], ms[i]
	}
	return ms[:n]
}

// places is an order in which the entries of a batch are answered.
type places [maxEntries]uint8

// shuffle draws one for n entries. AWS answers deletes and changes of visibility in any order
// (gocloud.dev's recordings of it); of sends two recordings are in order, and none promises it.
func shuffle(rnd *rand.Rand, n int) (p places) {
	for i := range n {
		j := rnd.IntN(i + 1)
		p[i], p[j] = p[j], uint8(i)
	}
	return p
}
