package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// This file owns schedules: Cron and Every. Cron reads its five fields once, into a set of bits for
// each, and Next searches the civil calendar first and the zone's clock second. A schedule never
// changes, so any goroutine may ask it.

// A Schedule says when something is due.
type Schedule interface {
	// Next is the first instant after a time, in whole seconds; the zero time = none ever comes.
	// The same schedule answers the same in each process, because the instant is the job's name.
	// It computes, and never waits: all entries wait for it.
	Next(after time.Time) time.Time
}

// farthest is as far as Cron looks: two leap days are 8 years apart at most.
const farthest = 10

// maxExpr bounds an expression, in bytes.
const maxExpr = 1024

// A field is one of the five of an expression.
type field struct {
	name        string
	least, most int
	names       string // of the values from least on, three letters each
}

var fields = [5]field{
	{"minute", 0, 59, ""},
	{"hour", 0, 23, ""},
	{"day of the month", 1, 31, ""},
	{"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"},
	{"day of the week", 0, 7, "sunmontuewedthufrisat"}, // 7 is Sunday as well
}

// cron is a schedule by an expression. The sets have a bit for each value.
type cron struct {
	minute, hour, day, month, weekday uint64
	either                            bool // a day of the month or of the week will do
	zone                              *time.Location
	text                              string
}

// Cron is the schedule of an expression with five fields, as crontab(5) has it: minute, hour, day
// of the month, month, day of the week. A field is a list of values, ranges (1-5), and steps (*/15,
// 10-40/10); months and days of the week may be named by three English letters. 0 and 7 are Sunday.
// Where both days are restricted, one of them will do.
//
// zone is an IANA name, such as "Europe/Berlin", or "UTC". Its data come from the host, as
// [time.LoadLocation] finds them; a program that imports time/tzdata brings its own.
//
// An entry is due when the zone's clock first shows its time, or a later one. So a time that does
// not exist, because the clock is put forward, is due right after the gap, and several such are one
// instant. A time that comes twice, because the clock is put back, is due the first time alone: in
// the hour that is repeated nothing is due, even of "* * * * *". What shall run at even intervals
// takes [Every], or the zone "UTC".
//
// The error names the field and its limit. A day that never comes, such as February 30, is refused.
func Cron(expr, zone string) (Schedule, error) {
	loc, err := zoneOf(zone)
	if err != nil {
		return nil, err
	}
	if len(expr) > maxExpr {
		return nil, fmt.Errorf("schedule: Cron: the expression has %d bytes, the limit is %d", len(expr), maxExpr)
	}
	parts := strings.Fields(expr)
	if len(parts) != len(fields) {
		return nil, fmt.Errorf("schedule: Cron: %q has %d fields, want 5: minute, hour, day of the month, month, day of the week", clip(expr), len(parts))
	}
	var sets [5]uint64
	for i, part := range parts {
		if sets[i], err = fields[i].parse(part); err != nil {
			return nil, fmt.Errorf("schedule: Cron: %q: the %s: %w", clip(expr), fields[i].name, err)
		}
	}
	c := &cron{minute: sets[0], hour: sets[1], day: sets[2], month: sets[3], weekday: sets[4], zone: loc, text: strings.Join(parts, " ") + " " + zone}
	c.weekday |= c.weekday >> 7 & 1
	c.either = parts[2][0] != '*' && parts[4][0] != '*'
	if c.civil(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("schedule: Cron: %q: the day of the month: none of these months has such a day", clip(expr))
	}
	return c, nil
}

func zoneOf(name string) (*time.Location, error) {
	if name == "" || name == "Local" {
		return nil, fmt.Errorf(`schedule: Cron: zone is %q, want the same one in each process, such as "Europe/Berlin" or "UTC"`, name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("schedule: Cron: zone %q: %w; a host without the data of the zones needs the import time/tzdata", clip(name), err)
	}
	return loc, nil
}

// clip is what an error shows of an expression.
func clip(s string) string { return s[:min(len(s), 100)] }

// parse reads a field into a set of bits.
func (f *field) parse(s string) (set uint64, err error) {
	for s != "" {
		part, rest, more := strings.Cut(s, ",")
		if more && rest == "" {
			return 0, errors.New("it ends with a comma")
		}
		span, step, stepped := strings.Cut(part, "/")
		from, to := f.least, f.most
		if span != "*" {
			low, high, ranged := strings.Cut(span, "-")
			if from, err = f.value(low); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if to, err = f.value(high); err != nil {
					return 0, err
				}
			case !stepped:
				to = from
			}
			if from > to {
				return 0, fmt.Errorf("%q runs backwards", clip(span))
			}
		} else if f.names != "" && f.least == 0 {
			to = 6 // or a step would meet Sunday twice
		}
		by := 1
		if stepped {
			if by, err = number(step); err != nil || by < 1 || by > f.most {
				return 0, fmt.Errorf("the step %q is not within 1 and %d", clip(step), f.most)
			}
		}
		for v := from; v <= to; v += by {
			set |= 1 << v
		}
		s = rest
	}
	return set, nil
}

