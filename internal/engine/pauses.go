package engine

// Pauses are the reasons for which a flow is paused. Each begins and ends by itself: who resumes
// one does not end the others.
type Pauses uint8

// The reasons.
const (
	ByHand    Pauses = 1 << iota // the program's own word
	ByRules                      // an operator's, for many processes
	ByEnd                        // a batch has too little time left for what has not begun
	ByOutage                     // the store does not answer, and somebody waits
	ByBreaker                    // what the jobs need is away, as a breaker of the program has found
)
