package sqlitewriter

import "time"

// TimeLayout has a fixed width, so that text compares as time does.
const TimeLayout = "2006-01-02T15:04:05.000000000Z07:00"

// TimeText is NULL for the zero time.
func TimeText(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(TimeLayout)
}
