package gcppubsub

import (
	"fmt"
	"strings"
)

// maxResource and minResource are the bytes of the last part of a name.
const minResource, maxResource = 3, 255

// checkName refuses what is no full name of a topic or a subscription; kind is "topics" or
// "subscriptions".
func checkName(kind, name string) error {
	bad := func(why string) error {
		return fmt.Errorf("gcppubsub: New: %q is not of the form projects/PROJECT/%s/NAME: %s", name, kind, why)
	}
	p := strings.Split(name, "/")
	switch {
	case len(p) != 4 || p[0] != "projects" || p[2] != kind:
		return bad("it has other parts")
	case p[1] == "" || strings.Trim(p[1], "abcdefghijklmnopqrstuvwxyz0123456789-.:") != "":
		return bad("the project's id has a-z, 0-9, '-', '.' and ':'")
	case len(p[3]) < minResource || len(p[3]) > maxResource:
		return bad(fmt.Sprintf("the last part has %d bytes, want %d to %d", len(p[3]), minResource, maxResource))
	case strings.HasPrefix(strings.ToLower(p[3]), "goog"):
		return bad("Google reserves names that begin with goog")
	}
	for i, c := range []byte(p[3]) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || (c < '0' || c > '9') && !strings.ContainsRune("-_.~+%", rune(c))) {
			return bad("the last part begins with a letter and has letters, digits and -_.~+%")
		}
	}
	return nil
}

// last is the last part of a name.
func last(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
