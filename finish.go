package onceq

// finish gives a run its disposition. Only the first one counts.
func (p *Processor) finish(r *run, d Disposition, outcome Outcome) {
	if r.advance(over) {
		p.dispose(r, d, outcome)
	}
}

// drop ends a run whose delivery was lost while it waited for a slot. One that has got further is ended by those who
// have it.
func (p *Processor) drop(r *run) {
	if r.phase.CompareAndSwap(uint32(waiting), uint32(over)) {
		p.dispose(r, Disposition{Action: Leave}, OutcomeLostBeforeClaim)
	}
}

func (p *Processor) dispose(r *run, d Disposition, outcome Outcome) {
	r.action, r.outcome = d.Action, outcome
	r.verdict.Delay = min(d.Delay, p.longestNack())
	r.tries = 0
	r.f.host.observe(r)
	r.f.disposed(r)
	r.f.host.ended(r)
}
