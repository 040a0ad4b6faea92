package shop

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// Generate makes n orders, the same for every call: one in 50 is slow, one in 50 poison, one in ten
// sent more than once. What was mistyped in poison has a correction.
func Generate(n int) (orders, corrections []byte) {
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
	write(w, Columns...)
	write(cw, correctionColumns...)
	for i := range n {
		items := 1 + rng.IntN(6)
		r := Row{
			ID:       fmt.Sprintf("A-%05d", 10001+i),
			Customer: first[rng.IntN(len(first))] + " " + last[rng.IntN(len(last))],
			Cents:    strconv.Itoa(items * (199 + 50*rng.IntN(180))),
			Currency: currencies[rng.IntN(len(currencies))],
			Items:    strconv.Itoa(items),
			Times:    1, Kind: Good,
		}
		switch rng.IntN(40) {
		case 0, 1, 2:
			r.Times = 2
		case 3:
			r.Times = 3
		}
		switch i % 50 {
		case 17:
			r.Kind = Slow
		case 33:
			right := Correction{r.Cents, r.Currency}
			r.spoil(i / 50)
			if (Correction{r.Cents, r.Currency}) != right {
				write(cw, r.ID, right.Cents, right.Currency)
			}
		}
		write(w, r.ID, r.Customer, r.Cents, r.Currency, r.Items, strconv.Itoa(r.Times), r.Kind)
	}
	w.Flush()
	cw.Flush()
	return b.Bytes(), c.Bytes()
}

// spoil makes the row poison, in one way after the other.
func (r *Row) spoil(n int) {
	r.Kind = Poison
	switch n % 4 {
	case 0:
		r.Cents = "-" + r.Cents
	case 1:
		r.Currency = "XXX"
	case 2:
		r.Cents = "n/a"
	case 3:
		r.Items = "0"
	}
}
