package webonceq

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns what a plan is, and which letters it is of. plans.mu guards the map and the second
// half of every plan in it.

// A chosen is which letters a screen is about, and a plan is made of.
type chosen struct {
	Group, Class, Type, Source string
	Since                      time.Time
}

// filter is it as package dlq wants it.
func (c *chosen) filter() dlq.Filter {
	return dlq.Filter{Group: c.Group, Class: c.Class, Type: c.Type, Source: c.Source, Since: c.Since}
}

// All reports whether every letter is meant.
func (c chosen) All() bool { return c == chosen{} }

func (c chosen) String() string {
	var parts []string
	for _, f := range []struct{ name, value string }{{"group", c.Group}, {"class", c.Class}, {"type", c.Type}, {"source", c.Source}} {
		if f.value != "" {
			parts = append(parts, f.name+" "+f.value)
		}
	}
	if !c.Since.IsZero() {
		parts = append(parts, "since "+clock(c.Since)+" UTC")
	}
	return cmp.Or(strings.Join(parts, ", "), "all letters")
}

// IsRough reports whether count is a bound: a pass counts a group's letters by one part of a filter
// at a time, and by five minutes.
func (c chosen) IsRough() bool {
	parts := 0
	for _, set := range []bool{c.Type != "", c.Source != "", !c.Since.IsZero()} {
		if set {
			parts++
		}
	}
	return parts > 1 || !c.Since.IsZero()
}

// count is how many failures of a group are chosen; at most, where IsRough.
func (c *chosen) count(g *ops.LetterGroup) int {
	n := g.Count
	switch {
	case c.Group != "" && c.Group != g.Group.Group, c.Class != "" && c.Class != g.Class:
		return 0
	}
	if c.Type != "" {
		n = min(n, g.Types[c.Type])
	}
	if c.Source != "" {
		n = min(n, g.Sources[c.Source])
	}
	if !c.Since.IsZero() {
		since := 0
		for _, b := range g.Bars {
			if !b.At.Add(5 * time.Minute).Before(c.Since) {
				since += b.N
			}
		}
		n = min(n, since)
	}
	return n
}

// A plan is a frozen set of letters. Its fields up to note never change.
type plan struct {
	id, kind, by, queue string
	chosen              chosen
	of                  *ops.Failure // of one key alone
	patch, body, note   string
	asked               time.Time

	made   bool // all below is there
	replay *ops.ReplayPlan
	purge  *dlq.Plan
	err    error
	edits  []edit
	act    string // the act that it became
	using  bool   // the act begins
}

func (x *plan) state() string { return fmt.Sprint(x.made, x.act) }

func (x *plan) frozen() *dlq.Plan {
	if x.replay != nil {
		return x.replay.Plan
	}
	return x.purge
}

// An edit is what a patch makes of a letter that the last pass has kept.
type edit struct {
	Key, Err string
	Lines    []line
}

type plans struct {
	mu     sync.Mutex
	m      map[string]*plan
	making int
}
