package visibility

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/must"
)

func benchManager(b *testing.B, n int) (*Manager[int], []*Held[int]) {
	m := must.Get(New(func(context.Context, []int) error { return nil }, Options[int]{Timeout: time.Hour, MaxBatch: 100}))
	hs := make([]*Held[int], n)
	for i := range hs {
		hs[i] = &Held[int]{Lease: i, Deadline: time.Now().Add(time.Hour + time.Duration(i)*time.Millisecond)}
	}
	m.Hold(hs...)
	return m, hs
}

// BenchmarkHoldRelease is what holding costs a job, alone and in a batch of ten, with others held.
func BenchmarkHoldRelease(b *testing.B) {
	for _, others := range []int{100, 10_000} {
		for _, batch := range []int{1, 10} {
			b.Run(fmt.Sprintf("held=%d/batch=%d", others, batch), func(b *testing.B) {
				m, _ := benchManager(b, others)
				hs := make([]*Held[int], batch)
				deadline := time.Now().Add(time.Hour)
				for i := range hs {
					hs[i] = &Held[int]{Lease: i, Deadline: deadline}
				}
				b.ReportAllocs()
				for b.Loop() {
					m.Hold(hs...)
					m.Release(hs...)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/lease")
			})
		}
	}
}

// BenchmarkChurn is the same where each lease is held while 10,000 others come and go, first in,
// first out.
func BenchmarkChurn(b *testing.B) {
	m, hs := benchManager(b, 10_000)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		h := hs[i%len(hs)]
		m.Release(h)
		h.Deadline = h.Deadline.Add(10 * time.Second)
		m.Hold(h)
		i++
	}
}

// BenchmarkTick is one beat of 10,000 leases, all due at once: the look, and a hundred calls.
func BenchmarkTick(b *testing.B) {
	const n = 10_000
	m, hs := benchManager(b, n)
	answered := make(chan struct{}, n)
	m.x = func(_ context.Context, ls []int) error {
		for range ls {
			answered <- struct{}{}
		}
		return nil
	}
	var looked time.Duration
	for b.Loop() {
		m.mu.Lock()
		now := m.now().mono
		for _, h := range hs {
			h.next = now
			m.leases.Fix(&h.place[byDue], m.due(h))
		}
		m.mu.Unlock()
		from := time.Now()
		m.tick()
		looked += time.Since(from)
		for range n {
			<-answered
		}
		if err := m.wait0(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(looked.Nanoseconds())/float64(b.N)/n, "ns-look/lease")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/lease")
}

// wait0 waits until no call is under way.
func (m *Manager[L]) wait0() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.calls > 0 {
		if err := m.wait(context.Background()); err != nil {
			return err
		}
	}
	return nil
}
