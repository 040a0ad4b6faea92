package controlstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
)

// pause is a rule that is good.
func pause(change func(*control.Rule)) control.Rule {
	r := control.Rule{Do: control.Pause, Queue: "mails", Until: time.Now().Add(time.Hour), By: "ana", Reason: "SMTP migration"}
	if change != nil {
		change(&r)
	}
	return r
}

func add(r control.Rule) func(*controlstore.Rules) error {
	return func(rs *controlstore.Rules) error {
		rs.Rules = append(rs.Rules, r)
		return nil
	}
}

// TestRefusedRules: each field that makes no sense is refused with its name and the limit, and
// nothing is written.
func TestRefusedRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			change func(*control.Rule)
			want   string
		}{
			"no action":         {func(r *control.Rule) { r.Do = "" }, "Rule.Do: is empty, want pause or limit"},
			"unknown action":    {func(r *control.Rule) { r.Do = "stop" }, `Rule.Do: "stop" is not known, want pause or limit`},
			"no end":            {func(r *control.Rule) { r.Until = time.Time{} }, "Rule.Until: is required: a rule without an end is forgotten"},
			"over":              {func(r *control.Rule) { r.Until = time.Now() }, "Rule.Until: 2000-01-01T00:00:00Z is over already"},
			"long over":         {func(r *control.Rule) { r.Until = time.Now().Add(-48 * time.Hour) }, "Rule.Until: 1999-12-30T00:00:00Z is over already"},
			"400 days":          {func(r *control.Rule) { r.Until = time.Now().Add(400 * 24 * time.Hour) }, "is further ahead than 30d"},
			"a moment too long": {func(r *control.Rule) { r.Until = time.Now().Add(controlstore.MaxUntil + 1) }, "is further ahead than 30d"},
			"nobody":            {func(r *control.Rule) { r.By = "" }, "Rule.By: is required"},
			"no reason":         {func(r *control.Rule) { r.Reason = " " }, "Rule.Reason: is required"},
			"long reason":       {func(r *control.Rule) { r.Reason = strings.Repeat("x", 257) }, "Rule.Reason: has 257 bytes, the limit is 256"},
			"long name":         {func(r *control.Rule) { r.By = strings.Repeat("x", 257) }, "Rule.By: has 257 bytes, the limit is 256"},
			"a terminal's code": {func(r *control.Rule) { r.Reason = "\x1b]52;c;x\a" }, "Rule.Reason: "},
			"not UTF-8":         {func(r *control.Rule) { r.By = "a\xff" }, "Rule.By: "},
			"long queue":        {func(r *control.Rule) { r.Queue = strings.Repeat("x", 256) }, "Rule.Queue: has 256 bytes, the limit is 255"},
			"long scope":        {func(r *control.Rule) { r.Scope = strings.Repeat("x", 256) }, "Rule.Scope: has 256 bytes, the limit is 255"},
			"long type":         {func(r *control.Rule) { r.Type = strings.Repeat("x", 256) }, "Rule.Type: has 256 bytes, the limit is 255"},
			"our own scope":     {func(r *control.Rule) { r.Scope = ":worker" }, `Rule.Scope: ":worker" begins with a ':', and such scopes are onceq's own`},
			"long id":           {func(r *control.Rule) { r.ID = strings.Repeat("x", 65) }, "Rule.ID: has 65 bytes, the limit is 64"},
			"slots in a pause":  {func(r *control.Rule) { r.Slots = 3 }, "Rule.Slots: 3 is set, but the rule is a pause"},
			"fewer than none":   {func(r *control.Rule) { r.Do, r.Slots = control.Limit, -1 }, "Rule.Slots: -1 is not within 0 and 100000"},
			"too many slots":    {func(r *control.Rule) { r.Do, r.Slots = control.Limit, 100_001 }, "Rule.Slots: 100001 is not within 0 and 100000"},
			"limit of a type":   {func(r *control.Rule) { r.Do, r.Slots, r.Type = control.Limit, 1, "a" }, "Rule.Do: limit is for a whole queue: it takes no Scope and no Type"},
		} {
			s := newStore(t)
			_, err := controlstore.Change(t.Context(), s, add(pause(c.change)))
			if !errors.Is(err, control.ErrInvalid) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			if got, err := controlstore.Read(t.Context(), s); err != nil || len(got.Rules) != 0 {
				t.Errorf("%s: the rules are %+v, %v", name, got, err)
			}
		}
		// The limits themselves are good.
		for _, r := range []control.Rule{
			pause(func(r *control.Rule) { r.Until = time.Now().Add(controlstore.MaxUntil) }),
			pause(func(r *control.Rule) { r.By, r.Reason = strings.Repeat("x", 256), strings.Repeat("y", 256) }),
			pause(func(r *control.Rule) { r.Do, r.Slots = control.Limit, 100_000 }),
			pause(func(r *control.Rule) { r.Queue, r.Scope, r.Type = "", "orders:charge", strings.Repeat("x", 255) }),
		} {
			if _, err := controlstore.Change(t.Context(), newStore(t), add(r)); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTooManyRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		fill := func(n, reason int) error {
			_, err := controlstore.Change(t.Context(), s, func(rs *controlstore.Rules) error {
				rs.Rules = nil
				for range n {
					rs.Rules = append(rs.Rules, pause(func(r *control.Rule) { r.Reason = strings.Repeat("x", reason) }))
				}
				return nil
			})
			return err
		}
		if err := fill(controlstore.MaxRules, 1); err != nil {
			t.Fatal(err)
		}
		if err := fill(controlstore.MaxRules+1, 1); err == nil || err.Error() != "control: not valid: Rules: are 201, the limit is 200: remove some" {
			t.Error(err)
		}
		if err := fill(controlstore.MaxRules, controlstore.MaxText); err == nil || !strings.Contains(err.Error(), "bytes, the limit is 65536: remove some") {
			t.Error(err)
		}
		if got, err := controlstore.Read(t.Context(), s); err != nil || len(got.Rules) != controlstore.MaxRules || got.Version != 1 {
			t.Errorf("the rules are %d of version %d, %v", len(got.Rules), got.Version, err)
		}
	})
}

