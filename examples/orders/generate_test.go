package main

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write orders.csv anew")

// TestOrdersFile holds orders.csv to its generator: go test ./examples/orders -run OrdersFile -update
func TestOrdersFile(t *testing.T) {
	want := generate(2000)
	if *update {
		require.NoError(t, os.WriteFile("orders.csv", want, 0o644))
	}
	got, err := os.ReadFile("orders.csv")
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got), "orders.csv is not what the generator makes; run with -update")
}

// generate makes n orders, the same for every call: one in 50 is slow, one in 50 poison, one in ten sent more
// than once.
func generate(n int) []byte {
	rng := rand.New(rand.NewPCG(2, 9))
	first := []string{"Ada", "Bela", "Chiara", "Dov", "Emre", "Femi", "Goran", "Hana", "Ines", "Jun", "Kaja", "Luis"}
	last := []string{"Abel", "Brandt", "Costa", "Dahl", "Eklund", "Fischer", "Grau", "Hoang", "Ito", "Jansen"}
	currencies := []string{"EUR", "EUR", "EUR", "USD", "USD", "GBP", "CHF"}

	var b bytes.Buffer
	w := csv.NewWriter(&b)
	write := func(fields ...string) {
		if err := w.Write(fields); err != nil {
			panic(err) // a bytes.Buffer takes everything
		}
	}
	write(columns...)
	for i := range n {
		items := 1 + rng.IntN(6)
		r := row{
			id:       fmt.Sprintf("A-%05d", 10001+i),
			customer: first[rng.IntN(len(first))] + " " + last[rng.IntN(len(last))],
			cents:    strconv.Itoa(items * (199 + 50*rng.IntN(180))),
			currency: currencies[rng.IntN(len(currencies))],
			items:    strconv.Itoa(items),
			times:    1, kind: good,
		}
		switch rng.IntN(40) {
		case 0, 1, 2:
			r.times = 2
		case 3:
			r.times = 3
		}
		switch i % 50 {
		case 17:
			r.kind = slow
		case 33:
			r.spoil(i / 50)
		}
		write(r.id, r.customer, r.cents, r.currency, r.items, strconv.Itoa(r.times), r.kind)
	}
	w.Flush()
	return b.Bytes()
}

// spoil makes the row poison, in one way after the other.
func (r *row) spoil(n int) {
	r.kind = poison
	switch n % 4 {
	case 0:
		r.cents = "-" + r.cents
	case 1:
		r.currency = "XXX"
	case 2:
		r.cents = "n/a"
	case 3:
		r.items = "0"
	}
}
