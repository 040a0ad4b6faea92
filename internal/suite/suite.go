// Package suite runs the cases of a public conformance suite: each in a subtest, in virtual time
// where it may, with the cases that do not apply and the known differences reported, and a summary
// at the end.
package suite

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// Case is one rule and how it is checked.
type Case struct {
	Name string
	// Check checks the rule. Its answer is why it does not apply, empty when it was checked.
	Check func(testing.TB) (ruledOut string)
}

// Options say how a suite runs.
type Options struct {
	// Name is the suite's package, for messages.
	Name string
	// Virtual runs each case in a bubble of its own; otherwise the cases run in parallel.
	Virtual bool
	// Known are the cases that are expected to fail, with the reason. One that passes, or does not
	// apply, fails the test: the list is to be kept true.
	Known map[string]string
}

// Run runs the cases.
func Run(t *testing.T, o Options, cases []Case) {
	t.Helper()
	for name := range o.Known {
		if !slices.ContainsFunc(cases, func(c Case) bool { return c.Name == name }) {
			t.Errorf("%s: Harness.Known names %q, which is no case", o.Name, name)
		}
	}
	var sum summary
	// Cases in real time run in parallel, so they end after this function.
	t.Cleanup(func() { t.Logf("%s: %s", o.Name, sum.String()) })
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if !o.Virtual {
				t.Parallel()
			}
			var ruledOut string
			defer func() { sum.add(c.Name, ruledOut) }()
			reason, known := o.Known[c.Name]
			if !known {
				inTime(t, o.Virtual, func(t *testing.T) { ruledOut = c.Check(t) })
				return
			}
			var failures []string
			failures, ruledOut = Record(t, o.Virtual, c)
			switch {
			case ruledOut != "":
				t.Errorf("%s: Harness.Known names a case that is not applicable; remove it there: %s", o.Name, ruledOut)
			case len(failures) == 0:
				t.Errorf("%s: the known difference is gone; remove it from Harness.Known: %s", o.Name, reason)
			default:
				t.Logf("known difference: %s\n%s", reason, strings.Join(failures, "\n"))
			}
		})
	}
}

// Record runs a case without letting it fail t, and returns what failed.
func Record(t *testing.T, virtual bool, c Case) (failures []string, ruledOut string) {
	inTime(t, virtual, func(t *testing.T) {
		r := &recorder{TB: t}
		var wg sync.WaitGroup
		// FailNow ends its goroutine, so the case needs one of its own.
		wg.Go(func() { ruledOut = c.Check(r) })
		wg.Wait()
		failures = r.all()
	})
	return failures, ruledOut
}

func inTime(t *testing.T, virtual bool, f func(*testing.T)) {
	if virtual {
		synctest.Test(t, f)
		return
	}
	f(t)
}

// summary gathers how many cases ran and which did not.
type summary struct {
	mu       sync.Mutex
	run      int
	ruledOut []string
}

func (s *summary) add(name, ruledOut string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ruledOut == "" {
		s.run++
		return
	}
	s.ruledOut = append(s.ruledOut, name+": "+ruledOut)
}

func (s *summary) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ruledOut) == 0 {
		return fmt.Sprintf("%d cases run, none ruled out", s.run)
	}
	slices.Sort(s.ruledOut)
	return fmt.Sprintf("%d cases run, %d ruled out (%s)", s.run, len(s.ruledOut), strings.Join(s.ruledOut, "; "))
}
