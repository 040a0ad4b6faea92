package shop

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"time"
)

// Settings are what a demo is told, and its times, which the tests make shorter.
type Settings struct {
	Orders, Ledger   string
	Corrections      string
	Seed             uint64
	Crashes, Workers int
	Fresh, Naive     bool

	Visibility time.Duration // of a received message; the lease is as long
	Bank       Bank          // what it takes for an order
	Restart    time.Duration // from a crash to the worker that takes its place
}

// Parse reads the flags of a demo called name, whose ledgers are .demo/ledger.db and .demo/naive.db
// with the prefix before them. With ok false it ends with the status code.
func (s *Settings) Parse(name, prefix string, args []string, errs io.Writer, more func(*flag.FlagSet)) (code int, ok bool) {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(errs)
	ledger, naive := filepath.Join(".demo", prefix+"ledger.db"), filepath.Join(".demo", prefix+"naive.db")
	f.StringVar(&s.Orders, "orders", "", "CSV `file` of the orders (default: examples/internal/shop/orders.csv, built in)")
	f.StringVar(&s.Corrections, "corrections", "", "CSV `file` of what to mend mistyped orders with (default: for the built-in orders, one that is built in)")
	f.StringVar(&s.Ledger, "ledger", "", "SQLite `file` of the charges (default: "+ledger+", with -no-onceq "+naive+")")
	f.BoolVar(&s.Fresh, "fresh", false, "begin with a new ledger: the file of the old one is deleted")
	f.Uint64Var(&s.Seed, "seed", 0, "`number` that decides the crashes and the order of the messages (default: random)")
	f.IntVar(&s.Crashes, "crashes", 12, "how often a worker is killed")
	f.IntVar(&s.Workers, "workers", 3, "how many workers there are")
	f.BoolVar(&s.Naive, "no-onceq", false, "do the same without the library; its failures do not count as an error")
	if more != nil {
		more(f)
	}
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0, false
	case err != nil:
		return 2, false
	case f.NArg() > 0 || s.Crashes < 0 || s.Workers < 1:
		fmt.Fprintf(errs, "%s: want no arguments, 0 or more crashes, and 1 worker or more\n", name)
		return 2, false
	}
	for s.Seed == 0 {
		s.Seed = uint64(rand.Uint32())
	}
	if s.Ledger == "" {
		s.Ledger = ledger
		if s.Naive {
			s.Ledger = naive
		}
	}
	return 0, true
}

// Attempts is the limit of a job's. A crash costs an order at most one, so that none is given up
// for crashes alone.
func (s *Settings) Attempts() int { return s.Crashes + 10 }

// NaiveReceives is after how many receives the queue itself moves a message of a run without the
// library to the dead-letter queue. Without it, poison would go round for ever.
const NaiveReceives = 5
