// Package gocloudtest is what the tests of both directions of gocloud play in.
package gocloudtest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/onceq/onceq/internal/testserver"
)

// Main runs a package's tests, and lets more of them wait at a time than there are processors: in
// real time they wait for timeouts.
func Main(m *testing.M) {
	if err := testserver.Together(256); err != nil {
		panic(err)
	}
	m.Run()
}

// Bubble plays f in virtual time. A subscription of gocloud may leave a goroutine of its own
// behind, which waits for ever to tell a Receive. No other may be left.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	ended := false
	defer func() {
		what := recover()
		if what == nil {
			return
		}
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for one := range strings.SplitSeq(string(stacks), "\n\n") {
			ours := strings.Contains(one, ", synctest bubble") && strings.Contains(one, "onceq/onceq/")
			if ours || !ended || !strings.HasPrefix(fmt.Sprint(what), "deadlock: main bubble goroutine has exited") {
				panic(fmt.Sprint(what, "\n", one))
			}
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		f(t)
		ended = true
	})
}
