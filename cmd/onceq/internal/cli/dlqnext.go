package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/dlq"
)

// restLine says what becomes of letters that a plan does not list; empty = there are none.
func (a *app) restLine(p *dlq.Plan, done string) string {
	r := p.Rest
	switch {
	case r == nil:
		return ""
	case hasMost(p) && r.About > 0:
		return fmt.Sprintf("  about %s more were not looked at, because --max is reached", out.Int(r.About))
	case hasMost(p):
		return ""
	}
	line := "  there may be more"
	if r.About > 0 {
		line = fmt.Sprintf("  about %s more were not looked at", out.Int(r.About))
	}
	line += fmt.Sprintf(": those that the filters choose, and that failed before %s, are %s too", a.until(p.Made), done)
	if r.Filter.Max > 0 {
		line += fmt.Sprintf(", up to %s in all", out.Int(r.Filter.Max))
	}
	return line
}

// hasMost reports whether a plan lists as many letters as its --max allows, so that no other goes.
func hasMost(p *dlq.Plan) bool { return p.Rest.Filter.Max > 0 && len(p.Letters) >= p.Rest.Filter.Max }

// reach is how many letters an act may reach, as its question names them.
func reach(p *dlq.Plan, n int, act string) (want, text string) {
	text = act + " " + out.Plural(n, "letter", "letters")
	if p.Rest == nil || hasMost(p) {
		return strconv.Itoa(n), text
	}
	all := n + p.Rest.About
	if most := p.Rest.Filter.Max; most > 0 {
		all = min(all, most)
	}
	return strconv.Itoa(all), text + ", and what fits of about " + out.Int(p.Rest.About) + " more"
}

// again are the filters as flags.
func (f *filters) again() string {
	var b strings.Builder
	for _, f := range [...][2]string{
		{"class", f.class}, {"group", f.group}, {"type", f.typ}, {"key", f.key}, {"since", f.since}, {"until", f.until}, {"match", f.match},
	} {
		if f[1] != "" {
			b.WriteString(" " + flagged(f[0], f[1]))
		}
	}
	if f.most > 0 {
		fmt.Fprintf(&b, " --max %d", f.most)
	}
	return b.String()
}
