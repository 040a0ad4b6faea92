package controlstore

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/control"
)

// FuzzRules: whatever a store has in the place of the rules, reading them panics nowhere. What is
// read comes out of a change as it went in, with the fields of later versions, and no rule decides
// that is over or speaks of another queue.
func FuzzRules(f *testing.F) {
	now := time.Date(2026, 11, 22, 3, 30, 0, 0, time.UTC)
	for _, state := range []string{
		`{"v":1,"rules":[]}`, `{"v":2,"rules":[]}`, `{"v":1,"rules":null}`, `{"v":1,"rules":[null]}`, `{"v":1,"rules":[{}]}`, `null`, `[]`, ``, `{"v":1,"rules":{}}`,
		`{"v":1,"rules":[{"id":"r1","do":"pause","queue":"mails","made":"2026-11-22T03:00:00Z","until":"2026-11-22T04:00:00Z","by":"ana","reason":"SMTP","shards":[1,2]}]}`,
		`{"v":1,"rules":[{"do":"limit","slots":-1,"until":"9999-12-31T23:59:59-23:59"},{"do":"limit","slots":9223372036854775807,"until":"2026-11-22T04:00:00Z"},{"do":"stop","until":"2026-11-22T04:00:00+14:00"}]}`,
		`{"v":1,"rules":[{"\u017fcope":"orders","scope":"mails","SCOPE":"x","do":"pause","until":"2026-11-22T04:00:00Z"}]}`,
	} {
		f.Add(state, 1)
	}
	f.Add(`{"v":1,"rules":[]}`, 0)
	f.Fuzz(func(t *testing.T, state string, no int) {
		rs, err := decode([]byte(state), no)
		if err != nil {
			if len(rs.Rules) > 0 || rs.Version != 0 {
				t.Fatalf("%v, and yet there are %+v", err, rs)
			}
			return
		}
		wantForm(t, state)
		for _, queue := range []string{"mails", "orders"} {
			if v, said := rs.For(queue, "", "", now); said {
				r := rs.Find(v.Rule)
				if !v.Until.After(now) || v.Do != control.Pause && (v.Do != control.Limit || v.Slots < 1) || r == nil || !someFits(&rs, &v, queue, now) {
					t.Fatalf("%q is told %+v by %+v", queue, v, r)
				}
			}
		}
		if next := rs.Next(now); !next.IsZero() && !next.After(now) {
			t.Fatalf("the next end after %v is %v", now, next)
		}
		b, err := encode(&rs)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := decode(b, no)
		if err != nil || len(again.Rules) != len(rs.Rules) {
			t.Fatalf("%s cannot be read again: %v", b, err)
		}
		for i := range rs.Rules {
			was, is := rs.Rules[i], again.Rules[i]
			if !was.Until.Equal(is.Until) || !was.Made.Equal(is.Made) {
				t.Fatalf("rule %d ends at %v and at %v", i, was.Until, is.Until)
			}
			was.Until, was.Made = is.Until, is.Made // of another zone's name
			if !reflect.DeepEqual(was, is) {
				t.Fatalf("rule %d is %+v, and then %+v", i, was, is)
			}
		}
	})
}

// wantForm checks of what was read that it has the form of this version.
func wantForm(t *testing.T, state string) {
	t.Helper()
	var w struct {
		Form int `json:"v"`
	}
	if err := json.Unmarshal([]byte(state), &w); err != nil || w.Form != form {
		t.Fatalf("%q has the form %d and was read: %v", state, w.Form, err)
	}
}

// someFits reports whether one of the rules of the verdict's name fits.
func someFits(rs *Rules, v *control.Verdict, queue string, now time.Time) bool {
	for i := range rs.Rules {
		if r := &rs.Rules[i]; r.ID == v.Rule && r.Fits(queue, "", "", now) {
			return true
		}
	}
	return false
}

// FuzzSchedules: whatever a store has in the place of a part of the list of schedules, reading it
// panics nowhere, an error names the record, and what is read is written as it was.
func FuzzSchedules(f *testing.F) {
	for _, state := range []string{
		`{"v":1,"entries":[]}`, `{"v":2,"entries":[]}`, `{"v":1,"entries":[null]}`, `null`, `{}`, ``, `[]`,
		`{"v":1,"entries":[{"name":"bills","spec":"0 3 * * *","scope":"orders","born":"2026-11-22T03:00:00Z","seen":"2026-11-22T04:00:00+14:00"}]}`,
		`{"v":1,"entries":[{"name":"\ud800","own":true,"born":"0000-01-01T00:00:00Z","seen":"9999-12-31T23:59:59-23:59"}]}`,
		`{"v":1,"entries":[{"name":7}]}`, `{"v":1,"entries":[{"seen":"tomorrow"}]}`,
	} {
		f.Add(state)
	}
	f.Fuzz(func(t *testing.T, state string) {
		es, err := decodePart(7, []byte(state))
		if err != nil {
			if len(es) > 0 || !strings.Contains(err.Error(), partKey(7).Key) {
				t.Fatalf("%d entries, and %v", len(es), err)
			}
			return
		}
		wantForm(t, state)
		b, err := encodePart(es)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := decodePart(7, b)
		if err != nil || len(again) != len(es) {
			t.Fatalf("%s cannot be read again: %v", b, err)
		}
		for i := range es {
			was, is := es[i], again[i]
			if !was.Born.Equal(is.Born) || !was.Seen.Equal(is.Seen) {
				t.Fatalf("entry %d is %+v, and then %+v", i, was, is)
			}
			if was.Born, was.Seen = is.Born, is.Seen; was != is {
				t.Fatalf("entry %d is %+v, and then %+v", i, was, is)
			}
			if p := SchedulePart(is.Name); p < 0 || p >= ScheduleParts {
				t.Fatalf("%q is in part %d", is.Name, p)
			}
		}
	})
}
