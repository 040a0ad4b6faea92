package suite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// bag is what the cases of these tests work with.
type bag struct {
	*Env
	asked int
}

func need(met bool, why string) Need[*bag] {
	return Need[*bag]{Met: func(*bag) bool { return met }, Why: why}
}

func sample(cases ...Case[*bag, int]) *Suite[*bag, int] {
	return &Suite[*bag, int]{
		Name: "sampletest", Virtual: true, Cases: cases,
		Open: func(e *Env, n int) *bag { return &bag{e, n} },
	}
}

func one(run func(*bag)) *Suite[*bag, int] {
	return sample(Case[*bag, int]{Name: "a", Rule: "a holds", Asks: 7, Run: run})
}

// caught runs the first case, and returns what failed.
func caught(t *testing.T, s *Suite[*bag, int]) ([]string, string) {
	t.Helper()
	return s.record(t, &s.Cases[0])
}

func TestFailuresTellTheRule(t *testing.T) {
	cause := errors.New("cause")
	for name, c := range map[string]struct {
		run  func(*bag)
		want []string
	}{
		"nothing":  {func(*bag) {}, nil},
		"goes on":  {func(e *bag) { e.Errorf("%d", 1); e.Errorf("%d", 2) }, []string{"rule: a holds\nseen: 1", "rule: a holds\nseen: 2"}},
		"ends":     {func(e *bag) { e.Fatalf("%d%%", 1); e.Errorf("2") }, []string{"rule: a holds\nseen: 1%"}},
		"doing":    {func(e *bag) { e.Doing = "round 1"; e.Errorf("1") }, []string{"rule: a holds\nwhen: round 1\nseen: 1"}},
		"harness":  {func(e *bag) { e.Harnessf("Open gave %d", e.asked); e.Errorf("2") }, []string{"sampletest: Open gave 7"}},
		"ok":       {func(e *bag) { e.OK(nil, "Send"); e.OK(cause, "Ack"); e.Errorf("2") }, []string{"rule: a holds\nseen: Ack was answered: cause"}},
		"limits":   {func(e *bag) { e.SameLimits(1, 1); e.SameLimits(1, 2) }, []string{"rule: a holds\nseen: Limits were 1 and are 2"}},
		"no error": {func(e *bag) { e.Want("Send", nil, nil); e.Want("Ack", cause, nil) }, []string{"rule: a holds\nseen: Ack was answered cause, want <nil>"}},
		"an error": {
			func(e *bag) { e.Want("Send", fmt.Errorf("of %w", cause), cause); e.Want("Ack", nil, cause) },
			[]string{"rule: a holds\nseen: Ack was answered <nil>, want cause"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			failures, ruledOut := caught(t, one(c.run))
			if !slices.Equal(failures, c.want) || ruledOut != "" {
				t.Errorf("%q, ruled out %q; want %q", failures, ruledOut, c.want)
			}
		})
	}
}

// TestNeeds: a case of which a need is not met does not run.
func TestNeeds(t *testing.T) {
	s := one(func(e *bag) { e.Errorf("it ran") })
	s.Cases[0].Needs = []Need[*bag]{need(true, "1"), need(false, "2"), need(false, "3")}
	if failures, ruledOut := caught(t, s); len(failures) > 0 || ruledOut != "2" {
		t.Errorf("%q, ruled out %q; want 2", failures, ruledOut)
	}
}

// TestTime: a pause ends with its case's context, and a context of Ended has ended.
func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Env{TB: t}
		begun := time.Now()
		if !e.Pause(time.Hour) || time.Since(begun) != time.Hour || !e.Pause(-1) {
			t.Errorf("paused for %v", time.Since(begun))
		}
		if e.Ended().Err() == nil {
			t.Error("the context goes on")
		}
	})
}

