package dedupetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

// rowCases makes one case of each row of the tables: all situations that the row decides.
func rowCases() []testCase {
	met := meetings()
	var all []testCase
	add := func(table, row, rule string) {
		all = append(all, testCase{Name: caseName(table, row), Rule: rule, Run: func(e *env) { e.playAll(met()[table+row]) }})
	}
	for _, r := range machine.ClaimTable() {
		add("claim", r.Name, fmt.Sprintf("a claim that meets %q is answered %v; the record is %s", r.Name, r.Outcome, effect(r.Change)))
	}
	for _, r := range machine.RenewTable() {
		add("renew", r.Name, fmt.Sprintf("a renewal that meets %q is answered %s; the record is %s", r.Name, answer(r.Err), effect(r.Change)))
	}
	for _, r := range machine.SettleTable() {
		what := answer(r.Err)
		if r.AnswersHere {
			what = "the present status"
		}
		add("settle", r.Name, fmt.Sprintf("a settlement that meets %q is answered %s; the record is %s", r.Name, what, effect(r.Change)))
	}
	return all
}

// caseName is the name of a row's case.
func caseName(table, row string) string {
	return table + "-" + strings.NewReplacer(" ", "-", ",", "").Replace(row)
}

func answer(err error) string {
	if err == nil {
		return "success"
	}
	return err.Error()
}

func effect(c machine.Change) string {
	switch c {
	case machine.Prolong:
		return "the same claim, its lease prolonged and never shortened"
	case machine.TakeFresh:
		return "new, with a higher fence and attempt 1"
	case machine.TakeNext:
		return "claimed with a higher fence and one attempt more"
	case machine.TakeReopen:
		return "claimed with a higher fence, attempt 1, and the claim's fingerprint"
	case machine.ParkIt:
		return "parked"
	case machine.Write:
		return "settled"
	case machine.Note:
		return "parked still, and keeps the error"
	case machine.Keep:
	}
	return "not changed"
}

// meetings sorts the situations by table and row. It plays each on a model alone.
func meetings() func() map[string][]situation {
	return sync.OnceValue(func() map[string][]situation {
		met := make(map[string][]situation)
		for _, s := range situations() {
			w := &watcher{model: newModel()}
			s.play(w, key("k"))
			met[w.row] = append(met[w.row], s)
		}
		return met
	})
}

// watcher is a model that notes which row decided the last call.
type watcher struct {
	*model
	row string
}

func (w *watcher) claim(q dedupe.ClaimRequest) dedupe.Claim {
	s := machine.Meet(w.at(q.Key), &q, time.Now())
	for _, r := range machine.ClaimTable() {
		if r.Matches(s) {
			w.row = "claim" + r.Name
			break
		}
	}
	return w.model.claim(q)
}

func (w *watcher) renew(n dedupe.Renewal) error {
	s := w.situation(n.Key, n.Token)
	for _, r := range machine.RenewTable() {
		if r.Matches(s) {
			w.row = "renew" + r.Name
			break
		}
	}
	return w.model.renew(n)
}

func (w *watcher) settle(t dedupe.Settlement) dedupe.Settled {
	s := w.situation(t.Key, t.Token)
	s.Unparks = t.Unparks
	for _, r := range machine.SettleTable() {
		if r.Matches(s, t.To, t.Joined) {
			w.row = "settle" + r.Name
			break
		}
	}
	return w.model.settle(t)
}

// situation is what a call with t finds. The records that have expired count as absent here; the
// stores may answer for them or not.
func (w *watcher) situation(k dedupe.Key, t dedupe.Token) machine.Situation {
	r := w.at(k)
	return machine.Situation{At: machine.Meet(r, &dedupe.ClaimRequest{}, time.Now()).At, Own: r.Token == t}
}

// playAll plays situations, each on a key of its own.
func (e *env) playAll(ss []situation) {
	e.Helper()
	if len(ss) == 0 {
		e.Fatalf("no situation of this suite reaches the row; an earlier row hides it, or the suite must learn of it")
	}
	for i := range ss {
		e.Doing = ss[i].String()
		ss[i].play(e, key(fmt.Sprintf("k%d", i)))
		if e.Failed() {
			return
		}
	}
}
