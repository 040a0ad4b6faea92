package dedupetest

import (
	"fmt"

	"github.com/onceq/onceq/internal/suite"
)

// maxTestResult is the largest result that the suite stores.
const maxTestResult = 16 << 20

type (
	testCase = suite.Case[*env, struct{}]
	need     = suite.Need[*env]
)

// What some cases need.
var (
	second      = need{Met: func(e *env) bool { return e.subject.Second != nil }, Why: "Subject.Second is nil"}
	transacts   = need{Met: func(e *env) bool { return e.subject.Begin != nil }, Why: "Subject.Begin is nil"}
	hasClose    = need{Met: func(e *env) bool { return e.subject.Close != nil }, Why: "Subject.Close is nil"}
	batches     = need{Met: func(e *env) bool { return e.l.MaxBatch >= 4 }, Why: "Limits.MaxBatch is below 4"}
	smallResult = need{Met: func(e *env) bool { return e.l.MaxResult <= maxTestResult }, Why: fmt.Sprintf("Limits.MaxResult is over %d", maxTestResult)}
)

// cases are all rules, in the order in which they are run.
func cases() []testCase {
	var all []testCase
	for _, some := range [][]testCase{
		rowCases(), walkCases(), invariantCases(), leaseCases(), outcomeCases(), resultCases(), keyCases(), batchCases(),
		pastCases(), listCases(), countCases(), sweepCases(), callCases(), txCases(),
	} {
		all = append(all, some...)
	}
	return all
}

func walkCases() []testCase {
	return []testCase{
		{
			Name: "random-walk",
			Rule: "any sequence of calls gives the answers and records that the tables give",
			Run:  func(e *env) { e.walkRandomly(e) },
		},
		{
			Name:  "random-walk-on-two-handles",
			Rule:  "any sequence of calls from two processes gives the answers and records that the tables give",
			Needs: []need{second},
			Run:   func(e *env) { e.walkRandomly(e, e.on(e.subject.Second(e.TB))) },
		},
	}
}
