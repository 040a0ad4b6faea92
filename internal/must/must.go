// Package must lets a test make what it needs in one line.
package must

// Get is v. Where there is an error it panics: the test cannot begin.
func Get[T any](v T, err error) T {
	if err != nil {
		panic(err) // invariant: what a test makes for itself can be made
	}
	return v
}
