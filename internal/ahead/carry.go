package ahead

import "context"

// Carrying is the context of a call that sends a message anew. It tells the copy from a new job
// for those who count what is sent.
var Carrying = context.WithValue(context.Background(), carryKey{}, true)

type carryKey struct{}

// Carries reports whether a call with this context sends messages anew.
func Carries(ctx context.Context) bool { return ctx.Value(carryKey{}) != nil }