// TestFor: all that is given in a rule must fit, a pause goes before a limit, and what is over is
// over.
func TestFor(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	rule := func(id, queue, scope, typ string, slots int, d time.Duration) control.Rule {
		r := control.Rule{ID: id, Do: control.Pause, Queue: queue, Scope: scope, Type: typ, Until: now.Add(d), By: "ana", Reason: id}
		if slots > 0 {
			r.Do, r.Slots = control.Limit, slots
		}
		return r
	}
	rs := controlstore.Rules{Rules: []control.Rule{
		rule("all-over", "", "", "", 0, 0),
		rule("mails", "mails", "", "", 0, time.Hour),
		rule("mails-later", "mails", "", "", 0, 2*time.Hour),
		rule("mails-limit", "mails", "", "", 1, 3*time.Hour),
		rule("orders-5", "orders", "", "", 5, time.Hour),
		rule("orders-3", "orders", "", "", 3, time.Hour),
		rule("scope", "", "bank", "", 0, time.Hour),
		rule("one-scope", "orders", "shop:charge", "", 0, time.Hour),
		rule("type", "", "", "report", 0, time.Hour),
		rule("both", "", "a", "x", 0, time.Hour),
		{ID: "later-version", Do: "drain", Queue: "z", Until: now.Add(time.Hour)},
	}}
	for _, c := range []struct {
		queue, scope, typ string
		want              string
		do                control.Action
	}{
		{"mails", "", "", "mails-later", control.Pause},
		{"mails", "any", "any", "mails-later", control.Pause},
		{"orders", "", "", "orders-3", control.Limit},
		{"orders", "shop:charge", "", "one-scope", control.Pause},
		{"other", "shop:charge", "", "", ""},
		{"", "shop:charge", "charge", "", ""},
		{"q", "bank", "", "scope", control.Pause},
		{"q", "bank:pay", "pay", "scope", control.Pause},
		{"q", "banks", "", "", ""},
		{"q", "ban", "", "", ""},
		{"q", "", "", "", ""},
		{"q", "s:report", "report", "type", control.Pause},
		{"", "s:report", "report", "type", control.Pause},
		{"q", "s:reports", "reports", "", ""},
		{"q", "a:x", "x", "both", control.Pause},
		{"q", "a:y", "y", "", ""},
		{"q", "b:x", "x", "", ""},
		{"z", "", "", "", ""},
	} {
		v, ok := rs.For(c.queue, c.scope, c.typ, now)
		if v.Rule != c.want || v.Do != c.do || ok != (c.want != "") {
			t.Errorf("For(%q, %q, %q) is %+v, %v; want %q", c.queue, c.scope, c.typ, v, ok, c.want)
		}
		if ok && (v.By != "ana" || v.Reason != c.want || (v.Slots == 3) != (v.Do == control.Limit)) {
			t.Errorf("For(%q, %q, %q) is %+v", c.queue, c.scope, c.typ, v)
		}
	}
	if v, _ := rs.For("mails", "", "", now.Add(time.Hour)); v.Rule != "mails-later" {
		t.Errorf("an hour later it is %+v", v)
	}
	if v, _ := rs.For("mails", "", "", now.Add(2*time.Hour)); v.Rule != "mails-limit" || v.Slots != 1 {
		t.Errorf("two hours later it is %+v", v)
	}
	if _, ok := rs.For("mails", "", "", now.Add(3*time.Hour)); ok {
		t.Error("three hours later a rule holds")
	}
	if n := testing.AllocsPerRun(100, func() { rs.For("q", "bank:pay", "pay", now) }); n != 0 {
		t.Errorf("For makes %v allocations", n)
	}
	if got := rs.Next(now); !got.Equal(now.Add(time.Hour)) {
		t.Errorf("the next end is %v", got)
	}
	if got := rs.Next(now.Add(3 * time.Hour)); !got.IsZero() {
		t.Errorf("the next end is %v, and there is none", got)
	}
}

