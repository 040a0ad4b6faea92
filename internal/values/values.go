// Package values looks at what a user has put into an interface.
package values

import "reflect"

// IsNil also sees a nil pointer in an interface.
func IsNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan, reflect.Slice:
		return r.IsNil()
	default: // of the other kinds no value is nil
		return false
	}
}

// Same tells whether two interfaces hold the same thing.
func Same(a, b any) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}
