// Package suite is the harness under both public conformance suites, brokertest and dedupetest. A
// suite is a list of cases and a function that opens what a case works with. This package runs each
// case in a subtest, in virtual time where it may, and says which rule a failure breaks. It reports
// the cases that do not apply and the known differences, with a summary at the end.
//
// A suite's own tests use Pin, which holds the number of its cases, and Prove, which shows that
// each of them can fail.
package suite

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// This file owns a run of a suite: which cases apply, in which order they run, and what is
// reported. The suites call it from their Run, in the test's goroutine. Cases that run in parallel
// share the report alone, which has its own lock.

// Suite is a list of cases, on a harness. E is what a case works with, A what it asks for.
type Suite[E, A any] struct {
	// Name is the suite's package, for messages.
	Name string
	// Virtual runs each case in a bubble of its own; otherwise the cases run in parallel.
	Virtual bool
	// Known are the cases that are expected to fail, with the reason. One that passes, or does not
	// apply, fails the test: the list is to be kept true.
	Known map[string]string
	// Unsteady are the cases that may fail at times, with the reason. What fails is only told. One
	// that does not apply fails the test.
	Unsteady map[string]string
	// Cases are all rules, in the order in which they are run.
	Cases []Case[E, A]
	// Open makes what a case works with, with e in it.
	Open func(e *Env, asks A) E
}

func (s *Suite[E, A]) String() string { return fmt.Sprintf("%s: %d cases", s.Name, len(s.Cases)) }

// find is the case of that name; nil where there is none.
func (s *Suite[E, A]) find(name string) *Case[E, A] {
	for i := range s.Cases {
		if s.Cases[i].Name == name {
			return &s.Cases[i]
		}
	}
	return nil
}

// Run runs the cases, each in a subtest.
func (s *Suite[E, A]) Run(t *testing.T) {
	t.Helper()
	for _, name := range s.misnamed() {
		t.Errorf("%s: %s, which is no case", s.Name, name)
	}
	var sum summary
	// Cases in real time run in parallel, so they end after this function.
	t.Cleanup(func() { t.Logf("%v, %v", s, &sum) })
	for i := range s.Cases {
		c := &s.Cases[i]
		t.Run(c.Name, func(t *testing.T) {
			if !s.Virtual {
				t.Parallel()
			}
			var ruledOut string
			defer func() { sum.add(c.Name, ruledOut) }()
			reason, known := s.Known[c.Name]
			why, unsteady := s.Unsteady[c.Name]
			if !known && !unsteady {
				s.inTime(t, func(t *testing.T) { ruledOut = s.check(t, c) })
				return
			}
			var failures []string
			failures, ruledOut = s.record(t, c)
			if unsteady && ruledOut == "" {
				t.Logf("%d failures, unsteady here: %s\n%s", len(failures), why, strings.Join(failures, "\n"))
				return
			}
			if problem := vain(reason, failures, ruledOut); problem != "" {
				t.Errorf("%s: %s", s.Name, problem)
				return
			}
			t.Logf("known difference: %s\n%s", reason, strings.Join(failures, "\n"))
		})
	}
}

// misnamed are the names in Known and Unsteady that are no case's, in words.
func (s *Suite[E, A]) misnamed() (all []string) {
	for field, names := range map[string]map[string]string{"Known": s.Known, "Unsteady": s.Unsteady} {
		for name := range names {
			if s.find(name) == nil {
				all = append(all, fmt.Sprintf("Harness.%s names %q", field, name))
			}
		}
	}
	return all
}

// check runs c. Its answer is why the case was ruled out, empty when it ran.
func (s *Suite[E, A]) check(t testing.TB, c *Case[E, A]) (ruledOut string) {
	t.Helper()
	e := s.Open(&Env{TB: t, suite: s.Name, rule: c.Rule}, c.Asks)
	for _, n := range c.Needs {
		if !n.Met(e) {
			t.Logf("not applicable: %s", n.Why)
			return n.Why
		}
	}
	c.Run(e)
	return ""
}

// vain says why a case must not stand in Harness.Known or Harness.Unsteady, empty when it may.
func vain(reason string, failures []string, ruledOut string) string {
	switch {
	case ruledOut != "":
		return "the Harness names a case that is not applicable; remove it there: " + ruledOut
	case len(failures) == 0:
		return "the known difference is gone; remove it from Harness.Known: " + reason
	}
	return ""
}

// record runs a case without letting it fail t, and returns what failed.
func (s *Suite[E, A]) record(t *testing.T, c *Case[E, A]) (failures []string, ruledOut string) {
	s.inTime(t, func(t *testing.T) {
		r := &recorder{TB: t}
		var wg sync.WaitGroup
		// FailNow ends its goroutine, so the case needs one of its own.
		wg.Go(func() { ruledOut = s.check(r, c) })
		wg.Wait()
		failures = r.all()
	})
	return failures, ruledOut
}

func (s *Suite[E, A]) inTime(t *testing.T, f func(*testing.T)) {
	if s.Virtual {
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
		return fmt.Sprintf("%d run, none ruled out", s.run)
	}
	slices.Sort(s.ruledOut)
	return fmt.Sprintf("%d run, %d ruled out (%s)", s.run, len(s.ruledOut), strings.Join(s.ruledOut, "; "))
}
