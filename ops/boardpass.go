package ops

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// This file owns the board's passes through dead letters: one of a queue at a time, in a goroutine
// of its own, and what it has found so far. The goroutine of a pass alone has its counts. What it
// publishes are copies, which Board.mu guards until they are taken, and which nobody changes.

// The bounds of what a pass keeps, so that 15,000 letters of as many kinds take some megabytes.
const (
	keptGroups  = 500
	keptLetters = 50 // of a group
	fewLetters  = 5  // of a group, also where there is little room
	roomLetters = 4 << 20
	roomFew     = 8 << 20
	barWidth    = 5 * time.Minute
)

// showEvery is how often a pass publishes what it has found so far. The first time comes sooner.
const showEvery = time.Second

// LettersLook is what a pass through a queue's dead letters has found, so far or at its end.
// Viewers share it, so it must not be changed.
type LettersLook struct {
	// Queue is the target's name. Number is another one for each change, and rises.
	Queue  string
	Number uint64
	// Began and Ended bound the pass; Ended is zero while it is under way.
	Began, Ended time.Time
	// Seen is how many letters were counted so far, copies left out, and About how many there are;
	// 0 = the broker does not tell.
	Seen, About int
	// Groups are the largest, the largest first; 500 at most. More is how many groups are left out,
	// and MoreLetters how many letters these have.
	Groups            []LetterGroup
	More, MoreLetters int
	// Err is why the pass ended early; such as [dlq.ErrIncomplete]: the groups are of what was
	// seen.
	Err error
}

// LetterGroup is a group of letters on the board.
type LetterGroup struct {
	dlq.Group
	// Bars are the group's failures by the five minutes in which they were, the oldest first. Those
	// with none are left out.
	Bars []Bar
	// Letters are some of the group's, as Options.Redact lets people see them: the first 50 that
	// were met, and less where they are large.
	Letters []dlq.Entry
}

// Bar counts what happened in five minutes, which begin at At.
type Bar struct {
	At time.Time
	N  int
}

// Group is the group of that name; nil = there is none, or it is left out.
func (l *LettersLook) Group(name string) *LetterGroup {
	for i := range l.Groups {
		if l.Groups[i].Group.Group == name {
			return &l.Groups[i]
		}
	}
	return nil
}

// ErrLettersBusy: an act of a Running that shares the board goes through these letters. It wraps
// [ErrRefused]. A pass would hold what the act is to send, so that the act took them for gone.
var ErrLettersBusy = fmt.Errorf("%w: an act goes through these letters: wait for its end, or stop it", ErrRefused)

// turn is whose turn it is to go through a queue's letters.
type turn struct {
	at   chan struct{} // full = somebody is at it
	runs bool          // a pass waits for its turn, or goes on
	acts int           // acts that go on, or wait for who is at it
	last *LettersLook  // nil = there was no pass yet
}

// turn is that of a queue. The caller holds mu.
func (b *Board) turn(queue string) (*target, *turn, error) {
	t, err := b.o.target(queue)
	if err != nil {
		return nil, nil, err
	}
	if _, err := t.letters(); err != nil {
		return nil, nil, err
	}
	if b.turns[t] == nil {
		b.turns[t] = &turn{at: make(chan struct{}, 1)}
	}
	return t, b.turns[t], nil
}

// Pass begins a pass through a queue's dead letters, and returns at once. began is false where one
// is under way: who asks then shares that one. Each letter has one receive more after a pass. It
// goes on to its end whoever goes away, because its price is paid by then. The error may be
// [ErrLettersBusy].
func (b *Board) Pass(queue string) (began bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, x, err := b.turn(queue)
	switch {
	case err != nil:
		return false, err
	case b.closed:
		return false, ErrClosed
	case x.runs:
		return false, nil
	case x.acts > 0:
		return false, ErrLettersBusy
	}
	x.runs = true
	b.all.Go(func() { b.pass(t, x) })
	return true, nil
}

// Letters is what the last pass through a queue's dead letters has found so far; nil = there was
// none yet. It asks nobody.
func (b *Board) Letters(queue string) (*LettersLook, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, x, err := b.turn(queue)
	if err != nil {
		return nil, err
	}
	return x.last, nil
}

// WithLetters runs do while no pass of this board goes through the queue's letters, and waits for
// one that does. It is for plans, and for each call that goes through the letters by itself: of two
// at once each would meet a part of them. The error is do's, ctx's cause, [ErrLettersBusy], or
// [ErrClosed].
func (b *Board) WithLetters(ctx context.Context, queue string, do func(context.Context) error) error {
	b.mu.Lock()
	_, x, err := b.turn(queue)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	if b.isActedOn(x) { // nobody waits for an hour
		return ErrLettersBusy
	}
	select {
	case x.at <- struct{}{}:
	case <-b.stop:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-x.at }()
	if b.isActedOn(x) {
		return ErrLettersBusy
	}
	return do(ctx)
}

