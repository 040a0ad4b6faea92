package suite

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Pin logs how many cases s has and holds it to that number, so that no case is lost unseen. The
// page must say the same number in the line that names the suite. Each case must be complete and
// have a name of its own.
func (s *Suite[E, A]) Pin(t testing.TB, cases int, page string) {
	t.Helper()
	t.Log(s)
	switch n := len(s.Cases); {
	case n < cases:
		t.Errorf("%v, and there were %d: a case was lost", s, cases)
	case n > cases:
		t.Errorf("%v, and %d are pinned: raise the number", s, cases)
	}
	for i := range s.Cases {
		c := &s.Cases[i]
		if c.Name == "" || c.Rule == "" || c.Run == nil {
			t.Errorf("%s: case %d, %q, is not complete", s.Name, i, c.Name)
		}
		if s.find(c.Name) != c {
			t.Errorf("%s: case %q is there twice", s.Name, c.Name)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	count := fmt.Sprintf(" %d cases", len(s.Cases))
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "/"+s.Name+"`") && strings.Contains(line, count) {
			return
		}
	}
	t.Errorf("%s: no line says%s of `…/%s`", page, count, s.Name)
}

// Fault is what breaks a rule, and who must notice.
type Fault[E, A any] struct {
	Name string
	// Fails names the cases that must find it, with spaces between them.
	Fails string
	// On makes the suite on what has the fault.
	On func() *Suite[E, A]
}

// Prove shows that each case of s can fail: it runs cases on what is broken on purpose. Each fault
// must fail the cases that it names, and each failure must tell the rule.
func (s *Suite[E, A]) Prove(t *testing.T, faults []Fault[E, A]) {
	t.Helper()
	for _, problem := range s.unproven(faults) {
		t.Error(problem)
	}
	for _, f := range faults {
		for name := range strings.FieldsSeq(f.Fails) {
			broken := f.On()
			c := broken.find(name)
			if c == nil {
				continue // unproven has said so
			}
			t.Run(f.Name+"/"+name, func(t *testing.T) {
				failures, ruledOut := broken.record(t, c)
				for _, problem := range c.missed(failures, ruledOut) {
					t.Error(problem)
				}
				t.Log(strings.Join(failures, "\n"))
			})
		}
	}
}

// unproven says which cases have no fault, and which faults have no case.
func (s *Suite[E, A]) unproven(faults []Fault[E, A]) (problems []string) {
	proven := map[string]bool{}
	for _, f := range faults {
		for name := range strings.FieldsSeq(f.Fails) {
			proven[name] = true
			if s.find(name) == nil {
				problems = append(problems, fmt.Sprintf("%s: fault %q names the case %q, which is none", s.Name, f.Name, name))
			}
		}
		if strings.TrimSpace(f.Fails) == "" {
			problems = append(problems, fmt.Sprintf("%s: fault %q names no case", s.Name, f.Name))
		}
	}
	for i := range s.Cases {
		if name := s.Cases[i].Name; !proven[name] {
			problems = append(problems, fmt.Sprintf("%s: no fault shows that case %q can fail", s.Name, name))
		}
	}
	return problems
}

// missed says what is wrong with how c found a fault.
func (c *Case[E, A]) missed(failures []string, ruledOut string) (problems []string) {
	switch {
	case ruledOut != "":
		return []string{"the case was ruled out: " + ruledOut}
	case len(failures) == 0:
		return []string{"the case passed"}
	}
	for _, f := range failures {
		if !strings.HasPrefix(f, "rule: "+c.Rule+"\n") || !strings.Contains(f, "\nseen: ") {
			problems = append(problems, "a failure does not tell the rule: "+f)
		}
	}
	return problems
}
