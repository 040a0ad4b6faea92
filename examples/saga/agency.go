package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// parts of a trip, in the order in which they are booked.
var parts = []string{"flight", "hotel", "car"}

var (
	errSoldOut = errors.New("sold out")
	errMute    = errors.New("no answer: booked or not?")
	errBusy    = errors.New("too many requests")
)

// agency books parts of trips, in memory. Some customers have no luck.
type agency struct {
	soldOut map[string]string // by customer: the part that is not to be had
	mute    map[string]string // by customer: the part that is booked without an answer

	mu       sync.Mutex
	customer string
	part     map[string]string // by key of a booking
	gone     map[string]bool   // by key: it is cancelled
	made     map[string]int    // bookings, by part
	dropped  map[string]int    // cancellations, by part
	said     []string
}

func newAgency() *agency {
	return &agency{
		soldOut: map[string]string{}, mute: map[string]string{},
		part: map[string]string{}, gone: map[string]bool{}, made: map[string]int{}, dropped: map[string]int{},
	}
}

// serve says whose trip is booked now.
func (a *agency) serve(customer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.customer = customer
}

// Book books a part, once for a key. Of a booking that was cancelled it gives the reference again,
// as those do who keep their answers with the keys.
func (a *agency) Book(_ context.Context, key, part string) (reference string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.soldOut[a.customer] == part:
		a.said = append(a.said, part+" is sold out")
		return "", fmt.Errorf("%s: %w", part, errSoldOut)
	case a.part[key] == "":
		a.part[key] = part
		a.made[part]++
		a.said = append(a.said, part+" is booked")
	}
	if a.mute[a.customer] == part {
		a.said = append(a.said, part+"'s answer is lost")
		return "", fmt.Errorf("%s: %w", part, errMute)
	}
	return "ref-" + key[:8], nil
}

// Cancel cancels what was booked with the key, if anything was.
func (a *agency) Cancel(_ context.Context, key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if part := a.part[key]; part != "" && !a.gone[key] {
		a.gone[key] = true
		a.dropped[part]++
		a.said = append(a.said, part+" is cancelled")
	}
	return nil
}

// told is what it has done since it was asked last.
func (a *agency) told() (said []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	said, a.said = a.said, nil
	return said
}

func (a *agency) report(out io.Writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Fprintln(out)
	for _, part := range parts {
		fmt.Fprintf(out, "%-7s %d booked, %d cancelled\n", part, a.made[part], a.dropped[part])
	}
}
