package dedupetest

// cases are all rules, in the order in which they are run.
func cases() []testCase {
	return append(rowCases(), testCase{
		name: "random-walk",
		rule: "any sequence of calls gives the answers and records that the tables give",
		run:  func(e *env) { e.walks(e) },
	})
}
