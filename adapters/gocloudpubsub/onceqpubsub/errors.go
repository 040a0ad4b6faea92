package onceqpubsub

import (
	"context"
	"errors"
	"net/http"
	"reflect"

	"gocloud.dev/gcerrors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq/broker"
)

// A part is what a topic and a subscription have alike: gocloud asks for it of both.
type part interface {
	As(target any) bool
	IsRetryable(err error) bool
	ErrorAs(err error, target any) bool
	ErrorCode(err error) gcerrors.ErrorCode
}

// errBadMessage is an error of what the user asked for, which no repetition mends.
var errBadMessage = errors.New("onceqpubsub: the message cannot be sent")

// errorCode is gocloud's word for an error of a broker.
func errorCode(err error) gcerrors.ErrorCode {
	for _, c := range [...]struct {
		is   error
		code gcerrors.ErrorCode
	}{
		{broker.ErrNotFound, gcerrors.NotFound},
		{broker.ErrClosed, gcerrors.FailedPrecondition},
		{broker.ErrReceiptExpired, gcerrors.FailedPrecondition},
		{broker.ErrUnsupported, gcerrors.InvalidArgument},
		{broker.ErrTooLarge, gcerrors.InvalidArgument},
		{broker.ErrBadMeta, gcerrors.InvalidArgument},
		{errBadMessage, gcerrors.InvalidArgument},
		{broker.ErrThrottled, gcerrors.ResourceExhausted},
		{context.Canceled, gcerrors.Canceled},
		{context.DeadlineExceeded, gcerrors.DeadlineExceeded},
	} {
		if errors.Is(err, c.is) {
			return c.code
		}
	}
	if denied(err) {
		return gcerrors.PermissionDenied
	}
	return gcerrors.Unknown
}

// denied reports whether a service said that the caller may not. It reads what the SDKs' errors
// have in common, so that the package needs none of them.
func denied(err error) bool {
	if answer, ok := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err); ok {
		switch answer.HTTPStatusCode() {
		case http.StatusUnauthorized, http.StatusForbidden:
			return true
		}
	}
	if answer, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); ok && answer.ErrorCode() == "AccessDenied" {
		return true
	}
	if answer, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok {
		switch answer.GRPCStatus().Code() {
		case codes.PermissionDenied, codes.Unauthenticated:
			return true
		}
	}
	return false
}

// lasts reports whether an error of a receive, an ack or a nack will come again, so that gocloud
// ends the subscription. What may pass by itself is repeated.
func lasts(err error) bool { return isGone(err) || errorCode(err) == gcerrors.InvalidArgument }

// isGone reports whether an error is about the whole queue, for as long as nobody mends it.
func isGone(err error) bool {
	switch errorCode(err) {
	case gcerrors.NotFound, gcerrors.FailedPrecondition, gcerrors.PermissionDenied:
		return true
	}
	return false
}

// assign gives value to what target points at, where the types agree. It is what As does.
func assign(value, target any) bool {
	v := reflect.ValueOf(value)
	t := reflect.ValueOf(target)
	if !v.IsValid() || t.Kind() != reflect.Pointer || t.IsNil() || !v.Type().AssignableTo(t.Type().Elem()) {
		return false
	}
	t.Elem().Set(v)
	return true
}

// peel is ErrorAs: it finds an error of the broker's or the SDK's.
func peel(err error, target any) bool {
	if t := reflect.TypeOf(target).Elem(); t.Kind() != reflect.Interface && !t.Implements(reflect.TypeFor[error]()) {
		return false // errors.As panics there
	}
	return errors.As(err, target)
}
