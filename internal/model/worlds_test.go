package model

import (
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

var (
	reruns = [workers]dedupe.Policy{dedupe.Rerun, dedupe.Rerun}
	parks  = [workers]dedupe.Policy{dedupe.Park, dedupe.Park}
)

// worlds are what the whole protocol is explored in.
var worlds = []struct {
	name string
	c    Config
}{
	{"transactions", Config{Tx: true, Policies: reruns, Drains: true, Redrive: true}},
	{"external effects, rerun", Config{External: true, Policies: reruns, Drains: true, Redrive: true}},
	{"external effects, park", Config{External: true, Policies: parks, Drains: true, Redrive: true}},
	{"both effects, park", Config{Tx: true, External: true, Policies: parks}},
	{"external effects, one worker parks", Config{External: true, Policies: mixed}},
	{"calm", Config{External: true, Policies: reruns, Calm: true, Drains: true}},
	{"calm transactions", Config{Tx: true, Policies: reruns, Calm: true, Drains: true}},
	{"calm, nobody fails", Config{External: true, Policies: reruns, Calm: true, Drains: true, HandlersSucceed: true, MaxAttempts: 1}},
	{"late packets, transactions", Config{Tx: true, Policies: reruns, LatePackets: true, Drains: true, MaxAttempts: 1, Items: 2}},
	{"late packets, rerun", Config{External: true, Policies: reruns, LatePackets: true, MaxAttempts: 1, Items: 2}},
	{"late packets, park", Config{External: true, Policies: parks, LatePackets: true, Once: true, MaxAttempts: 1, Items: 2}},
	{"forget, transactions", Config{Tx: true, Policies: reruns, Forgets: true, Redrive: true}},
	{"forget, park", Config{External: true, Policies: parks, Forgets: true}},
	{"retention", Config{External: true, Policies: parks, Retention: true, Once: true, MaxAttempts: 1, Items: 2}},
	{"calm retention, nobody fails", Config{External: true, Policies: reruns, Calm: true, Retention: true, HandlersSucceed: true, MaxAttempts: 1, Items: 2}},
	{"kept, transactions", Config{Tx: true, Policies: reruns, HoldsBack: true, Redrive: true, Drains: true}},
	{"kept, rerun", Config{External: true, Policies: reruns, HoldsBack: true, Redrive: true, Drains: true}},
	{"kept, park", Config{External: true, Policies: parks, HoldsBack: true, Redrive: true, Drains: true}},
	{"kept, late packets", Config{External: true, Policies: parks, HoldsBack: true, LatePackets: true, Once: true, MaxAttempts: 1, Items: 2}},
	{"steps", Config{Steps: true, Policies: reruns, Drains: true, Redrive: true, MaxAttempts: 1, Items: 2}},
	{"steps, park", Config{Steps: true, Policies: parks, Drains: true, MaxAttempts: 1, Items: 2}},
	{"steps, kept", Config{Steps: true, Policies: reruns, HoldsBack: true, Drains: true}},
	{"steps, forget", Config{Steps: true, Policies: reruns, Forgets: true, MaxAttempts: 1, Items: 2}},
	{"steps, late packets", Config{Steps: true, Policies: reruns, LatePackets: true, Once: true, MaxAttempts: 1, Items: 1}},
	{"steps, payloads", Config{Steps: true, Policies: reruns, Payloads: true, MaxAttempts: 1, Items: 2}},
	{"calm steps, nobody fails", Config{Steps: true, Policies: reruns, Calm: true, Drains: true, HandlersSucceed: true, MaxAttempts: 1}},
	{"carried, transactions", Config{Tx: true, Policies: reruns, Carries: true, Redrive: true, MaxAttempts: 1, Items: 2}},
	{"carried, park", Config{External: true, Policies: parks, Carries: true, Drains: true, MaxAttempts: 1, Items: 2}},
	{"carried, late packets", Config{Tx: true, Policies: reruns, Carries: true, LatePackets: true, Once: true, MaxAttempts: 1, Items: 1}},
	{"carried steps", Config{Steps: true, Policies: reruns, Carries: true, MaxAttempts: 1, Items: 2}},
	{"carried steps, park", Config{Steps: true, Policies: parks, Carries: true, Once: true, MaxAttempts: 1, Items: 1}},
	{"cancelled, transactions", Config{Tx: true, Policies: reruns, Cancels: true, MaxAttempts: 1, Items: 2}},
	{"cancelled, park", Config{External: true, Policies: parks, Cancels: true, MaxAttempts: 1, Items: 2}},
	{"cancelled, kept", Config{Tx: true, Policies: reruns, Cancels: true, HoldsBack: true, Redrive: true, Drains: true, Once: true, MaxAttempts: 1, Items: 2}},
	{"cancelled, late packets", Config{Tx: true, Policies: reruns, Cancels: true, LatePackets: true, Once: true, MaxAttempts: 1, Items: 1}},
	{"cancelled steps", Config{Steps: true, Policies: reruns, Cancels: true, Once: true, MaxAttempts: 1, Items: 1}},
	{"limits, transactions", Config{Tx: true, Policies: reruns, Limits: true, Drains: true, Redrive: true, MaxAttempts: 1, Items: 2}},
	{"limits, park", Config{External: true, Policies: parks, Limits: true, Drains: true, MaxAttempts: 1, Items: 2}},
	{"limits, carried", Config{Tx: true, Policies: reruns, Limits: true, Carries: true, MaxAttempts: 1, Items: 2}},
	{"calm limits, park, nobody fails", Config{External: true, Policies: parks, Calm: true, Limits: true, Drains: true, HandlersSucceed: true, MaxAttempts: 1}},
	{"calm limits, nobody fails", Config{External: true, Policies: reruns, Calm: true, Limits: true, Drains: true, HandlersSucceed: true, MaxAttempts: 1}},
	{"payloads", Config{Tx: true, Policies: reruns, Payloads: true, MaxAttempts: 1, Items: 2}},
}

// sized gives a world the bounds that it does not name itself.
func (c Config) sized() Config {
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 2
	}
	if c.Items == 0 {
		c.Items = 3
	}
	return c
}

