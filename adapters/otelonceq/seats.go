package otelonceq

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
)

// This file owns what the store says of a queue: the seats of its workers, and the operators'
// pauses. The goroutine of Queues asks, as it asks for depths: with one question open at most.

func (d *depths) askStore(ctx context.Context, g *gauge) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !d.fresh(g.seatsAt) { // an old pause would keep an alert silent
		d.t.setPauses(label(g.Name), nil)
	}
	if g.asking {
		return
	}
	g.asking = true
	go func() {
		call, cancel := context.WithTimeout(ctx, d.o.Timeout)
		defer cancel()
		seats, paused, err := readControl(call, g)
		g.mu.Lock()
		changes := g.silent != (err != nil)
		g.asking, g.silent = false, err != nil
		if err == nil {
			g.seats, g.seatsAt = seats, time.Now()
		}
		g.mu.Unlock()
		if err == nil && ctx.Err() == nil {
			d.t.setPauses(label(g.Name), paused)
		}
		if changes && err != nil && ctx.Err() == nil {
			d.t.log.LogAttrs(background, slog.LevelWarn, "otelonceq: the seats of a queue cannot be read", slog.String("queue", g.Name), slog.Any("error", err))
		}
	}()
}

// readControl counts the seats, and finds the pauses. It does not let a store's panic end the
// program.
func readControl(ctx context.Context, g *gauge) (live int64, paused map[pause]float64, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("otelonceq: the store panicked: %v", v)
		}
	}()
	seats, err := controlstore.Seats(ctx, g.Store, g.Name)
	if err != nil {
		return 0, nil, err
	}
	now := time.Now()
	for i := range seats {
		if seats[i].Live(now) {
			live++
		}
	}
	rules, err := controlstore.Read(ctx, g.Store)
	if err != nil {
		return 0, nil, err
	}
	paused = make(map[pause]float64)
	for _, r := range rules.Rules {
		if r.Do != control.Pause && !(r.Do == control.Limit && r.Slots == 0) || !r.Until.After(now) || r.Queue != "" && r.Queue != g.Name {
			continue
		}
		paused[pause{queue: label(g.Name), scope: label(r.Scope), typ: label(r.Type), reason: ruleReason + r.ID}] = float64(r.Made.UnixMilli()) / 1000
	}
	return live, paused, nil
}

// ruleReason begins the reasons of pauses that were read from the rules.
const ruleReason = "rule "

// setPauses replaces the pauses of a queue that were read from the rules.
func (t *Telemetry) setPauses(queue string, paused map[pause]float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.pauses {
		if p.queue == queue && len(p.reason) > len(ruleReason) && p.reason[:len(ruleReason)] == ruleReason {
			delete(t.pauses, p)
		}
	}
	maps.Copy(t.pauses, paused)
}
