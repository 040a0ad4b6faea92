package main

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

//go:embed orders.csv
var ordersCSV []byte

// The kinds of rows in orders.csv.
const (
	good   = "good"
	slow   = "slow"   // good too, but the bank takes longer than the visibility timeout
	poison = "poison" // cannot be charged as it is
	mended = "mended" // was poison, and should be charged by now; not in the file
)

var columns = []string{"id", "customer", "cents", "currency", "items", "sent_times", "kind"}

// row is a line of orders.csv: an order as it was typed, faults included.
type row struct {
	id, customer, cents, currency, items string
	times                                int // how often the shop sends it
	kind                                 string
}

// order is what a message's body says, and what the workers know.
type order struct {
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

// check finds the orders that no repetition can save.
func (o order) check() error {
	switch {
	case o.Cents <= 0:
		return &rejection{"bad-amount", fmt.Sprintf("order %s is over %d cents", o.ID, o.Cents)}
	case !slices.Contains([]string{"EUR", "USD", "GBP", "CHF"}, o.Currency):
		return &rejection{"unknown-currency", fmt.Sprintf("order %s is in %q", o.ID, o.Currency)}
	}
	return nil
}

// itemCents has a bug: it panics for an order without items. Some orders have none: they are gift cards. The mended
// version knows that.
func (o order) itemCents(mended bool) int64 {
	if mended && o.Items == 0 {
		return o.Cents
	}
	return o.Cents / o.Items
}

// body is the row as the shop sends it: numbers as numbers, where they are some.
func (r row) body() ([]byte, error) {
	return json.Marshal(map[string]any{
		"id": r.id, "customer": r.customer, "cents": number(r.cents), "currency": r.currency, "items": number(r.items),
		"slow": r.kind == slow,
	})
}

func number(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	return s
}

// loadOrders reads the file at path, or the one that was built in when path is empty.
func loadOrders(path string) ([]row, error) {
	b := ordersCSV
	if path != "" {
		var err error
		if b, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	rows, err := readOrders(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", ordersName(path), err)
	}
	return rows, nil
}

func ordersName(path string) string {
	if path == "" {
		return "orders.csv"
	}
	return path
}

func readOrders(r io.Reader) ([]row, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = len(columns)
	lines, err := c.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 || !slices.Equal(lines[0], columns) {
		return nil, fmt.Errorf("line 1: want %s", strings.Join(columns, ","))
	}
	rows := make([]row, 0, len(lines))
	seen := make(map[string]bool)
	for i, l := range lines[1:] {
		r := row{id: l[0], customer: l[1], cents: l[2], currency: l[3], items: l[4], kind: l[6]}
		r.times, err = strconv.Atoi(l[5])
		switch {
		case r.id == "" || seen[r.id]:
			return nil, fmt.Errorf("order %d: the id %q is empty, or there twice", i+1, r.id)
		case err != nil || r.times < 1:
			return nil, fmt.Errorf("order %s: sent_times is %q, want 1 or more", r.id, l[5])
		case !slices.Contains([]string{good, slow, poison}, r.kind):
			return nil, fmt.Errorf("order %s: the kind %q is none of good, slow, poison", r.id, r.kind)
		}
		seen[r.id] = true
		rows = append(rows, r)
	}
	return rows, nil
}
