package suite

// Case is one rule and how it is checked. E is what the case works with. A is what it asks for
// beforehand, such as the options of its queue.
type Case[E, A any] struct {
	Name string
	// Rule is a sentence that stands before each failure.
	Rule string
	Asks A
	// Needs are the conditions without which the case has no meaning.
	Needs []Need[E]
	Run   func(E)
}

// Need is a condition of a case.
type Need[E any] struct {
	Met func(E) bool
	// Why says what is the case when it is not met.
	Why string
}
