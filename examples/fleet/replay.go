package main

import (
	"context"
	"encoding/json"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/examples/internal/shop"
	"github.com/onceq/onceq/internal/child"
)

// replay is the process of an operator: it sends the dead letters back, mistyped ones corrected.
func replay(ctx context.Context, a assignment) error {
	corrections, err := shop.LoadCorrections(a.Corrections, a.Builtin)
	if err != nil {
		return err
	}
	queue, dead, err := open(ctx, a.place, nil)
	if err != nil {
		return err
	}
	letters, err := shop.OpenLetters(dead)
	if err != nil {
		return err
	}
	report, err := letters.Replay(ctx, shop.ReplayOptions(queue, func(o *broker.Outgoing) error {
		child.Tell(lineLetter)
		return corrections.Correct(o)
	}))
	if err != nil {
		return err
	}
	r := replayed{Sent: report.Replayed, Skipped: len(report.Skipped)}
	for _, l := range report.Skipped {
		r.Why = l.Reason
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	child.Tell(lineReport+" %s", text)
	return nil
}

// replayed is what a replay that was not killed says at its end.
type replayed struct {
	Sent, Skipped int
	Why           string // those that were skipped were
}
