// Package elsewhere runs a fake server's table of behaviours against another server of the same
// kind, and knows what that one does differently: a new difference fails, and so does a known one
// that has disappeared, so that the list of them stays true. The tests of the fakes call it.
package elsewhere

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Judge is the part of testing.T that a behaviour needs. What runs against a foreign server has
// another one, which survives a failure.
type Judge interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Context() context.Context
}

// trial is a judge for a foreign server: a failure ends the behaviour's goroutine and
// nothing else.
type trial struct {
	ctx     context.Context //nolint:containedctx // of one behaviour
	failure string
}

func (*trial) Helper()                    {}
func (t *trial) Context() context.Context { return t.ctx }
func (t *trial) Fatal(args ...any)        { t.Fatalf("%s", fmt.Sprint(args...)) }

func (t *trial) Fatalf(format string, args ...any) {
	t.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Try tells how a behaviour fails; "" means that it does not.
func Try(ctx context.Context, run func(Judge)) string {
	t := &trial{ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(t)
	}()
	<-done
	return t.failure
}

// Difference is what another server does where the service does something else.
type Difference struct {
	Does string
	// Sometimes: it depends on the moment.
	Sometimes bool
}

// Does is a difference that is always there.
func Does(what string) Difference { return Difference{Does: what} }

// Row is a behaviour of the table, as far as the comparison knows it.
type Row struct {
	Name string
	// Ref says how we know.
	Ref string
	// Ours: others are not asked.
	Ours bool
}

// Compare runs the rows, side by side. service is the one that the server stands in for, known its
// differences by the names of rows. try runs the i-th row, as Try does.
func Compare(t *testing.T, service string, known map[string]Difference, rows []Row, try func(t *testing.T, i int) string) {
	for name, d := range known {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Name == name && !r.Ours }) {
			t.Errorf("the difference %q is of no behaviour (%s)", name, d.Does)
		}
	}
	for i, r := range rows {
		if r.Ours {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			failure := try(t, i)
			d, listed := known[r.Name]
			switch verdict(failure, listed, d.Sometimes) {
			case newDifference:
				t.Errorf("differs from %s (%s): %s", service, r.Ref, failure)
			case noDifference:
				t.Errorf("does as %s does (%s) now: take it from the list, which says that it %s", service, r.Ref, d.Does)
			case knownDifference:
				line, _, _ := strings.Cut(failure, "\n")
				t.Logf("known: %s; %s is right by %s: %s", d.Does, service, r.Ref, line)
			case asExpected:
			}
		})
	}
}

type finding uint8

const (
	asExpected      finding = iota
	newDifference           // a red one: it is not in the list
	noDifference            // a red one: it is in the list for nothing
	knownDifference         // it is in the list
)

func verdict(failure string, known, sometimes bool) finding {
	switch {
	case failure != "" && known:
		return knownDifference
	case failure != "":
		return newDifference
	case known && !sometimes:
		return noDifference
	default:
		return asExpected
	}
}

// Main is a TestMain that lets more behaviours wait at a time than there are processors: elsewhere
// they wait in real time. The flag -parallel goes before.
func Main(m *testing.M, waiting int) {
	const parallel = "test.parallel"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if !given {
		if err := flag.Set(parallel, strconv.Itoa(waiting)); err != nil {
			panic(err) // invariant: go test has the flag, and it takes a number
		}
	}
	m.Run()
}
