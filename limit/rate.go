package limit

import (
	"context"
	"fmt"
	"time"
)

// Rate lets at most n jobs of a key begin in any time of length per, in this process. n is 1 to
// 1,000,000, and per 1 ms to 31 days, with no more than one start each microsecond. The starts are
// spread over per: a tenth of n, and at least one, may begin at once. A restart forgets, so n more
// may begin after it.
//
// Of a key it keeps some 100 bytes, while jobs of it have begun within per or wait. See [MaxKeys].
func Rate(n int, per time.Duration) (Limiter, error) {
	if err := checkRate("Rate", n, per); err != nil {
		return nil, err
	}
	// Of b at once and one each d, at most b - 1 + per/d begin in a time of length per. That is n.
	atOnce := max(1, n/10)
	paced := time.Duration(n - atOnce + 1)
	r := &rate{name: fmt.Sprintf("rate %d/%v", n, per), every: int64((per + paced - 1) / paced)}
	r.slack = int64(atOnce-1) * r.every
	r.table = newTable((*pace).isIdle)
	return r, nil
}

type rate struct {
	name         string
	every, slack int64
	table        *table[pace]
}

// pace is what is kept of a key.
type pace struct {
	next int64 // when a start is due that uses no slack
	line
}

func (p *pace) isIdle(now int64) bool { return p.next <= now && p.line.isIdle(now) }

func (r *rate) Name() string { return r.name }

// Reserve implements [Limiter].
func (r *rate) Reserve(ctx context.Context, a Ask) (time.Duration, error) {
	t := r.table
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	k, p, ok := t.get(a.Key, now)
	if !ok {
		return full(), nil
	}
	defer func() { t.m[k] = p }()
	if now > p.next+r.every+silence {
		p.tail = min(p.tail, now)
	}
	first := max(now, p.next-r.slack)
	at := first
	if !a.Again { // behind those who wait
		at = max(first, p.tail)
	}
	if wait := time.Duration(at - now); wait > 0 && wait >= holdOf(ctx) {
		return p.told(a, now, first, r.every), nil
	}
	p.next = max(p.next, at) + r.every
	if !a.Again {
		p.tail = at
	}
	return time.Duration(at - now), nil
}