// TestLaterFields: an edit by this version keeps what a later one has written, in rules that it
// leaves alone and in those that it changes.
func TestLaterFields(t *testing.T) {
	const later = `{"id":"a","do":"drain","until":"2027-01-01T00:00:00Z","by":"x","reason":"y","made":"2026-01-01T00:00:00Z","cluster":{"n":1}}`
	var r control.Rule
	if err := json.Unmarshal([]byte(later), &r); err != nil {
		t.Fatal(err)
	}
	r.Reason = "z"
	b, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(b), `"cluster":{"n":1}`) || !strings.Contains(string(b), `"reason":"z"`) {
		t.Errorf("%s, %v", b, err)
	}
	var again control.Rule
	if err := json.Unmarshal(b, &again); err != nil || again != r {
		t.Errorf("%+v, want %+v, %v", again, r, err)
	}
}

func TestParseFor(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, " 1d12h ": 36 * time.Hour, "30d": controlstore.MaxUntil, "1s": time.Second,
	} {
		if got, err := controlstore.ParseFor(text); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"10": "10 has no unit; want 10m, 1h", "0": "0 has no unit; want 10m, 1h", "0s": "0s is not above 0; want 10m, 1h", "-5m": "-5m0s is not above 0; want 10m, 1h",
		"400d": "400d is above the limit of 30d", "31d": "31d is above the limit of 30d", "721h": "721h0m0s is above the limit of 30d", "10ns": "10ns is below 1s; is its unit missing?",
		"": `"" is no duration; want 10m, 1h, 2d`, "soon": `"soon" is no duration; want 10m, 1h, 2d`, "1d-2h": `"1d-2h" is no duration; want 10m, 1h, 2d`,
		"-1d": `"-1d" is no duration; want 10m, 1h, 2d`, "99999999d": `"99999999d" is no duration; want 10m, 1h, 2d`, "NaN": "NaN has no unit; want 10m, 1h",
	} {
		if got, err := controlstore.ParseFor(text); !errors.Is(err, control.ErrInvalid) || err.Error() != "control: not valid: "+want {
			t.Errorf("%q is %v, %v; want %q", text, got, err, want)
		}
	}
}

// TestLimitWithoutSlots: a limit to nothing that Change has not made, such as one that was written
// by hand, is a pause. Nobody takes it for no limit.
func TestLimitWithoutSlots(t *testing.T) {
	now := time.Now()
	for _, slots := range []int{0, -1} {
		rs := controlstore.Rules{Rules: []control.Rule{
			{ID: "a", Do: control.Limit, Slots: slots, Until: now.Add(time.Hour)}, {ID: "b", Do: control.Limit, Slots: 3, Until: now.Add(time.Hour)},
		}}
		if v, ok := rs.For("orders", "", "", now); !ok || v.Do != control.Pause || v.Rule != "a" {
			t.Errorf("a limit of %d says %+v, %v", slots, v, ok)
		}
	}
}
