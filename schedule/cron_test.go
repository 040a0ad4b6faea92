package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on each host

	"github.com/onceq/onceq/internal/proof"
)

// zones have put their clocks forward and back in all the ways that there were since 2000: by an
// hour, by half of one, at midnight, over a day, and for good.
var zones = []string{
	"UTC", "Europe/Berlin", "Europe/London", "America/New_York", "America/Sao_Paulo", "America/St_Johns", "America/Havana",
	"America/Santiago", "America/Caracas", "Australia/Lord_Howe", "Australia/Sydney", "Pacific/Apia", "Pacific/Chatham", "Asia/Tehran",
	"Asia/Gaza", "Asia/Pyongyang", "Africa/Casablanca", "Africa/Cairo", "Asia/Kathmandu", "Antarctica/Troll",
}

// expressions are due in all parts of the hours that may be left out, or come twice.
var expressions = []string{
	"30 2 * * *", "*/7 * * * *", "0 * * * *", "0 0 * * *", "5,35 0-3 * * *", "59 23 * * 0", "15 1 1,15 * 1-5", "0 0 29 2 *", "45 23 31 * *", "* 2 * 3,10,11 sun",
}

// transitions are when a zone's clock was put forward or back from 2000 to 2040.
func transitions(loc *time.Location) (ts []time.Time) {
	for t := time.Date(2000, 1, 1, 0, 0, 0, 0, loc); t.Year() <= 2040; {
		_, end := t.ZoneBounds()
		switch {
		case end.IsZero():
			return ts
		case !end.After(t): // on the last day of a leap year
			end = t.Add(24 * time.Hour)
		case end.Year() <= 2040:
			ts = append(ts, end)
		}
		t = end
	}
	return ts
}

// slow goes from one instant to another minute by minute, as a person with a clock and a list
// would: what the clock shows for the first time is looked up, with all minutes that it has jumped
// over.
func slow(c *cron, from, to time.Time, visit func(due time.Time)) {
	shown := func(t time.Time) time.Time {
		y, m, d := t.Date()
		return time.Date(y, m, d, t.Hour(), t.Minute(), 0, 0, time.UTC)
	}
	begin := from.Add(-30 * time.Hour)
	most := shown(begin)
	for t := begin; !t.After(to); t = t.Add(time.Minute) {
		now, due := shown(t), false
		for ; most.Before(now); most = most.Add(time.Minute) {
			m := most.Add(time.Minute)
			month, week := c.day>>m.Day()&1 == 1, c.weekday>>m.Weekday()&1 == 1
			day := month && week || c.either && (month || week)
			due = due || day && c.minute>>m.Minute()&1 == 1 && c.hour>>m.Hour()&1 == 1 && c.month>>m.Month()&1 == 1
		}
		if due && t.After(from) {
			visit(t)
		}
	}
}

// TestTransitions: the rule of DST, in 20 zones over 40 years, against a reference that goes minute
// by minute: what does not exist is due right after the gap, and what comes twice the first time.
func TestTransitions(t *testing.T) {
	const every = 24 // of that many transitions one is played
	seed := proof.Seed(t)
	if !proof.Asked() {
		proof.Leave(t, "schedule: 23 of 24 changes of clocks")
	}
	r := rand.New(rand.NewPCG(seed, 0))
	played := 0
	for _, zone := range zones {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		around := append(transitions(loc), time.Date(2024, 2, 29, 0, 0, 0, 0, loc), time.Date(2040, 12, 31, 0, 0, 0, 0, time.UTC))
		for i, at := range around {
			if !proof.Asked() && i < len(around)-2 && r.IntN(every) != 0 {
				continue
			}
			played++
			from, to := at.Truncate(time.Minute).Add(-26*time.Hour), at.Add(26*time.Hour)
			for _, expr := range expressions {
				s, err := Cron(expr, zone)
				if err != nil {
					t.Fatal(err)
				}
				next := s.Next(from)
				slow(s.(*cron), from.In(loc), to.In(loc), func(due time.Time) {
					if !next.Equal(due) {
						t.Fatalf("%s %s around %v: %v is due, the clock says %v", expr, zone, at, next, due)
					}
					next = s.Next(due)
				})
				if !next.After(to) {
					t.Fatalf("%s %s around %v: %v is due, the clock does not say so", expr, zone, at, next)
				}
			}
		}
	}
	t.Logf("%d changes of clocks", played)
}

