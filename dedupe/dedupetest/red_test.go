package dedupetest

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/suite"
)

// faults are stores that break one rule, each with the cases that must notice.
func faults() map[string]string {
	m := map[string]string{
		"live claim taken over":          "i1-one-winner i1-one-winner-on-two-handles",
		"fence does not rise":            "i2-fence-rises",
		"fence forgotten":                "i2-fence-rises",
		"dead lease wins for all":        "i1-one-takeover",
		"settled again":                  "i3-done-never-changes settle-again",
		"any fence reopens":              "i3-failed-and-parked-change-by-their-fence reopen-once",
		"stale renewal accepted":         "i4-stale-token-changes-nothing random-walk",
		"stale settlement accepted":      "i4-stale-token-changes-nothing",
		"own token not recognised":       "i8-lost-reply",
		"freshness lost on a repeat":     "i8-lost-reply",
		"keys joined":                    "i9-keys-never-meet",
		"keys folded":                    "i9-keys-never-meet",
		"keys trimmed":                   "keys-are-any-text",
		"renew shortens":                 "renew-never-shortens",
		"dead lease not renewed":         "renew-a-dead-lease",
		"empty state ignored":            "started-and-state",
		"late state accepted":            "state-order",
		"only the record parks":          "park-by-record-or-claimer",
		"left counts from the claim":     "left-and-age",
		"term counts from the claim":     "left-and-age",
		"second clock late":              "clock-of-the-second-handle",
		"late packet wins":               "late-packet random-walk-on-two-handles",
		"late release released":          "late-release-stays-parked",
		"late release says nothing":      "late-release-stays-parked",
		"operators do not release":       "late-release-stays-parked past-after-a-park",
		"joined writes done":             "joined-never-writes-done",
		"below zero":                     "uncounted-gives-the-attempt-back",
		"last error only":                "first-and-last-error",
		"fingerprints ignored":           "fingerprints",
		"empty fingerprint is none":      "fingerprints",
		"retention ignored":              "retention",
		"sweep without a limit":          "sweep",
		"sweep takes parked records":     "sweep",
		"sweep takes what is done":       "sweep",
		"sweep goes on":                  "sweep-cancelled",
		"default retention of a day":     "default-retention",
		"longest retention overflows":    "for-ever",
		"parked expires":                 "claimed-and-parked-never-expire",
		"forget ignores the fence":       "forget",
		"forget takes live claims":       "forget",
		"no result is an empty one":      "results-are-kept",
		"sizes not checked":              "result-limit",
		"size limit one too low":         "result-limit",
		"results shared":                 "answers-are-copies",
		"records shared":                 "answers-are-copies",
		"texts cut":                      "texts-are-kept",
		"bad entry fails the call":       "bad-keys-fail-alone",
		"bad request accepted":           "bad-requests-fail-alone",
		"answers reversed":               "full-batches",
		"a loser stops the batch":        "mixed-batch",
		"a key once in a batch":          "a-key-twice-in-a-batch",
		"past forgotten":                 "past-after-a-release past-after-a-dead-lease past-after-a-replay past-after-a-park past-of-a-done-record past-is-bounded",
		"dead claims not folded":         "past-after-a-dead-lease",
		"takeovers not told":             "past-after-a-dead-lease i1-one-takeover",
		"dead since the claim":           "past-after-a-dead-lease",
		"class after the change":         "past-after-a-replay",
		"a settlement drops past":        "past-after-a-park past-of-a-done-record",
		"past kept by a new record":      "past-of-a-done-record",
		"past without bounds":            "past-is-bounded",
		"past dropped at the newest end": "past-is-bounded",
		"past dropped at the oldest end": "past-is-bounded",
		"sent of the last claim":         "sent",
		"sent of the first claim alone":  "sent",
		"done keeps the message":         "done-is-small",
		"done keeps the steps":           "done-is-small",
		"lease before ignored":           "list-dead-leases count",
		"old leases of any status":       "list-dead-leases",
		"expired records counted":        "count",
		"count stops at the limit":       "count",
		"counts in any order":            "count",
		"count goes on":                  "count-cancelled",
		"another clock":                  "clock",
		"list ignores case in its order": "list-in-order",
		"list by pages of 1000":          "list-in-order",
		"status ignored":                 "list-filters",
		"before ignored":                 "list-filters",
		"prefix as LIKE does":            "list-prefix-is-literal",
		"limit ignored":                  "list-limit-and-break list-pages",
		"after ignored":                  "list-pages",
		"after gives the last one again": "list-pages",
		"after looks at the key alone":   "list-pages",
		"after any text":                 "list-pages",
		"list repeats":                   "list-and-change",
		"list repeats what came":         "list-and-change",
		"list goes on after its error":   "list-cancelled",
		"limits change":                  "limits",
		"cancellation ignored":           "cancelled",
		"close ignored":                  "closed",
		"completion lost":                "i5-commit joined-settlement-races",
		"rollback completes":             "i5-rollback",
		"overtaken completes":            "i5-overtaken",
		"completed twice":                "i5-settled",
		"gone record completes":          "i5-no-record",
		"dead lease cannot complete":     "i5-dead-lease",
		"parked cannot complete":         "i5-parked",
		"rows without completion":        "i5-open-transaction",
		"not joined":                     "completion-joins-first",
		"done wins again":                "batches-at-once batches-at-once-on-two-handles",
		"deadline late":                  "claim-no-record",
	}
	for _, r := range machine.ClaimTable() {
		m["claim answers wrong: "+r.Name] = caseName("claim", r.Name)
		if r.Change != machine.Keep {
			m["claim does not write: "+r.Name] = caseName("claim", r.Name)
		}
	}
	for _, r := range machine.RenewTable() {
		m["renew answers wrong: "+r.Name] = caseName("renew", r.Name)
		if r.Change != machine.Keep {
			m["renew does not write: "+r.Name] = caseName("renew", r.Name)
		}
	}
	for _, r := range machine.SettleTable() {
		m["settle answers wrong: "+r.Name] = caseName("settle", r.Name)
		if r.Change != machine.Keep {
			m["settle does not write: "+r.Name] = caseName("settle", r.Name)
		}
	}
	return m
}

func shopHarness(fault string) Harness {
	return Harness{Virtual: true, Seed: 1, Open: func(testing.TB) Subject { return openShop(fault) }}
}

// TestSoundStore runs the suite on a store without a fault that has all hooks.
func TestSoundStore(t *testing.T) {
	Run(t, shopHarness(""))
}

// TestRealTime runs the suite outside a bubble, where records age through the hook.
func TestRealTime(t *testing.T) {
	Run(t, Harness{Open: func(testing.TB) Subject {
		s := openShop("")
		shop := s.Store.(*shop)
		s.Age = func(_ testing.TB, k dedupe.Key, d time.Duration) {
			shop.mu.Lock()
			defer shop.mu.Unlock()
			// The model does to its record what an UPDATE does in a database.
			m := &model{records: map[dedupe.Key]*dedupe.Record{k: shop.at(k)}}
			m.age(k, d)
		}
		return s
	}})
}

// TestFaultyStores runs cases on stores that break a rule.
func TestFaultyStores(t *testing.T) {
	m := faults()
	var all []suite.Fault[*env, struct{}]
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, suite.Fault[*env, struct{}]{Name: name, Fails: m[name], On: shopHarness(name).suite})
	}
	shopHarness("").suite().Prove(t, all)
}

// TestCases holds the number of the cases. It may only rise.
func TestCases(t *testing.T) { shopHarness("").suite().Pin(t, 99, "../../docs/reliability.md") }
