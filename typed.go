package onceq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/verdict"
)

// JSON is a Handler for bodies that are JSON. A body that does not decode into a T fails the job
// for good, class "decode", because repeating would not change it. The error's text is logged, and
// goes into the letter. It names the place, and quotes no number of the body. A T with an
// UnmarshalJSON of its own may quote what it likes. A nil f makes a nil Handler.
func JSON[T any](f func(ctx context.Context, j *Job, v T) error) Handler {
	if f == nil {
		return nil
	}
	return HandlerFunc(func(ctx context.Context, j *Job) error {
		v, err := decode[T](j)
		if err != nil {
			return err
		}
		return f(ctx, j, v)
	})
}

// JSONResult does what [JSON] does, and keeps what f returns with the key, as JSON: see [Result]. A
// result that cannot be encoded, or is larger than the store takes, fails the job for good, class
// "result". Its effect has happened, and running the job again would repeat that.
func JSONResult[T, R any](f func(ctx context.Context, j *Job, v T) (R, error)) Handler {
	if f == nil {
		return nil
	}
	return HandlerFunc(func(ctx context.Context, j *Job) error {
		v, err := decode[T](j)
		if err != nil {
			return err
		}
		result, err := f(ctx, j, v)
		if err != nil {
			return err
		}
		return keep(j, result)
	})
}

// keep stores v with the key. Its errors are permanent, because the effect has happened.
func keep(j *Job, v any) error {
	b, err := engine.Guard(func() ([]byte, error) { return json.Marshal(v) })
	if err != nil {
		return Permanent(verdict.Classed(ClassResult, "onceq: the result does not encode: %w", err))
	}
	if err := j.SetResult(b); err != nil {
		return Permanent(&verdict.ClassError{Class: ClassResult, Err: err})
	}
	return nil
}

func decodeResult[R any](k dedupe.Key, b []byte) (v R, err error) {
	if b == nil {
		return v, nil
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, verdict.Classed(ClassResult, "onceq: the result of %v does not decode into %T: %w", k, v, err)
	}
	return v, nil
}

func decode[T any](j *Job) (v T, err error) {
	if err := json.Unmarshal(j.Message.Body, &v); err != nil {
		return v, Permanent(verdict.Classed(ClassDecode, "onceq: the body of %d bytes does not decode into %T: %w", len(j.Message.Body), v, unquoted(err)))
	}
	return v, nil
}

// unquoted leaves the body's own numbers out of the text of an error, because that is logged and
// put into the letter. One of them may be a card's.
func unquoted(err error) error {
	var t *json.UnmarshalTypeError
	if !errors.As(err, &t) {
		return err
	}
	kind, _, _ := strings.Cut(t.Value, " ")
	return &unquotedError{fmt.Sprintf("json: cannot unmarshal %s at byte %d into %s of type %v", kind, t.Offset, cmp.Or(t.Field, "a value"), t.Type), err}
}

type unquotedError struct {
	text string
	err  error
}

func (e *unquotedError) Error() string { return e.text }
func (e *unquotedError) Unwrap() error { return e.err }

// Result reads what is recorded for a key: its status and, when it is done, the result that
// JSONResult or CompleteTx stored. The status is 0 when there is no record. A done job without a
// result gives the zero R.
func Result[R any](ctx context.Context, s dedupe.Store, k dedupe.Key) (v R, st dedupe.Status, err error) {
	if err := k.Validate(); err != nil {
		return v, 0, err
	}
	rs, err := s.Get(ctx, []dedupe.Key{k})
	switch {
	case err != nil:
		return v, 0, err
	case len(rs) != 1:
		return v, 0, fmt.Errorf("onceq: the store answered %d of 1 keys", len(rs))
	case rs[0] == nil:
		return v, 0, nil
	}
	r := rs[0]
	if r.Status == dedupe.Done {
		v, err = decodeResult[R](k, r.Result)
	}
	return v, r.Status, err
}
