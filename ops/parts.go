package ops

import (
	"context"
	"fmt"
	"time"
)

// This file owns the names of what an overview asks, and how a call is named that does not end.

// A part of a QueueState is asked for by itself.
type part int

const (
	partDepth part = iota
	partLetters
	partWorkers
	partRules
	allParts
)

// errDeaf: a call goes on although it was told to end, so the same is not asked again.
var errDeaf = fmt.Errorf("ops: it has not answered, and a call to it does not end: %w", context.DeadlineExceeded)

// deafAfter is how long a call may go on after it was told to end.
const deafAfter = time.Second
