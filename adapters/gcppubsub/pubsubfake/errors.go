package pubsubfake

import (
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What ErrorInfo says of an ack id that failed.
const (
	permanentInvalid     = "PERMANENT_FAILURE_INVALID_ACK_ID"
	transientUnordered   = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
	transientUnavailable = "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE"
)

// texts are the messages of errors that faults bring.
var texts = map[codes.Code]string{
	codes.Unavailable:       "The service was unable to fulfill your request. Please try again.",
	codes.PermissionDenied:  "User not authorized to perform this action.",
	codes.ResourceExhausted: "Quota exceeded.",
	codes.Internal:          "A service error has occurred. Please retry your request.",
	codes.DeadlineExceeded:  "Deadline exceeded.",
	codes.Unauthenticated:   "Request had invalid authentication credentials.",
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// outOfRange refuses a field of a call.
func outOfRange(field string, value any, want string) error {
	return invalid("The value for %s is out of bounds. You passed %v in the request, but the value must be %s.", field, value, want)
}

func notFound(name string) error {
	return status.Errorf(codes.NotFound, "Resource not found (resource=%s).", name)
}

func exists(name string) error {
	return status.Errorf(codes.AlreadyExists, "Resource already exists in the project (resource=%s).", name)
}

func unimplemented(format string, args ...any) error {
	return status.Error(codes.Unimplemented, "pubsubfake: "+fmt.Sprintf(format, args...))
}

// ackIDsFailed names the ack ids that failed on a subscription with exactly-once delivery.
func ackIDsFailed(failed map[string]string) error {
	st := status.New(codes.InvalidArgument, "Some acknowledgement ids in the request were invalid. "+
		"This could be because the acknowledgement ids have expired or the acknowledgement ids were malformed.")
	detailed, err := st.WithDetails(&errdetails.ErrorInfo{
		Reason: "EXACTLY_ONCE_ACKID_FAILURE", Domain: "pubsub.googleapis.com", Metadata: failed,
	})
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}
