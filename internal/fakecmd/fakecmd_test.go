package fakecmd_test

import (
	"errors"
	"flag"
	"io"
	"testing"

	"github.com/onceq/onceq/internal/fakecmd"
)

// A server in a container listens on all addresses, none of which is one to call.
func TestReachable(t *testing.T) {
	for listening, want := range map[string]string{
		"[::]:9324": "localhost:9324", "0.0.0.0:9324": "localhost:9324", "127.0.0.1:9324": "127.0.0.1:9324", "[::1]:9324": "[::1]:9324",
	} {
		if got := fakecmd.Reachable(listening); got != want {
			t.Errorf("%s: %s, want %s", listening, got, want)
		}
	}
}

// A name may be given many times, and nothing without a flag.
func TestFlags(t *testing.T) {
	read := func(args ...string) (string, error) {
		var names fakecmd.Names
		flags := fakecmd.Flags("fake", io.Discard)
		flags.Var(&names, "queue", "the name of a queue")
		err := fakecmd.Parse(flags, args, "a queue is named with -queue")
		return names.String(), err
	}
	if got, err := read("-queue", "a", "-queue", "b"); got != "a,b" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := read("-queue", "a", "b"); err == nil || err.Error() != `unexpected argument "b": a queue is named with -queue` {
		t.Error(err)
	}
	if _, err := read("-h"); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}
