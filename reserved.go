package onceq

import (
	"strings"

	"github.com/onceq/onceq/dedupe"
)

// reserved marks the scopes that are onceq's own.
const reserved = ":"

// checkKey refuses what no store takes, and what is onceq's own.
func checkKey(k dedupe.Key) error {
	if err := k.Validate(); err != nil {
		return err
	}
	if strings.HasPrefix(k.Scope, reserved) {
		return &reservedError{k.Scope}
	}
	return nil
}

type reservedError struct{ scope string }

func (e *reservedError) Error() string {
	return "onceq: the scope " + e.scope + " is reserved: no scope of yours may begin with a ':'"
}

func (e *reservedError) Unwrap() error { return dedupe.ErrBadKey }

func checkScope(field, s string) error {
	if err := (dedupe.Key{Scope: s, Key: "k"}).Validate(); err != nil {
		return badConfig(field, "%v", err)
	}
	return nil
}