// TestCronByTable: what the page says of DST, and what crontab(5) says of days.
func TestCronByTable(t *testing.T) {
	for _, c := range []struct{ expr, zone, after, want string }{
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"}, // 02:30 does not exist: 03:00
		{"30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"}, // the first 02:30
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"0 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"}, // two hours without one
		{"*/15 * * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-25T02:00:00Z"},
		{"0 0 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", "2011-12-30T10:00:00Z"}, // the 30th was left out
		{"0 12 * * *", "UTC", "2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z"},         // after, not at
		{"0 12 * * *", "UTC", "2026-01-01T11:59:59.999999999Z", "2026-01-01T12:00:00Z"},
		{"0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"}, // 2100 is no leap year
		{"0 0 13 * 5", "UTC", "2026-11-14T00:00:00Z", "2026-11-20T00:00:00Z"}, // either day will do
		{"0 0 */2 * 1", "UTC", "2026-11-01T00:00:00Z", "2026-11-09T00:00:00Z"},
		{"0 0 * * 7", "UTC", "2026-11-26T00:00:00Z", "2026-11-29T00:00:00Z"},
		{"0 0 * * 5-7", "UTC", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"},
		{"0 0 * * */2", "UTC", "2026-11-26T00:00:00Z", "2026-11-28T00:00:00Z"},
		{"5/20 10 * JAN Mon", "UTC", "2026-11-26T00:00:00Z", "2027-01-04T10:05:00Z"},
		{"59 23 31 12 *", "Asia/Kathmandu", "0001-01-01T00:00:00Z", "0001-12-31T18:17:44Z"}, // local mean time
		{"* * * * *", "UTC", "9999-12-31T23:59:00Z", ""},
	} {
		s, err := Cron(c.expr, c.zone)
		if err != nil {
			t.Fatal(err)
		}
		after, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if next := s.Next(after); !next.IsZero() {
			got = next.UTC().Format(time.RFC3339)
		}
		if got != c.want {
			t.Errorf("%s %s after %s: %s, want %s", c.expr, c.zone, c.after, got, c.want)
		}
	}
}

// TestFarAway: no instant keeps Next busy, however far it is.
func TestFarAway(t *testing.T) {
	s, err := Cron("0 0 1 1 *", "Asia/Gaza")
	if err != nil {
		t.Fatal(err)
	}
	for _, year := range []int{2024, 2028, 2040, 7224} { // leap years, on whose last day package time errs
		for _, zone := range zones {
			s, err := Cron("0 12 31 12 *", zone)
			if err != nil {
				t.Fatal(err)
			}
			at := time.Date(year, 8, 25, 1, 24, 53, 0, time.UTC)
			if next := s.Next(at); next.Year() != year || next.Hour() != 12 || next.YearDay() != 366 {
				t.Errorf("%s: %v after %v", zone, next, at)
			}
		}
	}
	for _, at := range []int64{1<<63 - 1, 1 << 62, 1 << 40} {
		for _, s := range []Schedule{s, Every(time.Hour)} {
			if next := s.Next(time.Unix(at, 0)); !next.IsZero() {
				t.Errorf("%v after %d: %v, want never", s, at, next)
			}
		}
	}
	for _, at := range []int64{-1 << 50, -1 << 40} {
		if next := s.Next(time.Unix(at, 0)); next.Year() > 2 || next.IsZero() {
			t.Errorf("after %d: %v", at, next)
		}
	}
}

