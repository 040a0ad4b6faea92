package main

import (
	"context"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/examples/internal/shop"
)

// mend looks at what has died, replays it with corrections to workers whose handler is mended, and kills that replay half-way:
// after a send, before it hears that the queue has taken it. The second one sends these letters once more.
func (d *demo) mend(ctx context.Context, s *shop.Screen) (*shop.Mending, error) {
	letters, err := shop.OpenLetters(d.dead)
	if err != nil {
		return nil, err
	}
	m := &shop.Mending{}
	found, err := letters.Group(ctx, dlq.Filter{})
	if m.Groups = shop.Groups(found); err != nil || len(found) == 0 {
		return m, err
	}
	s.Note("mending what is in the dead-letter queue")

	p := newProcess("replay", &plan{left: []crash{{afterLetter, m.Groups.Letters() / 3}}})
	living, cancel := p.alive(ctx)
	defer cancel()
	n := new(counts)
	mortal, err := shop.OpenLetters(mortalQueue{d.dead, p, n})
	if err != nil {
		return nil, err
	}
	first, err := mortal.Replay(living, d.replay(mortalQueue{d.queue, p, n}))
	if m.Killed = p.isDead(); !m.Killed && err != nil {
		return nil, err
	}
	m.First, m.InDoubt, m.Copies = first.Replayed, len(first.Failed), first.Copies
	skipped := first.Skipped
	if m.Killed {
		// What the dead one held is hidden for a while.
		if err := shop.Rest(ctx, shop.LetterVisibility+shop.LetterVisibility/5); err != nil {
			return nil, err
		}
		again, err := letters.Replay(ctx, d.replay(d.queue))
		if err != nil {
			return nil, err
		}
		m.Again, m.Copies, skipped = again.Replayed, m.Copies+again.Copies, again.Skipped
	}
	m.Sent = m.Groups.Letters() - len(skipped)
	for _, l := range skipped {
		m.Why = l.Reason
	}
	d.mended.Store(true)
	return m, d.work(ctx, s)
}

func (d *demo) replay(to broker.Sender) dlq.ReplayOptions {
	return shop.ReplayOptions(to, d.corrections.Correct)
}