// value reads a number, or a name.
func (f *field) value(s string) (int, error) {
	if at := strings.Index(f.names, strings.ToLower(s)); len(s) == 3 && at >= 0 && at%3 == 0 {
		return f.least + at/3, nil
	}
	v, err := number(s)
	if err != nil || v < f.least || v > f.most {
		return 0, fmt.Errorf("%q is not within %d and %d", clip(s), f.least, f.most)
	}
	return v, nil
}

// number reads a value of one digit or two, and no sign.
func number(s string) (int, error) {
	if len(s) > 2 || strings.HasPrefix(s, "+") {
		return 0, strconv.ErrRange
	}
	return strconv.Atoi(s)
}

// String is the expression and the zone: what the schedule is known by.
func (c *cron) String() string { return c.text }

// Next is in the schedule's zone.
func (c *cron) Next(after time.Time) time.Time {
	switch y := after.Year(); { // far away the calendar's arithmetic overflows, and never ends
	case y > 9999:
		return time.Time{}
	case y < 1:
		after = time.Time{}
	}
	after = after.In(c.zone)
	due := c.civil(shown(after))
	if due.IsZero() {
		return due
	}
	// The zone's periods from the present one on, until its clock has come to the civil time.
	at := after
	if near := due.Add(-30 * time.Hour).In(c.zone); near.After(at) {
		at = near // no clock is further from UTC
	}
	for {
		begin, end := at.ZoneBounds()
		if !end.IsZero() && !end.After(at) {
			end = at.Add(24 * time.Hour) // package time ends a leap year's last period a day early
		}
		_, offset := at.Zone()
		t := due.Add(-time.Duration(offset) * time.Second).In(c.zone)
		if t.Before(begin) {
			t = begin // the gap has swallowed it
		}
		if end.IsZero() || t.Before(end) {
			if t.Year() > 9999 {
				return time.Time{}
			}
			return t
		}
		at = end
	}
}

// wall is what a zone's clock shows, as a time of UTC.
func wall(t time.Time, offset int) time.Time {
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// shown is the first civil minute that the zone's clock has not shown at t, nor before.
func shown(t time.Time) time.Time {
	_, offset := t.Zone()
	most := wall(t, offset)
	// The minute of t has been shown, and the next one not. Where the clock was put back, it had
	// shown more, up to the moment before that.
	next := most.Truncate(time.Minute).Add(time.Minute)
	for at := t; ; {
		begin, _ := at.ZoneBounds()
		if begin.IsZero() || t.Sub(begin) > 30*time.Hour {
			return next
		}
		at = begin.Add(-time.Nanosecond)
		_, offset := at.Zone()
		if peak := wall(begin, offset).Add(time.Minute - 1).Truncate(time.Minute); peak.After(next) {
			next = peak
		}
	}
}

// civil is the first minute of the calendar from t on that the fields name; zero = there is none.
func (c *cron) civil(t time.Time) time.Time {
	last := t.Year() + farthest
	for t.Year() <= last {
		y, m, d := t.Date()
		switch {
		case c.month>>m&1 == 0:
			t = time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
		case !c.days(t):
			t = time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
		case c.hour>>t.Hour()&1 == 0:
			t = time.Date(y, m, d, t.Hour()+1, 0, 0, 0, time.UTC)
		default:
			if left := c.minute >> t.Minute(); left != 0 {
				return t.Add(time.Duration(bits.TrailingZeros64(left)) * time.Minute)
			}
			t = time.Date(y, m, d, t.Hour()+1, 0, 0, 0, time.UTC)
		}
	}
	return time.Time{}
}

// days reports whether the day is one of the expression's.
func (c *cron) days(t time.Time) bool {
	month, week := c.day>>t.Day()&1 == 1, c.weekday>>t.Weekday()&1 == 1
	if c.either {
		return month || week
	}
	return month && week
}

// every is a schedule by an interval.
type every time.Duration

// Every is due each d, counted from the beginning of 1970 in UTC, so that all processes agree. d is
// a whole number of seconds, 1 s at least; [Run] refuses an entry with another one, which is never
// due.
func Every(d time.Duration) Schedule { return every(d) }

// String is "every" and the interval.
func (e every) String() string { return "every " + time.Duration(e).String() }

func (e every) Next(after time.Time) time.Time {
	d := int64(e) / int64(time.Second)
	if e.check() != nil {
		return time.Time{}
	}
	s := after.Unix()
	next := time.Unix(s-((s%d)+d)%d+d, 0).UTC()
	if next.Year() > 9999 || !next.After(after) {
		return time.Time{}
	}
	return next
}

func (e every) check() error {
	if d := time.Duration(e); d < time.Second || d%time.Second != 0 {
		return fmt.Errorf("every %v is not a whole number of seconds, 1s at least; is its unit missing?", d)
	}
	return nil
}
