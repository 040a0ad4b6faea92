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

// TestOrdersFile holds orders.csv and corrections.csv to their generator: go test ./examples/orders -run OrdersFile -update
func TestOrdersFile(t *testing.T) {
	orders, corrections := generate(2000)
	for name, want := range map[string][]byte{"orders.csv": orders, "corrections.csv": corrections} {
		if *update {
			require.NoError(t, os.WriteFile(name, want, 0o644))
		}
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%s is not what the generator makes; run with -update", name)
	}
}

// generate makes n orders, the same for every call: one in 50 is slow, one in 50 poison, one in ten sent more
// than once. What was mistyped in poison has a correction.
func generate(n int) (orders, corrections []byte) {
	rng := rand.New(rand.NewPCG(2, 9))
	first := []string{"Ada", "Bela", "Chiara", "Dov", "Emre", "Femi", "Goran", "Hana", "Ines", "Jun", "Kaja", "Luis"}
	last := []string{"Abel", "Brandt", "Costa", "Dahl", "Eklund", "Fischer", "Grau", "Hoang", "Ito", "Jansen"}
	currencies := []string{"EUR", "EUR", "EUR", "USD", "USD", "GBP", "CHF"}

	var b, c bytes.Buffer
	w, cw := csv.NewWriter(&b), csv.NewWriter(&c)
	write := func(w *csv.Writer, fields ...string) {
		if err := w.Write(fields); err != nil {
			panic(err) // a bytes.Buffer takes everything
		}
	}
	write(w, columns...)
	write(cw, correctionColumns...)
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
			right := correction{r.cents, r.currency}
			r.spoil(i / 50)
			if (correction{r.cents, r.currency}) != right {
				write(cw, r.id, right.cents, right.currency)
			}
		}
		write(w, r.id, r.customer, r.cents, r.currency, r.items, strconv.Itoa(r.times), r.kind)
	}
	w.Flush()
	cw.Flush()
	return b.Bytes(), c.Bytes()
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
