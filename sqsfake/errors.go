package sqsfake

import (
	"fmt"
	"net/http"
)

// This file owns the errors of the API: their shapes, codes and statuses, and those that a Fault
// may name. The actions and the transport call it. Nothing is locked, because an error is a copy of
// one in the tables, and these never change.

// apiError is an error as the API answers it. The shape is the name in the model, which the
// JSON protocol puts in the body; the code is the name from the older Query protocol, which
// AWS still sends in a header and SDKs show to their users.
type apiError struct {
	shape   string
	code    string
	status  int
	message string
	// foreign shapes belong to the layer in front of SQS, not to SQS's own model.
	foreign bool
	// lost says why a receipt handle no longer holds: a batch reports that by another code.
	lost string
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

// fault says whose mistake it was, as AWS words it.
func (e *apiError) fault() string {
	if e.status >= http.StatusInternalServerError {
		return "Receiver"
	}
	return "Sender"
}

func (e *apiError) typeName() string {
	if e.foreign {
		return "com.amazon.coral.service#" + e.shape
	}
	return "com.amazonaws.sqs#" + e.shape
}

// withf is e with a message.
func (e apiError) withf(format string, args ...any) *apiError {
	e.message = fmt.Sprintf(format, args...)
	return &e
}

const legacy = "AWS.SimpleQueueService."

// own is an error of SQS's model whose code is its shape's name.
func own(shape string, status int) apiError {
	return apiError{shape: shape, code: shape, status: status}
}

// old is one whose code has the prefix of the Query protocol.
func old(shape string, status int) apiError {
	return apiError{shape: shape, code: legacy + shape, status: status}
}

func foreign(shape, code string, status int) apiError {
	return apiError{shape: shape, code: code, status: status, foreign: true}
}

// The errors of the API, as AWS's model and recordings of it have them.
var (
	errBatchIDsNotDistinct = old("BatchEntryIdsNotDistinct", 400)
	errBatchTooLong        = old("BatchRequestTooLong", 400)
	errBatchEmpty          = old("EmptyBatchRequest", 400)
	errBatchEntryID        = old("InvalidBatchEntryId", 400)
	errBatchTooMany        = old("TooManyEntriesInBatchRequest", 400)
	errAddress             = own("InvalidAddress", 404)
	errAttributeName       = own("InvalidAttributeName", 400)
	errAttributeValue      = own("InvalidAttributeValue", 400)
	errContents            = own("InvalidMessageContents", 400)
	errNotInflight         = old("MessageNotInflight", 400)
	errOverLimit           = own("OverLimit", 403)
	errPurging             = old("PurgeQueueInProgress", 403)
	errDeletedRecently     = old("QueueDeletedRecently", 400)
	errNoQueue             = apiError{shape: "QueueDoesNotExist", code: legacy + "NonExistentQueue", status: 400}
	errQueueExists         = apiError{shape: "QueueNameExists", code: "QueueAlreadyExists", status: 400}
	errHandle              = own("ReceiptHandleIsInvalid", 404)
	errThrottled           = own("RequestThrottled", 403)
	errNoResource          = own("ResourceNotFoundException", 404)
	errUnsupported         = old("UnsupportedOperation", 400)

	errParameter     = foreign("InvalidParameterValueException", "InvalidParameterValue", 400)
	errMissing       = foreign("MissingRequiredParameterException", "MissingParameter", 400)
	errOperation     = foreign("UnknownOperationException", "InvalidAction", 404)
	errSerialization = foreign("SerializationException", "MalformedInput", 400)
	errInternal      = foreign("InternalFailure", "InternalFailure", 500)
)

// injectable are the errors that a Fault may name, by code or shape, with the message that
// stands in for a missing one.
var injectable = []apiError{
	*errThrottled.withf("The request was denied due to request throttling."),
	*errOverLimit.withf("Too many messages in flight."),
	*errNoQueue.withf("The specified queue does not exist."),
	*errNotInflight.withf("The specified message isn't in flight."),
	*errHandle.withf("The input receipt handle is invalid."),
	*errParameter.withf("A parameter is invalid."),
	*errContents.withf("The message contains characters outside the allowed set."),
	*errUnsupported.withf("Unsupported operation."),
	*errAddress.withf("The specified ID is invalid."),
	*errInternal.withf("We encountered an internal error. Please try again."),
	owned("InvalidSecurity", "InvalidSecurity", 403, "The request was not made over HTTPS or did not use SigV4 for signing."),
	owned("KmsAccessDenied", "KMS.AccessDeniedException", 400, "The caller doesn't have the required KMS access."),
	owned("KmsDisabled", "KMS.DisabledException", 400, "The specified KMS key isn't enabled."),
	owned("KmsThrottled", "KMS.ThrottlingException", 400, "Amazon Web Services KMS throttles requests."),
	owned("InvalidIdFormat", "InvalidIdFormat", 404, "The specified receipt handle isn't valid for the current version."),
	*new(foreign("AccessDeniedException", "AccessDenied", 403)).withf("Access to the resource is denied."),
	*new(foreign("ThrottlingException", "Throttling", 400)).withf("Rate exceeded"),
	*new(foreign("ServiceUnavailableException", "ServiceUnavailable", 503)).withf("The service is temporarily unavailable."),
	*new(foreign("ExpiredTokenException", "ExpiredToken", 403)).withf("The security token included in the request is expired."),
	*new(foreign("InvalidClientTokenId", "InvalidClientTokenId", 403)).withf("The security token included in the request is invalid."),
	*new(foreign("RequestExpired", "RequestExpired", 400)).withf("Request has expired."),
}

func owned(shape, code string, status int, message string) apiError {
	return apiError{shape: shape, code: code, status: status, message: message}
}

// injected is the error that a fault names, or one made of the name where none is known.
func injected(name, message string, status int) *apiError {
	e := foreign(name, name, http.StatusBadRequest)
	if status >= http.StatusInternalServerError {
		e = errInternal
		e.message = "We encountered an internal error. Please try again."
		if name != "" {
			e.shape, e.code = name, name
		}
	}
	for _, k := range injectable {
		if name != "" && (k.shape == name || k.code == name) {
			e = k
			break
		}
	}
	if message != "" {
		e.message = message
	}
	if status != 0 {
		e.status = status
	}
	return &e
}

// badValue is AWS's sentence for a parameter with a wrong value.
func badValue(parameter string, value any, reason string) *apiError {
	return errParameter.withf("Value %v for parameter %s is invalid. Reason: %s", value, parameter, reason)
}

// lostReceipt answers a receipt handle that was good and no longer holds.
func lostReceipt(handle, reason string) *apiError {
	err := badValue("ReceiptHandle", handle, reason)
	err.lost = reason
	return err
}

// inBatch is e as a batch's entry reports it.
func (e *apiError) inBatch() *apiError {
	if e == nil || e.lost == "" {
		return e
	}
	return errHandle.withf("%s", e.lost)
}

func missing(parameter string) *apiError {
	return errMissing.withf("The request must contain the parameter %s.", parameter)
}