func (b *Board) isActedOn(x *turn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return x.acts > 0
}

// keepAway keeps passes away from a queue's letters until leave is called, and waits for who is at
// them. stop and ctx end the wait. A nil board keeps nobody away.
func (b *Board) keepAway(ctx context.Context, queue string, stop <-chan struct{}) (leave func(), err error) {
	leave = func() {}
	if b == nil {
		return leave, nil
	}
	b.mu.Lock()
	_, x, err := b.turn(queue)
	if err == nil {
		x.acts++
		leave = func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			x.acts--
		}
	}
	b.mu.Unlock()
	if err != nil {
		return leave, nil // it is not on this board
	}
	select {
	case x.at <- struct{}{}:
		<-x.at
		return leave, nil
	case <-stop:
		return leave, dlq.ErrStopped
	case <-ctx.Done():
		return leave, context.Cause(ctx)
	}
}

// pass waits for its turn, and goes through the letters of a target.
func (b *Board) pass(t *target, x *turn) {
	p := &passing{b: b, t: t, x: x, kept: make(map[*dlq.Group]*keptGroup), look: LettersLook{Queue: t.Name, Began: time.Now()}}
	err := b.WithLetters(b.passing, t.Name, func(ctx context.Context) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("ops: a pass through letters has panicked: %v", v)
			}
		}()
		p.show()
		p.shown = p.shown.Add(showEvery/4 - showEvery)
		if t.DeadLetters != nil {
			if d, _ := depth(ctx, t.DeadLetters); d != nil {
				p.look.About = int(d.Visible)
			}
		}
		_, err = t.Letters.GroupWith(ctx, dlq.GroupOptions{Show: b.o.shown, Each: p.add, Stop: b.stop})
		return err
	})
	p.look.Ended, p.look.Err = time.Now(), err
	p.show()
}

// passing is a pass that is under way.
type passing struct {
	b      *Board
	t      *target
	x      *turn
	look   LettersLook // without groups
	groups []*dlq.Group
	kept   map[*dlq.Group]*keptGroup
	room   int // bytes of the letters that are kept
	shown  time.Time
}

// keptGroup is what a pass keeps of a group beside its counts.
type keptGroup struct {
	bars    map[int64]int
	letters []dlq.Entry
}

// add counts a letter.
func (p *passing) add(e dlq.Entry, g *dlq.Group) {
	k := p.kept[g]
	if k == nil {
		k = &keptGroup{bars: make(map[int64]int)}
		p.kept[g], p.groups = k, append(p.groups, g)
	}
	p.look.Seen++
	k.bars[e.At().Truncate(barWidth).Unix()]++
	if n := len(k.letters); n < keptLetters {
		room := roomLetters
		if n < fewLetters {
			room = roomFew
		}
		if size := size(e.Message); p.room+size <= room {
			p.room += size
			k.letters = append(k.letters, e)
		}
	}
	if time.Since(p.shown) >= showEvery {
		p.show()
	}
}

// size is about how many bytes of memory a letter takes.
func size(m *broker.Message) int {
	n := 1024 + len(m.Body)
	for k, v := range m.Attributes {
		n += 64 + len(k) + len(v)
	}
	if m.Meta != nil && m.Meta.Dead != nil {
		d := m.Meta.Dead
		n += len(d.FirstErr) + len(d.LastErr)
		for k, v := range d.Attributes {
			n += 64 + len(k) + len(v)
		}
	}
	return n
}

// show publishes what was found so far.
func (p *passing) show() {
	p.shown = time.Now()
	l := p.look
	l.About = max(l.About, min(l.About, 1)*l.Seen) // the broker's number is not exact
	all := slices.Clone(p.groups)
	slices.SortStableFunc(all, func(a, b *dlq.Group) int { return b.Count - a.Count })
	for _, g := range all[min(len(all), keptGroups):] {
		l.More++
		l.MoreLetters += g.Count
	}
	for _, g := range all[:min(len(all), keptGroups)] {
		k, one := p.kept[g], LetterGroup{Group: *g}
		one.Types, one.Sources = maps.Clone(g.Types), maps.Clone(g.Sources)
		for _, at := range slices.Sorted(maps.Keys(k.bars)) {
			one.Bars = append(one.Bars, Bar{At: time.Unix(at, 0).UTC(), N: k.bars[at]})
		}
		one.Letters = k.letters[:len(k.letters):len(k.letters)]
		l.Groups = append(l.Groups, one)
	}
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.b.change()
	l.Number, p.x.last, p.x.runs = p.b.number, &l, l.Ended.IsZero()
}
