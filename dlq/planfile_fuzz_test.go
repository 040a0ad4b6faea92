package dlq

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"
)

// FuzzPlanFile: a plan lies in a file that anybody may have edited, with a checksum that anybody
// can compute. What is read without an error is written and read again as the same plan. Else the
// error is ErrPlan, and the plan that was there before is as it was.
func FuzzPlanFile(f *testing.F) {
	plans := []Plan{
		{Act: ActReplay, Queue: "orders-dead"},
		{
			Act: ActPurge, Queue: "caf\xe9", Made: time.Date(2026, 11, 26, 8, 54, 58, 123456789, time.UTC), Note: "INC-311", Seen: 7,
			Unchosen: 1, Elsewhere: 2, Unsigned: 3, Skipped: map[string]int{"bad-meta": 1},
			Letters: []Planned{
				{Ref: Ref{MessageID: "1", Source: "orders", Type: "order", Key: "A-1", Class: "permanent", Fence: 1 << 63}, Copies: []string{"2", "3"}},
				{Ref: Ref{MessageID: "4", Key: "A-2", Record: RecordKey{Scope: "shop:order", Key: "A-2"}}, Decision: Leave, Why: "failed anew"},
				{Ref: Ref{MessageID: "5", Key: "A-3", Record: RecordKey{Scope: "shop", Key: "A-4"}}, Decision: Remove},
				{Ref: Ref{MessageID: "6", Key: "A-5", Record: RecordKey{Key: "A-5"}}},
			},
			Rest: &Rest{Filter: Filter{Class: "permanent", Since: time.Unix(1, 0), Max: 9}, Match: "bank.*", About: 5, matched: true},
		},
	}
	for i := range plans {
		plans[i].ID = plans[i].name()
		b, err := json.Marshal(plans[i])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, false)
		f.Add(b[:len(b)/2], false)
	}
	for _, s := range []string{
		``, `{}`, `null`, `[]`, `{"v":3}`, `{"v":1,"letters":null}`, `{"v":2,"rest":{}}`, `{"v":1,"more":1}`, `{"v":-1}`,
		`{"v":1,"id":"x","act":"replay","queue":"q","made":"2026-11-26T08:54:58.123456789+05:30","letters":[{"m":"1","rk":"k"},{"m":"2","sc":"s"},{"m":"3","copies":[]},{"m":"4","k":"A-5","rk":"A-5"}]}`,
		`{"v":1,"act":"","queue":"","made":"0001-01-01T00:00:00Z","rest":{"since":"0001-01-01T00:00:00Z","until":"9999-12-31T23:59:59Z"}}`,
		`{"v":1,"V":2,"letters":[{"m":"\ud800","k":"\u0000","j":255}]}`,
	} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, summed bool) {
		if summed { // as by somebody who can compute the name and the sum
			b = sealed(b)
		}
		before := Plan{ID: "before"}
		p := before
		if err := p.UnmarshalJSON(b); err != nil {
			if !errors.Is(err, ErrPlan) || !reflect.DeepEqual(p, before) {
				t.Fatalf("%v, and the plan is %+v", err, p)
			}
			return
		}
		written, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("%+v was read, and is not written: %v", p, err)
		}
		var again Plan
		if err := json.Unmarshal(written, &again); err != nil {
			t.Fatalf("%s was written, and is not read: %v", written, err)
		}
		twice, err := json.Marshal(again)
		if err != nil || string(twice) != string(written) || again.ID != p.ID || len(again.Letters) != len(p.Letters) {
			t.Fatalf("%v\nonce  %s\ntwice %s", err, written, twice)
		}
		for i := range p.Letters {
			if p.Letters[i].Ref != again.Letters[i].Ref {
				t.Fatalf("letter %d is %+v, and was %+v", i, again.Letters[i].Ref, p.Letters[i].Ref)
			}
		}
	})
}

// sealed gives a file the name and the sum that it would have as a plan of ours.
func sealed(b []byte) []byte {
	var f planFile
	if json.Unmarshal(b, &f) != nil {
		return b
	}
	f.ID = nameOf(&f)
	sum, err := f.sum()
	if err != nil {
		return b
	}
	f.Sum = sum
	out, err := json.Marshal(&f)
	if err != nil {
		return b
	}
	return out
}

// nameOf is the name of the plan that the file holds.
func nameOf(f *planFile) string {
	p := Plan{Act: f.Act, Queue: f.Queue, Made: f.Made}
	for i := range f.Letters {
		l := &f.Letters[i]
		p.Letters = append(p.Letters, Planned{Ref: Ref{MessageID: l.Message, Fence: l.Fence}, Copies: l.Copies})
	}
	if f.Rest != nil {
		p.Rest = f.Rest.read()
	}
	return p.name()
}
