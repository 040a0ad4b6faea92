package machine_test

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

// The whole of the claim: what is found, under which conditions, and what is answered and done. The
// first row that matches decides.
func Example_claimTable() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	line := func(cells ...string) {
		fmt.Fprintln(w, strings.TrimSpace(strings.Join(cells, "\t")))
	}
	line("RULE", "FOUND", "IF", "ANSWER", "RECORD")
	for _, r := range machine.ClaimTable() {
		var conds []string
		for _, c := range []struct {
			name string
			cond machine.Cond
		}{{"own token", r.Own}, {"payload differs", r.Differs}, {"interrupted", r.Interrupted}, {"reopens", r.Reopens}} {
			switch c.cond {
			case machine.Yes:
				conds = append(conds, c.name)
			case machine.No:
				conds = append(conds, "not "+c.name)
			}
		}
		if conds == nil {
			conds = []string{"-"}
		}
		line(r.Name, found(r.At), strings.Join(conds, ", "), r.Outcome.String(), effects[r.Change])
	}
	w.Flush()

	// Output:
	// RULE                   FOUND           IF               ANSWER          RECORD
	// no record              none            -                won             new, attempt 1
	// reopened               failed, parked  reopens          won             claimed, attempt 1
	// another payload        any             payload differs  mismatch        kept
	// own claim again        live, dead      own token        won             lease prolonged
	// live claim of another  live            -                in-progress     kept
	// interrupted            dead            interrupted      parked          parked
	// dead claim of another  dead            -                won             claimed, attempt + 1
	// late packet            released        own token        stale           kept
	// released               released        -                won             claimed, attempt + 1
	// done                   done            -                already-done    kept
	// failed                 failed          -                already-failed  kept
	// parked                 parked          -                parked          kept
}

var effects = map[machine.Change]string{
	machine.Keep:       "kept",
	machine.Prolong:    "lease prolonged",
	machine.TakeFresh:  "new, attempt 1",
	machine.TakeNext:   "claimed, attempt + 1",
	machine.TakeReopen: "claimed, attempt 1",
	machine.ParkIt:     "parked",
}

// found tells a set in words.
func found(at machine.At) string {
	if at == machine.AtAny {
		return "any"
	}
	var names []string
	for _, c := range []struct {
		at   machine.At
		name string
	}{
		{machine.AtNone, "none"},
		{machine.AtReleased, "released"},
		{machine.AtLive, "live"},
		{machine.AtDead, "dead"},
		{machine.AtDone, "done"},
		{machine.AtFailed, "failed"},
		{machine.AtParked, "parked"},
	} {
		if at&c.at != 0 {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ", ")
}

// A duplicate of a job that is done is answered with its result, and runs nothing.
func ExampleApplyClaim() {
	now, lease := time.Now(), time.Minute
	var fence uint64
	next := func() uint64 { fence++; return fence }
	key := dedupe.Key{Scope: "orders", Key: "order-7"}

	var r dedupe.Record // what the store holds under the key: nothing
	c, _ := machine.ApplyClaim(&r, &dedupe.ClaimRequest{Key: key, Token: dedupe.Token{1}, TTL: lease}, now, next)
	fmt.Println(c.Outcome, c.Lease.Fence)

	c, _ = machine.ApplyClaim(&r, &dedupe.ClaimRequest{Key: key, Token: dedupe.Token{2}, TTL: lease}, now, next)
	fmt.Println(c.Outcome, c.Left)

	machine.ApplySettle(&r, &dedupe.Settlement{Key: key, Token: dedupe.Token{1}, To: dedupe.Done, Result: []byte("paid")}, now)
	c, _ = machine.ApplyClaim(&r, &dedupe.ClaimRequest{Key: key, Token: dedupe.Token{2}, TTL: lease}, now, next)
	fmt.Printf("%v %s\n", c.Outcome, c.Record.Result)

	// Output:
	// won 1
	// in-progress 1m0s
	// already-done paid
}
