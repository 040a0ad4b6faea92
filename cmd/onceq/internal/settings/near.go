package settings

import (
	"fmt"
	"strings"
)

// DidYouMean names the nearest of some names, where one is near.
func DidYouMean(name string, all []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, other := range all {
		if d := distance(name, other); d < least {
			best, least = other, d
		}
	}
	switch {
	case best != "":
		return ": did you mean " + best + "?"
	case len(all) > 0 && len(all) <= 12:
		return fmt.Sprintf("; there is %s", strings.Join(all, ", "))
	}
	return ""
}

// distance is how many characters must change, come or go to make b of a.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		before := row[0]
		row[0] = i + 1
		for j := range y {
			cost := before
			if x[i] != y[j] {
				cost++
			}
			before = row[j+1]
			row[j+1] = min(cost, row[j]+1, before+1)
		}
	}
	return row[len(y)]
}
