package webonceq

import (
	"html"
	"regexp"
	"strings"
)

var (
	tags   = regexp.MustCompile(`(?s)<(script|style)\b.*?</(script|style)>|<[^>]*>`)
	spaces = regexp.MustCompile(`\s+`)
)

// text is what a browser shows of a screen, in one line.
func text(screen string) string {
	_, screen, _ = strings.Cut(screen, "<body")
	return strings.TrimSpace(spaces.ReplaceAllString(html.UnescapeString(tags.ReplaceAllString("<"+screen, " ")), " "))
}
