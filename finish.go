package onceq

// finish gives a run its disposition. Only the first one counts.
func (p *Processor) finish(r *run, d Disposition, outcome string) {
	if r.advance(over) {
		p.dispose(r, d, outcome)
	}
}

// drop ends a run whose delivery was lost while it waited for a slot. One that has got further is ended by those who
// have it.
func (p *Processor) drop(r *run) {
	if r.phase.CompareAndSwap(uint32(waiting), uint32(over)) {
		p.dispose(r, Disposition{Action: Leave}, "lost-before-claim")
	}
}

func (p *Processor) dispose(r *run, d Disposition, outcome string) {
	r.action, r.ending = d.Action, outcome
	r.verdict.Delay = min(d.Delay, p.longestNack())
	r.tries = 0
	p.observeEnd(r)
	r.f.disposed(r)
	r.f.o.ended(r)
}
