package ahead

import (
	"math"
	"strings"
	"testing"
	"time"
)

const day = 24 * time.Hour

// A message may wait only where the queue keeps it, and lets it be received, until it is due and
// for a while after that.
func TestRefuses(t *testing.T) {
	sqs := Queue{Keeps: 4 * day, Hop: 12 * time.Hour}
	five := Queue{Receives: 5, Hop: 12 * time.Hour}
	for name, c := range map[string]struct {
		q           Queue
		due, waited time.Duration
		receive     int
		why         string
	}{
		"nothing is known":               {Queue{}, 10 * 365 * day, 0, 1, ""},
		"it is due":                      {Queue{Keeps: time.Hour, Receives: 1}, 0, day, 9, ""},
		"beyond the retention":           {sqs, 5 * day, 0, 1, "due in 5d, and the queue keeps messages for 4d"},
		"within":                         {sqs, 3*day + 12*time.Hour, 0, 1, ""},
		"with no time left to be tried":  {sqs, 3*day + 13*time.Hour, 0, 1, "keeps messages for 4d"},
		"the queue has had it for a day": {sqs, 3 * day, day, 1, "due in 3d"},
		"nobody says since when":         {sqs, 3 * day, -1, 1, ""},
		"a short retention":              {Queue{Keeps: time.Hour, Hop: 12 * time.Hour}, 50 * time.Minute, 0, 1, ""},
		"for ever":                       {Queue{Keeps: math.MaxInt64, Hop: time.Hour}, 100 * 365 * day, 0, 1, ""},
		"no hop is known":                {Queue{Keeps: day}, 20 * time.Hour, 0, 1, ""},
		"receives":                       {five, 3 * day, 0, 1, "after 5 receives, each of which delays it by at most 12h"},
		"one hop":                        {five, 2 * time.Hour, 0, 1, ""},
		"two hops":                       {five, 23 * time.Hour, 0, 1, ""},
		"two hops after others":          {five, 23 * time.Hour, 0, 2, "after 5 receives"},
		"one hop, with the last receive": {five, time.Hour, 0, 4, ""},
		"one hop, with none left":        {five, time.Hour, 0, 5, "after 5 receives"},
		"a moment, with one receive":     {Queue{Receives: 1, Hop: time.Hour}, time.Second, 0, 1, "after 1 receives"},
		"a moment, with two":             {Queue{Receives: 2, Hop: time.Hour}, time.Second, 0, 1, ""},
		"nobody counts":                  {five, 2 * time.Hour, 0, 0, ""},
	} {
		now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		published := now.Add(-c.waited)
		if c.waited < 0 {
			published = time.Time{}
		}
		why := c.q.Refuses(now.Add(c.due), published, now, c.receive)
		if !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("%s: %q, want %q", name, why, c.why)
		}
	}
}

// What is sent at From is taken, and what is sent a little earlier is not.
func TestFrom(t *testing.T) {
	due := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, q := range []Queue{
		{Keeps: 4 * day, Hop: 12 * time.Hour},
		{Keeps: 14 * day, Hop: 12 * time.Hour},
		{Keeps: 7 * day, Hop: 10 * time.Minute},
		{Keeps: time.Hour, Hop: 12 * time.Hour},
		{Keeps: day},
		{Receives: 5, Hop: 12 * time.Hour},
		{Receives: 2, Hop: 12 * time.Hour},
		{Receives: 3, Hop: 10 * time.Minute},
		{Keeps: 14 * day, Receives: 10, Hop: 12 * time.Hour},
		{Keeps: day, Receives: 100, Hop: 12 * time.Hour},
	} {
		from := q.From(due)
		if why := q.Refuses(due, from, from, 1); why != "" || from.After(due) {
			t.Errorf("%+v: sent at %v it is refused: %s", q, from, why)
		}
		if early := from.Add(-time.Minute); q.Refuses(due, early, early, 1) == "" {
			t.Errorf("%+v: sent before %v it is taken", q, from)
		}
	}
	if from := (Queue{Receives: 1, Hop: time.Hour}).From(due); !from.Equal(due) {
		t.Errorf("with one receive it can be sent at %v", from)
	}
	if from := (Queue{Hop: time.Hour}).From(due); !from.IsZero() {
		t.Errorf("where nothing is known: %v", from)
	}
}

func TestDays(t *testing.T) {
	for d, want := range map[time.Duration]string{
		5 * day: "5d", 84 * time.Hour: "3d12h", 2*time.Hour + time.Nanosecond: "2h", 90 * time.Minute: "1h30m",
		10 * time.Minute: "10m", time.Second: "1s", time.Millisecond: "0s", 5*day + time.Minute: "5d", 2*time.Hour + 3*time.Minute + 4*time.Second: "2h3m",
	} {
		if got := Days(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
