package brokertest

import (
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/suite"
)

const fifoWindow = 5 * time.Minute

// TestSound runs the suite on wrappers that change nothing. It shows that what fails below fails
// because of its fault.
func TestSound(t *testing.T) {
	for _, p := range []membroker.Preset{membroker.Memory, membroker.SQSFIFO} {
		t.Run(p.String(), func(t *testing.T) { Run(t, harness(p, nil)) })
	}
}

// TestHabits runs the suite on what a service may do and need not.
func TestHabits(t *testing.T) {
	t.Run("receipts of earlier deliveries work", func(t *testing.T) { Run(t, harness(sqs, receiptsFollow)) })
	t.Run("receipts of earlier deliveries are void", func(t *testing.T) {
		h := harness(sqs, nil)
		h.StaleReceiptsVoid = true
		Run(t, h)
	})
	t.Run("duplicates are told by group", func(t *testing.T) {
		h := harness(fifo, duplicatesByGroup)
		h.DedupPerGroup = true
		Run(t, h)
	})
}

// TestFaultsAreFound runs cases on spoiled brokers: each fault must fail the cases that
// name it, and every case must be failed by some fault.
func TestFaultsAreFound(t *testing.T) {
	byName := map[string]testCase{}
	for _, c := range cases() {
		byName[c.name] = c
	}
	proven := map[string]bool{}
	for _, f := range faults() {
		for name := range strings.FieldsSeq(f.fails) {
			c, ok := byName[name]
			if !ok {
				t.Fatalf("fault %q names the case %q, which is none", f.name, name)
			}
			proven[name] = true
			t.Run(f.name+"/"+name, func(t *testing.T) {
				h := harness(f.preset, f.spoil)
				if f.harness != nil {
					f.harness(&h)
				}
				failures, ruledOut := suite.Record(t, h.Virtual, c.on(h))
				if ruledOut != "" {
					t.Fatalf("the case was ruled out: %s", ruledOut)
				}
				if len(failures) == 0 {
					t.Fatal("the case passed")
				}
				t.Log(failures[0])
				if !strings.HasPrefix(failures[0], "rule: "+c.rule+"\nseen: ") {
					t.Error("the failure does not tell the rule")
				}
			})
		}
	}
	for _, c := range cases() {
		if !proven[c.name] {
			t.Errorf("no fault shows that case %q can fail", c.name)
		}
	}
}

func TestCasesAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name] || c.name == "" || c.rule == "" || c.run == nil {
			t.Errorf("case %q is there twice or not complete", c.name)
		}
		seen[c.name] = true
	}
}

func TestKnownDifference(t *testing.T) {
	h := harness(membroker.SQSStandard, func(w *wrapped) {
		w.onMessage(func(m *broker.Message) { m.Attempt = 1 })
	})
	h.Known = map[string]string{"attempts-rise": "the emulator counts no receives"}
	Run(t, h)
}