// small is a world that can be explored under the race detector, and in a second.
func (c Config) small() Config {
	c.Once, c.MaxAttempts, c.Items = !c.Payloads, 1, 1
	return c
}

func explore(t *testing.T, c Config) Report {
	t.Helper()
	began := time.Now()
	r, err := Explore(c.sized())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, %d steps, %d pruned, %v", r.States, r.Steps, r.Pruned, time.Since(began).Round(time.Millisecond))
	return r
}

func TestEverythingHolds(t *testing.T) {
	met, ran := NewCoverage(), 0
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			if testing.Short() && w.name == "retention" {
				t.Skip("-short: the largest search")
			}
			ran++
			if raced || testing.Short() {
				w.c = w.c.small()
			}
			w.c.Coverage = met
			if r := explore(t, w.c); r.Found {
				t.Errorf("broken: %v\n%s", r.Broken, strings.Join(r.Trace, "\n"))
			}
		})
	}
	if ran == len(worlds) {
		checkRows(t, met)
	}
}

// unmet are the rows that no call of the protocol meets; they guard the store against other
// callers.
var unmet = map[string]string{
	"SettleTable: joined, not committed": "a worker whose claim was joined never asks for done",
	"SettleTable: no record":             "a worker whose record is gone has a token that is nobody's",
}

// checkRows tells which rows of the tables decided nothing: what is not met is not explored.
func checkRows(t *testing.T, met *Coverage) {
	t.Helper()
	check := func(table, row string, n int) {
		if guard := unmet[table+": "+row] != ""; guard == (n > 0) {
			t.Errorf("%s: row %q decided %d times", table, row, n)
		}
	}
	for i, row := range machine.ClaimTable() {
		check("ClaimTable", row.Name, met.Claim[i])
	}
	for i, row := range machine.RenewTable() {
		check("RenewTable", row.Name, met.Renew[i])
	}
	for i, row := range machine.SettleTable() {
		check("SettleTable", row.Name, met.Settle[i])
	}
}
