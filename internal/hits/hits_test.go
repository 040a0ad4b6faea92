package hits_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/internal/hits"
)

type fault struct {
	name string
	when hits.When
}

// picks plays ten calls and writes down which fault hit each, "." for none.
func picks(t *hits.Table[fault]) (s string) {
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
		{[]fault{{"a", hits.When{}}, {"b", hits.When{}}}, "aaaaaaaaaa"},
		{[]fault{{"a", hits.When{Skip: 2, Count: 3}}, {"b", hits.When{Count: 1}}}, "b.aaa....."},
		{[]fault{{"a", hits.When{Skip: 1, Rate: 1}}}, ".aaaaaaaaa"},
		{[]fault{{"a", hits.When{Rate: 0.5}}}, ".a.a.a.a.a"},
	} {
		var table hits.Table[fault]
		for range 2 { // counting begins anew
			table.Rand = rand.New(rand.NewPCG(1, 2))
			table.Set(c.faults, func(f *fault) hits.When { return f.when })
			if got := picks(&table); got != c.want {
				t.Errorf("%+v: %s, want %s", c.faults, got, c.want)
			}
		}
	}
}

func TestOnlyWhatFitsIsCounted(t *testing.T) {
	var table hits.Table[fault]
	table.Set([]fault{{"a", hits.When{Skip: 1}}}, func(f *fault) hits.When { return f.when })
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
		var table hits.Table[fault]
		table.Set([]fault{{"a", hits.When{For: time.Second}}}, func(f *fault) hits.When { return f.when })
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
		if !hits.Pause(ended, 0, closing) || hits.Pause(ended, time.Hour, closing) {
			t.Error("a wait of nothing counts as over, one whose caller gave up does not")
		}
		if !hits.Pause(t.Context(), time.Minute, closing) || time.Since(began) != time.Minute {
			t.Errorf("it waited for %v", time.Since(began))
		}
		close(closing)
		if !hits.Pause(t.Context(), time.Hour, closing) || time.Since(began) != time.Minute {
			t.Error("a server that closes does not end the wait")
		}
	})
}
