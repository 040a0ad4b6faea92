package records

import "fmt"

// maxName is the longest name of a table, or of its schema, in bytes. What is named after it gets
// some bytes more, and PostgreSQL cuts names off at 63.
const maxName = 48

// CheckName refuses a name that cannot stand in a statement as it is. field says, in the error,
// which store's and whose name it is.
func CheckName(field, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is empty", field)
	case len(name) > maxName:
		return fmt.Errorf("%s has %d bytes, the limit is %d", field, len(name), maxName)
	}
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("%s is %q; letters, digits and underscores may be used, and no digit first", field, name)
		}
	}
	return nil
}