func TestKnown(t *testing.T) {
	for _, c := range []struct {
		failures []string
		ruledOut string
		want     string
	}{
		{[]string{"failed"}, "", ""},
		{nil, "", "the known difference is gone; remove it from Harness.Known: reason"},
		{nil, "no limit", "the Harness names a case that is not applicable; remove it there: no limit"},
	} {
		if got := vain("reason", c.failures, c.ruledOut); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	s := one(func(e *bag) { e.Errorf("as known") })
	s.Known = map[string]string{"a": "reason"}
	s.Run(t)
}

// TestUnsteady: a case that may fail runs, and fails no test; one that is no case is named.
func TestUnsteady(t *testing.T) {
	ran := 0
	s := one(func(e *bag) {
		if ran++; ran == 1 {
			e.Fatalf("this time")
		}
	})
	s.Unsteady = map[string]string{"a": "reason"}
	for range 2 {
		s.Run(t)
	}
	if ran != 2 || len(s.misnamed()) > 0 {
		t.Errorf("ran %d times, %q are no cases", ran, s.misnamed())
	}
	s.Unsteady["b"] = "reason"
	if got := s.misnamed(); !slices.Equal(got, []string{`Harness.Unsteady names "b"`}) {
		t.Errorf("%q", got)
	}
}

func TestPin(t *testing.T) {
	run := func(*bag) {}
	a, b := Case[*bag, int]{Name: "a", Rule: "a holds", Run: run}, Case[*bag, int]{Name: "b", Rule: "b holds", Run: run}
	page := filepath.Join(t.TempDir(), "page.md")
	for name, c := range map[string]struct {
		cases []Case[*bag, int]
		line  string
		want  string
	}{
		"right":      {[]Case[*bag, int]{a, b}, "| `x/sampletest` | 2 cases |", ""},
		"lost":       {[]Case[*bag, int]{a}, "| `x/sampletest` | 1 cases |", "sampletest: 1 cases, and there were 2: a case was lost"},
		"more":       {[]Case[*bag, int]{a, b, {Name: "c", Rule: "c holds", Run: run}}, "`x/sampletest` 3 cases", "sampletest: 3 cases, and 2 are pinned: raise the number"},
		"twice":      {[]Case[*bag, int]{a, a}, "| `x/sampletest` | 2 cases |", `sampletest: case "a" is there twice`},
		"no rule":    {[]Case[*bag, int]{a, {Name: "b", Run: run}}, "| `x/sampletest` | 2 cases |", `sampletest: case 1, "b", is not complete`},
		"no run":     {[]Case[*bag, int]{a, {Name: "b", Rule: "b holds"}}, "| `x/sampletest` | 2 cases |", `sampletest: case 1, "b", is not complete`},
		"other page": {[]Case[*bag, int]{a, b}, "| `x/sampletest` | 12 cases |\n| `x/other` | 2 cases |", page + ": no line says 2 cases of `…/sampletest`"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(page, []byte("# page\n"+c.line+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			r := &recorder{TB: t}
			sample(c.cases...).Pin(r, 2, page)
			if got := strings.Join(r.all(), "\n"); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestProve(t *testing.T) {
	s := one(func(*bag) {})
	broken := one(func(e *bag) { e.Errorf("broken") })
	on := func() *Suite[*bag, int] { return broken }
	s.Prove(t, []Fault[*bag, int]{{Name: "broken", Fails: "a", On: on}})
	for want, faults := range map[string][]Fault[*bag, int]{
		`sampletest: no fault shows that case "a" can fail`: nil,
		`sampletest: fault "b" names the case "c", which is none`: {
			{Name: "broken", Fails: "a", On: on}, {Name: "b", Fails: "a c", On: on},
		},
		`sampletest: fault "b" names no case`: {{Name: "broken", Fails: "a", On: on}, {Name: "b", On: on}},
	} {
		if got := s.unproven(faults); !slices.Equal(got, []string{want}) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	c := &s.Cases[0]
	for _, m := range []struct {
		failures []string
		ruledOut string
		want     []string
	}{
		{[]string{"rule: a holds\nseen: 1", "rule: a holds\nwhen: 2\nseen: 3"}, "", nil},
		{nil, "", []string{"the case passed"}},
		{nil, "no limit", []string{"the case was ruled out: no limit"}},
		{[]string{"rule: a holds\nseen: 1", "sampletest: 2"}, "", []string{"a failure does not tell the rule: sampletest: 2"}},
		{[]string{"rule: b holds\nseen: 1"}, "", []string{"a failure does not tell the rule: rule: b holds\nseen: 1"}},
		{[]string{"rule: a holds\n"}, "", []string{"a failure does not tell the rule: rule: a holds\n"}},
	} {
		if got := c.missed(m.failures, m.ruledOut); !slices.Equal(got, m.want) {
			t.Errorf("%q, want %q", got, m.want)
		}
	}
}

func TestSummary(t *testing.T) {
	var s summary
	s.add("a", "")
	if got := s.String(); got != "1 run, none ruled out" {
		t.Error(got)
	}
	s.add("z", "Queue.Close is nil")
	s.add("groups-in-order", "Limits.OrderedGroups is false")
	const want = "1 run, 2 ruled out (groups-in-order: Limits.OrderedGroups is false; z: Queue.Close is nil)"
	if got := s.String(); got != want {
		t.Error(got)
	}
}
