package firestorestore

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxTries of a request that is not answered, or throttled, take about half a minute; most contexts
// end before.
const maxTries = 12

// tightErr is how many bytes of an error's class and of its text are kept if a large state leaves
// no room for more.
const tightErr = 100

func short(s string) string {
	s = clean(s)
	return s[:min(len(s), tightErr)]
}

// silent marks an error that says nothing of the entry: nobody knows whether it was applied, or the
// error is of the call or the service.
type silent struct{ error }

func (e silent) Unwrap() error { return e.error }

// explain says what was being done, in a form that errors.Is and errors.As see through, and where
// the service's word has a cause that people can mend, which one. What it returns is silent.
func (s *Store) explain(ctx context.Context, call string, err error) error {
	if err == nil {
		return nil
	}
	if end := ctx.Err(); end != nil {
		return silent{fmt.Errorf("firestorestore: %s: the outcome is unknown: %w: %w", call, end, err)}
	}
	if why := s.hint(err); why != "" {
		return silent{fmt.Errorf("firestorestore: %s: %w (%s)", call, err, why)}
	}
	return silent{fmt.Errorf("firestorestore: %s: %w", call, err)}
}

// hint tells what to do about an error of the service, "" where nothing is known of it.
func (s *Store) hint(err error) string {
	text := strings.ToLower(status.Convert(err).Message())
	switch status.Code(err) {
	case codes.NotFound:
		return "is there a database " + s.database + "? gcloud firestore databases create makes one, of type firestore-native"
	case codes.FailedPrecondition:
		switch {
		case strings.Contains(text, "datastore mode"):
			return "the store needs a database in native mode: " + s.database + " is in Datastore mode, and the mode of a database with data does not change"
		case strings.Contains(text, "index"):
			return "the field's single-field index is switched off for the collection group: List needs that of " + fieldAttention +
				", ascending, and Sweep that of " + s.ttl
		}
	case codes.PermissionDenied:
		if strings.Contains(text, "has not been used") || strings.Contains(text, "disabled") {
			return "gcloud services enable firestore.googleapis.com switches the API on"
		}
		return "the service account needs roles/datastore.user on the project of " + s.database
	case codes.Unauthenticated:
		return "no credentials came along: see Application Default Credentials"
	case codes.ResourceExhausted:
		return "a quota is used up, or the load grew faster than by half in five minutes"
	}
	return ""
}

// passes reports whether a call with that code may be answered when it is made again.
func passes(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.Canceled:
		return true
	}
	return false
}
