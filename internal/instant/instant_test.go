package instant_test

import (
	"testing"

	"github.com/onceq/onceq/internal/instant"
)

type mark = instant.Mark

type thing struct{ mark }

func newThing() *thing {
	t := new(thing)
	t.mark = instant.Of(t)
	return t
}

// What hangs in a wrapper hangs, however quick the thing within is.
func TestOnlyTheThingItself(t *testing.T) {
	marked := newThing()
	copied := *marked
	for name, c := range map[string]struct {
		v    any
		want bool
	}{
		"the thing":       {marked, true},
		"embedded":        {struct{ *thing }{marked}, false},
		"a pointer to it": {&struct{ *thing }{marked}, false},
		"a copy":          {&copied, false},
		"not there yet":   {&struct{ *thing }{}, false},
		"never marked":    {new(thing), false},
		"something else":  {t, false},
		"nothing":         {nil, false},
	} {
		if got := instant.Is(c.v); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
