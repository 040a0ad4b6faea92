package engine

import (
	"fmt"
	"runtime/debug"
)

// Guard turns a panic of a store, a broker or a function of the user into an error, because one
// job's panic must not take the other jobs with it.
func Guard[T any](call func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("onceq: panic in a call: %v\n%s", p, debug.Stack())
		}
	}()
	return call()
}
