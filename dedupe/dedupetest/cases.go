package dedupetest

import "fmt"

// maxTestResult is the largest result that the suite stores.
const maxTestResult = 16 << 20

// What some cases need.
var (
	second      = need{func(e *env) bool { return e.subject.Second != nil }, "Subject.Second is nil"}
	transacts   = need{func(e *env) bool { return e.subject.Begin != nil }, "Subject.Begin is nil"}
	hasClose    = need{func(e *env) bool { return e.subject.Close != nil }, "Subject.Close is nil"}
	batches     = need{func(e *env) bool { return e.l.MaxBatch >= 4 }, "Limits.MaxBatch is below 4"}
	smallResult = need{func(e *env) bool { return e.l.MaxResult <= maxTestResult }, fmt.Sprintf("Limits.MaxResult is over %d", maxTestResult)}
)

// cases are all rules, in the order in which they are run.
func cases() []testCase {
	var all []testCase
	for _, some := range [][]testCase{
		rowCases(), walkCases(), invariantCases(), leaseCases(), outcomeCases(), resultCases(), keyCases(), batchCases(),
		listCases(), sweepCases(), callCases(), txCases(),
	} {
		all = append(all, some...)
	}
	return all
}

func walkCases() []testCase {
	return []testCase{
		{
			name: "random-walk",
			rule: "any sequence of calls gives the answers and records that the tables give",
			run:  func(e *env) { e.walks(e) },
		},
		{
			name:  "random-walk-on-two-handles",
			rule:  "any sequence of calls from two processes gives the answers and records that the tables give",
			needs: []need{second},
			run:   func(e *env) { e.walks(e, e.on(e.subject.Second(e))) },
		},
	}
}
