// Package shop is what the demos share: the orders, the ledger, what is mended, and how it is told.
package shop

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file owns the orders: the file that they come from, the messages that they become, and what
// is wrong with some. The demo and its workers call it, from many goroutines. Nothing is locked,
// because an order does not change.

//go:embed orders.csv
var ordersCSV []byte

// The kinds of rows in orders.csv.
const (
	Good   = "good"
	Slow   = "slow"   // good too, but the bank takes longer than the visibility timeout
	Poison = "poison" // cannot be charged as it is
	Mended = "mended" // was poison, and should be charged by now; not in the file
)

// Columns are the header of the file of orders.
var Columns = []string{"id", "customer", "cents", "currency", "items", "sent_times", "kind"}

// Row is a line of orders.csv: an order as it was typed, faults included.
type Row struct {
	ID, Customer, Cents, Currency, Items string
	Times                                int // how often the shop sends it
	Kind                                 string
}

// Order is what a message's body says, and what the workers know.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
	Currency string `json:"currency"`
	Items    int64  `json:"items"`
	Slow     bool   `json:"slow,omitempty"`
}

// rejection is an error that knows its class: the dead letter will carry it.
type rejection struct{ class, text string }

func (r *rejection) Error() string      { return r.text }
func (r *rejection) ErrorClass() string { return r.class }

// Check finds the orders that no repetition can save.
func (o Order) Check() error {
	switch {
	case o.Cents <= 0:
		return &rejection{"bad-amount", fmt.Sprintf("order %s is over %d cents", o.ID, o.Cents)}
	case !slices.Contains([]string{"EUR", "USD", "GBP", "CHF"}, o.Currency):
		return &rejection{"unknown-currency", fmt.Sprintf("order %s is in %q", o.ID, o.Currency)}
	}
	return nil
}

// ItemCents has a bug: it panics for an order without items. Some orders have none: they are gift
// cards. The mended version knows that.
func (o Order) ItemCents(mended bool) int64 {
	if mended && o.Items == 0 {
		return o.Cents
	}
	return o.Cents / o.Items
}

// Body is the row as the shop sends it: numbers as numbers, where they are some.
func (r Row) Body() ([]byte, error) {
	return json.Marshal(map[string]any{
		"id": r.ID, "customer": r.Customer, "cents": number(r.Cents), "currency": r.Currency, "items": number(r.Items),
		"slow": r.Kind == Slow,
	})
}

// Messages are the rows as the shop sends them, some more than once, in the order that rng makes.
func Messages(rows []Row, rng *rand.Rand) ([]broker.Outgoing, error) {
	var ms []broker.Outgoing
	for _, r := range rows {
		body, err := r.Body()
		if err != nil {
			return nil, err
		}
		for range r.Times {
			ms = append(ms, broker.Outgoing{Body: body, Meta: &broker.Meta{Type: "charge", Key: r.ID}})
		}
	}
	rng.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	return ms, nil
}

// Bank takes its time, as banks do.
type Bank struct{ Usual, Slow time.Duration }

// Ask waits for the bank's answer, or for the end of ctx.
func (b Bank) Ask(ctx context.Context, o Order) error {
	if o.Slow {
		return Rest(ctx, b.Slow)
	}
	return Rest(ctx, b.Usual)
}

// Rest waits for d, or for the end of ctx, which it answers.
func Rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func number(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	return s
}

// LoadOrders reads the file at path, or the one that was built in when path is empty.
func LoadOrders(path string) ([]Row, error) {
	b := ordersCSV
	if path != "" {
		var err error
		if b, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	rows, err := ReadOrders(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", OrdersName(path), err)
	}
	return rows, nil
}

// OrdersName is the file's, for people.
func OrdersName(path string) string {
	if path == "" {
		return "orders.csv"
	}
	return path
}

// ReadOrders reads the file of orders and answers what is wrong with it.
func ReadOrders(r io.Reader) ([]Row, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = len(Columns)
	lines, err := c.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 || !slices.Equal(lines[0], Columns) {
		return nil, fmt.Errorf("line 1: want %s", strings.Join(Columns, ","))
	}
	rows := make([]Row, 0, len(lines))
	seen := make(map[string]bool)
	for i, l := range lines[1:] {
		r := Row{ID: l[0], Customer: l[1], Cents: l[2], Currency: l[3], Items: l[4], Kind: l[6]}
		r.Times, err = strconv.Atoi(l[5])
		switch {
		case r.ID == "" || seen[r.ID]:
			return nil, fmt.Errorf("order %d: the id %q is empty, or there twice", i+1, r.ID)
		case err != nil || r.Times < 1:
			return nil, fmt.Errorf("order %s: sent_times is %q, want 1 or more", r.ID, l[5])
		case !slices.Contains([]string{Good, Slow, Poison}, r.Kind):
			return nil, fmt.Errorf("order %s: the kind %q is none of good, slow, poison", r.ID, r.Kind)
		}
		seen[r.ID] = true
		rows = append(rows, r)
	}
	return rows, nil
}
