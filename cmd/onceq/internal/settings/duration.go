package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseDuration is [time.ParseDuration] with days: 30d, 1d12h. A bare number has no unit, and the
// error asks for it.
func ParseDuration(s string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		if n == 0 {
			return 0, nil
		}
		return 0, fmt.Errorf("%s has no unit; want %sm, 1h", s, s)
	}
	rest, days := s, time.Duration(0)
	if head, tail, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.Atoi(head)
		if err != nil || n < 0 || n > 36500 {
			return 0, fmt.Errorf("%q is no time such as 90s, 10m, 1h or 7d", s)
		}
		days, rest = time.Duration(n)*24*time.Hour, tail
		if rest == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || days > 0 && (d < 0 || days+d < 0) { // 1d-5h, or more than an int64 holds
		return 0, fmt.Errorf("%q is no time such as 90s, 10m, 1h or 7d", s)
	}
	return days + d, nil
}
