package fakeserver_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/internal/fakeserver"
)

type fault struct {
	name string
	when fakeserver.When
}

// picks plays ten calls and writes down which fault hit each, "." for none.
func picks(t *fakeserver.Table[fault]) (s string) {
	for range 10 {
		if f := t.Pick(func(*fault) bool { return true }); f != nil {
			s += f.name
		} else {
			s += "."
		}
	}
	return s
}

func TestPick(t *testing.T) {
	for _, c := range []struct {
		faults []fault
		want   string
	}{
		{nil, ".........."},
		{[]fault{{"a", fakeserver.When{}}, {"b", fakeserver.When{}}}, "aaaaaaaaaa"},
		{[]fault{{"a", fakeserver.When{Skip: 2, Count: 3}}, {"b", fakeserver.When{Count: 1}}}, "b.aaa....."},
		{[]fault{{"a", fakeserver.When{Skip: 1, Rate: 1}}}, ".aaaaaaaaa"},
		{[]fault{{"a", fakeserver.When{Rate: 0.5}}}, ".a.a.a.a.a"},
	} {
		var table fakeserver.Table[fault]
		for range 2 { // counting begins anew
			table.Rand = rand.New(rand.NewPCG(1, 2))
			table.Set(c.faults, func(f *fault) fakeserver.When { return f.when })
			if got := picks(&table); got != c.want {
				t.Errorf("%+v: %s, want %s", c.faults, got, c.want)
			}
		}
	}
}

func TestOnlyWhatFitsIsCounted(t *testing.T) {
	var table fakeserver.Table[fault]
	table.Set([]fault{{"a", fakeserver.When{Skip: 1}}}, func(f *fault) fakeserver.When { return f.when })
	for range 5 {
		if table.Pick(func(*fault) bool { return false }) != nil {
			t.Fatal("a fault hit a call that it does not fit")
		}
	}
	if got := picks(&table); got != ".aaaaaaaaa" {
		t.Errorf("got %s", got)
	}
}

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table fakeserver.Table[fault]
		table.Set([]fault{{"a", fakeserver.When{For: time.Second}}}, func(f *fault) fakeserver.When { return f.when })
		if got := picks(&table); got != "aaaaaaaaaa" {
			t.Errorf("at first: %s", got)
		}
		<-time.After(time.Second)
		if got := picks(&table); got != ".........." {
			t.Errorf("after a second: %s", got)
		}
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		closing := make(chan struct{})
		if !fakeserver.Pause(ended, 0, closing) || fakeserver.Pause(ended, time.Hour, closing) {
			t.Error("a wait of nothing counts as over, one whose caller gave up does not")
		}
		if !fakeserver.Pause(t.Context(), time.Minute, closing) || time.Since(began) != time.Minute {
			t.Errorf("it waited for %v", time.Since(began))
		}
		close(closing)
		if !fakeserver.Pause(t.Context(), time.Hour, closing) || time.Since(began) != time.Minute {
			t.Error("a server that closes does not end the wait")
		}
	})
}
