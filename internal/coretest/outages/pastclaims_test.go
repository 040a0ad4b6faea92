package outages

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// poisoned is a store in which one record makes each call fail after the others are committed.
type poisoned struct{ *past }

func (p *poisoned) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	<-time.After(300 * time.Millisecond)
	rest := rs[:0:0]
	for _, r := range rs {
		if r.Key.Key != "poison" {
			rest = append(rest, r)
		}
	}
	var cs []dedupe.Claim
	var err error
	if len(rest) > 0 {
		cs, err = p.Store.Claim(ctx, rest)
	}
	if len(rest) < len(rs) {
		return nil, errors.New("one record makes the second round of the call fail")
	}
	return cs, err
}

// The rule: a claim that is sent again has the fence of its first try, which is no sign of a
// restore, whoever sends it again. Else one record that cannot be claimed pauses the queue.
func TestClaimsApartAreNoPast(t *testing.T) {
	for range 5 { // they go apart in an order that is drawn
		p := &poisoned{new(past)}
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			r.Start()
			r.Send("poison")
			for i := range 300 {
				for j := range 4 {
					r.Send(fmt.Sprint("m ", i, " ", j))
				}
				rig.Pass(100 * time.Millisecond)
			}
			rig.Pass(5 * time.Second)
			if n := r.Logged.Count(wentBack); n != 0 || p.raised.Load() != 0 {
				t.Errorf("%d lines tell of a store that went back, and its fence was raised %d times", n, p.raised.Load())
			}
		}, rig.Steered, rig.Watched, func(r *rig.Rig) {
			p.Store, r.Cfg.Store = r.Store, p
			r.Store.Set(func(s *rig.Store) {
				s.ChangeLimits = func(l dedupe.Limits) dedupe.Limits { l.OrderedFences = true; return l }
			})
		})
	}
}

// crossing has two reads of the rules overtake each other: the first is slow on its way there and
// sees the change, the second is slow on its way back and does not.
type crossing struct {
	*rig.Store
	armed                  atomic.Bool
	n                      atomic.Int32
	read, changed, answers chan struct{}
}

func (p *crossing) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	if len(ks) != 1 || ks[0].Scope != controlstore.ScopeControl || ks[0].Key != "rules" || !p.armed.Load() {
		return p.Store.Get(ctx, ks)
	}
	switch p.n.Add(1) {
	case 1:
		<-p.changed
		defer close(p.answers)
		return p.Store.Get(ctx, ks)
	case 2:
		rs, err := p.Store.Get(ctx, ks)
		close(p.read)
		<-p.answers
		<-time.After(100 * time.Millisecond)
		return rs, err
	}
	return p.Store.Get(ctx, ks)
}

// The rule: an older version of the rules is that of a restored store only if it was asked for
// after the newer one had come. Two workers of a Processor read them, and their reads may cross.
func TestReadsThatCrossAreNoPast(t *testing.T) {
	for range 30 { // which of the two workers reads first is drawn
		readsThatCross(t)
	}
}

func readsThatCross(t *testing.T) {
	p := &crossing{}
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		p.read, p.changed, p.answers = make(chan struct{}), make(chan struct{}), make(chan struct{})
		proc := must.Get(onceq.NewProcessor(r.Cfg.ProcessorConfig))
		ctx, stop := context.WithCancel(r.Context())
		ended := make(chan error, 2)
		for range 2 {
			w := must.Get(proc.Worker(r.Q, r.Cfg.WorkerConfig))
			go func() { ended <- w.Run(ctx) }()
		}
		r.Rules(func(rs *controlstore.Rules) { rs.Rules = nil })
		rig.Pass(30 * time.Second)
		p.armed.Store(true)
		<-p.read
		r.Rules(func(rs *controlstore.Rules) { rs.Rules = nil })
		close(p.changed)
		rig.Pass(20 * time.Second)
		if n := r.Logged.Count(wentBack); n != 0 {
			t.Errorf("%d lines tell of a store that went back", n)
		}
		stop()
		for range 2 {
			<-ended
		}
	}, rig.Steered, rig.Watched, func(r *rig.Rig) {
		p.Store = r.Store
		r.Cfg.Store = p
	})
}