// TestBadCron: a refusal names the field and its limit.
func TestBadCron(t *testing.T) {
	for _, c := range []struct{ expr, zone, want string }{
		{"", "UTC", "has 0 fields, want 5"},
		{"* * * * * *", "UTC", "has 6 fields, want 5"},
		{"@daily", "UTC", "has 1 fields, want 5"},
		{"60 * * * *", "UTC", `the minute: "60" is not within 0 and 59`},
		{"* 24 * * *", "UTC", `the hour: "24" is not within 0 and 23`},
		{"* * 0 * *", "UTC", `the day of the month: "0" is not within 1 and 31`},
		{"* * * 13 *", "UTC", `the month: "13" is not within 1 and 12`},
		{"* * * ja *", "UTC", `the month: "ja" is not`},
		{"* * * anf *", "UTC", `the month: "anf" is not`},
		{"* * * * 8", "UTC", `the day of the week: "8" is not within 0 and 7`},
		{"* * * * mo-fr", "UTC", `"mo" is not`},
		{"5-1 * * * *", "UTC", `"5-1" runs backwards`},
		{"*/0 * * * *", "UTC", `the step "0" is not within 1 and 59`},
		{"*/ * * * *", "UTC", `the step "" is not`},
		{"*/99 * * * *", "UTC", `the step "99" is not`},
		{"1, * * * *", "UTC", "ends with a comma"},
		{",1 * * * *", "UTC", `"" is not within`},
		{"-1 * * * *", "UTC", `"" is not within`},
		{"+1 * * * *", "UTC", `"+1" is not within`},
		{"99999999999999999999 * * * *", "UTC", "is not within 0 and 59"},
		{"0-99999999999999999999/1 * * * *", "UTC", "is not within 0 and 59"},
		{"0 0 30 2 *", "UTC", "none of these months has such a day"},
		{"0 0 31 2,4,6,9,11 *", "UTC", "none of these months has such a day"},
		{"* * * * *", "", "zone is"},
		{"* * * * *", "Local", "zone is"},
		{"* * * * *", "../etc/passwd", "zone"},
		{"* * * * *", "Mars/Olympus", "zone"},
		{strings.Repeat("1,", 1e6) + "1 * * * *", "UTC", "has 2000009 bytes, the limit is 1024"},
	} {
		_, err := Cron(c.expr, c.zone)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 400 {
			t.Errorf("%q %q: %v, want %q", clip(c.expr), c.zone, err, c.want)
		}
	}
}

// TestEvery: all processes agree on the instants, whenever they started.
func TestEvery(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		d           time.Duration
		after, want string
	}{
		{time.Hour, "2026-11-26T17:00:00Z", "2026-11-26T18:00:00Z"},
		{time.Hour, "2026-11-26T17:00:00.5+05:30", "2026-11-26T12:00:00Z"},
		{7 * time.Second, "1970-01-01T00:00:00Z", "1970-01-01T00:00:07Z"},
		{7 * time.Second, "1969-12-31T23:59:58Z", "1970-01-01T00:00:00Z"},
		{24 * time.Hour, "2026-11-26T17:00:00Z", "2026-11-27T00:00:00Z"},
	} {
		if got := Every(c.d).Next(at(c.after)); !got.Equal(at(c.want)) {
			t.Errorf("every %v after %s: %v, want %s", c.d, c.after, got, c.want)
		}
	}
	for _, d := range []time.Duration{0, -time.Hour, 5, time.Second / 2, 1500 * time.Millisecond} {
		if got := Every(d).Next(at("2026-11-26T17:00:00Z")); !got.IsZero() {
			t.Errorf("every %v: %v, want never", d, got)
		}
	}
}

// TestParse: the text of a schedule is the schedule.
func TestParse(t *testing.T) {
	nightly, err := Cron(" 30  3 * * mon-fri", "Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Schedule{nightly, Every(90 * time.Minute)} {
		text := fmt.Sprint(s)
		again, err := Parse(text)
		if now := time.Now(); err != nil || !again.Next(now).Equal(s.Next(now)) || fmt.Sprint(again) != text {
			t.Errorf("%q became %v, %v", text, again, err)
		}
	}
	for _, bad := range []string{"", "every", "every 5", "every 1ms", "30 3 * * *", "hourly"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// FuzzCron: whatever somebody writes is refused, or has instants that rise.
func FuzzCron(f *testing.F) {
	for _, expr := range expressions {
		f.Add(expr, "Europe/Berlin", int64(1_774_746_000))
	}
	f.Add("*/59 23-23/9 31 jan-dec/11 0,7", "Pacific/Apia", int64(-1e12))
	f.Add("0-59/59,3 * 1-31/30 * sun-sat", "Asia/Gaza", int64(1<<40))
	f.Add("0,0 0 1 1 *", "Asia/Gaza", int64(1<<62))
	f.Fuzz(func(t *testing.T, expr, zone string, at int64) {
		s, err := Cron(expr, zone)
		if err != nil {
			return
		}
		after := time.Unix(at, 0)
		for range 5 {
			next := s.Next(after)
			if next.IsZero() {
				return
			}
			if !next.After(after) {
				t.Fatalf("%q %q: %v comes after %v", expr, zone, next, after)
			}
			if between := after.Add(next.Sub(after) / 2); !s.Next(between).Equal(next) {
				t.Fatalf("%q %q: %v after %v, and %v after %v", expr, zone, next, after, s.Next(between), between)
			}
			after = next
		}
	})
}
