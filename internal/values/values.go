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

// depth bounds how far As and Same unwrap, because a wrapper may wrap itself.
const depth = 8

// As is v as a T, or what v wraps: what its Unwrap leads to, at most depth levels down.
func As[T any](v any) (T, bool) {
	for range depth {
		if t, ok := v.(T); ok {
			return t, true
		}
		inner, ok := unwrap(v)
		if !ok {
			break
		}
		v = inner
	}
	t, ok := v.(T)
	return t, ok
}

// unwrap is what v wraps, if anything. A nil pointer in an interface wraps nothing.
func unwrap(v any) (any, bool) {
	w, ok := v.(interface{ Unwrap() any })
	if !ok || IsNil(v) {
		return nil, false
	}
	inner := w.Unwrap()
	return inner, inner != nil
}

// Same reports whether two interfaces hold the same thing, also where one or both wrap it.
func Same(a, b any) bool {
	a, b = innermost(a), innermost(b)
	return reflect.TypeOf(a) == reflect.TypeOf(b) && (a == nil || reflect.ValueOf(a).Comparable() && a == b)
}

func innermost(v any) any {
	for range depth {
		inner, ok := unwrap(v)
		if !ok {
			break
		}
		v = inner
	}
	return v
}
