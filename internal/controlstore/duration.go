package controlstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/durations"
)

// minFor is the shortest rule. A shorter one would be over before most workers have read it.
const minFor = time.Second

// ParseFor reads for how long a rule is to hold, as people write it: "10m", "1h30m", "2d". The
// error wraps [ErrInvalid] and says what is wrong, without the name of a flag: a number without a
// unit, a time below a second, one above 30 days.
func ParseFor(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("%w: %s has no unit; want 10m, 1h", control.ErrInvalid, text)
	}
	d, ok := parseDays(text)
	if !ok {
		return 0, fmt.Errorf("%w: %q is no duration; want 10m, 1h, 2d", control.ErrInvalid, text)
	}
	if err := CheckFor(d); err != nil {
		return 0, err
	}
	return d, nil
}

// CheckFor refuses a duration for which no rule may hold: below a second, or above 30 days. The
// error wraps [ErrInvalid].
func CheckFor(d time.Duration) error {
	switch {
	case d <= 0:
		return fmt.Errorf("%w: %v is not above 0; want 10m, 1h", control.ErrInvalid, d)
	case d < minFor:
		return fmt.Errorf("%w: %s", control.ErrInvalid, durations.Below(d, minFor))
	case d > MaxUntil:
		return fmt.Errorf("%w: %s is above the limit of %s", control.ErrInvalid, days(d), days(MaxUntil))
	}
	return nil
}

// parseDays is time.ParseDuration that also knows days, as the first part.
func parseDays(text string) (time.Duration, bool) {
	var whole time.Duration
	if n, rest, found := strings.Cut(text, "d"); found {
		days, err := strconv.ParseUint(n, 10, 16)
		if err != nil {
			return 0, false
		}
		if whole, text = time.Duration(days)*24*time.Hour, rest; text == "" {
			return whole, true
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || whole > 0 && d < 0 {
		return 0, false
	}
	return durations.Sum(whole, d), true
}
