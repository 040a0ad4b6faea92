package model

import (
	"fmt"

	"github.com/onceq/onceq/dedupe"
)

// This file owns the world of limit.Shared: two processes, and one block of starts in the store.
// A key's other blocks are as this one, and nothing joins them, so one is enough.

// The promises of a block.
const (
	neverAbove = "never more starts than the block has in any time of a window's length"
	blockFree  = "a block that nobody has is to be had"
)

// The block, in ticks: its window, and for how long its starts may begin.
const (
	windowTicks  tick = 4
	useTicks     tick = 2
	blockStarts       = 2
	windowsUntil tick = 13
)

// takerPC is where a process is.
type takerPC uint8

const (
	empty     takerPC = iota // it has no starts
	taking                   // has claimed the block
	hearing                  // has settled it, and waits for the answer
	beginning                // has the block
)

// taker is a process.
type taker struct {
	pc    takerPC
	asked tick
	until tick
	left  uint8
}

// windowed is the world at one instant.
type windowed struct {
	now    tick
	block  once
	p      [workers]taker
	starts [windowsUntil]uint8 // by the tick
}

func (w windowed) String() string {
	return fmt.Sprintf("[at %d; %v until %d; starts %v]", w.now, w.block.status, w.block.until, w.starts)
}

// windowMoves are the steps of the world without some rules.
func windowMoves(without map[TimedRule]bool) func(windowed) []move[windowed] {
	kept := windowTicks + useTicks
	if without[KeptBeyondUse] {
		kept = windowTicks
	}
	return func(w windowed) (all []move[windowed]) {
		step := func(text string, to windowed) { all = append(all, move[windowed]{text, "", to}) }
		if n := w; w.now+1 < windowsUntil {
			n.now++
			n.block.forget(n.now)
			step("time goes by", n)
		}
		for i := range w.p {
			do := func(text string, f func(n *windowed, p *taker) string) {
				n := w
				breaks := f(&n, &n.p[i])
				all = append(all, move[windowed]{fmt.Sprintf("process %d %s", i+1, text), breaks, n})
			}
			begins := func(n *windowed, p *taker) string {
				n.starts[n.now]++
				for first := tick(0); first <= n.now; first++ {
					in := uint8(0)
					for t := first; t <= n.now && t < first+windowTicks; t++ {
						in += n.starts[t]
					}
					if in > blockStarts {
						return neverAbove
					}
				}
				return ""
			}
			have := func(p *taker, from tick) {
				*p = taker{pc: beginning, left: blockStarts, until: from + useTicks}
				if without[UseEnds] {
					p.until = from + kept
				}
			}
			switch p := w.p[i]; p.pc {
			case empty:
				ask := func(lost bool) func(*windowed, *taker) string {
					return func(n *windowed, p *taker) string {
						held := n.block.status == dedupe.Done || n.block.status == dedupe.Claimed && n.now < n.block.until
						won := !(without[DeadTakerEnds] && n.block.status == dedupe.Claimed) && n.block.claim(ownToken(i), n.now)
						switch {
						case !held && !won:
							return blockFree
						case won && !lost && without[SettledIsHad]:
							have(p, n.now)
						case won && !lost:
							*p = taker{pc: taking, asked: n.now}
						case won:
							n.block.disown(ownToken(i))
						}
						return ""
					}
				}
				do("asks for the block", ask(false))
				do("asks for the block, and the answer is lost", ask(true))
				if without[AwayStartsNothing] {
					do("finds the store away, and begins a job", begins)
				}
			case taking:
				do("settles the block", func(n *windowed, p *taker) string {
					if p.pc = hearing; !n.block.settle(ownToken(i), dedupe.Done, n.now, kept) {
						*p = taker{}
					}
					return ""
				})
				do("settles the block, and the call is lost", func(n *windowed, p *taker) string {
					asked := p.asked
					n.block.disown(ownToken(i))
					if *p = (taker{}); without[AnsweredIsHad] {
						have(p, asked)
					}
					return ""
				})
			case hearing:
				do("has the answer", func(n *windowed, p *taker) string {
					from := p.asked
					if without[UseFromAsking] {
						from = n.now
					}
					have(p, from)
					return ""
				})
			case beginning:
				if p.left > 0 && w.now < p.until {
					do("begins a job", func(n *windowed, p *taker) string {
						p.left--
						return begins(n, p)
					})
				} else {
					do("has used the block", func(n *windowed, p *taker) string {
						n.block.disown(ownToken(i))
						*p = taker{}
						return ""
					})
				}
			}
			if w.p[i].pc != empty {
				do("dies", func(n *windowed, p *taker) string {
					n.block.disown(ownToken(i))
					*p = taker{}
					return ""
				})
			}
		}
		return all
	}
}
