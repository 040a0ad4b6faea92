package firestorefake

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq/internal/fakeserver"
)

// Fault makes calls go wrong. The first part says which calls, the second what happens to them.
// The zero Fault hits every call and does nothing. Of the faults that a server has, the first that
// fits a call is used.
type Fault struct {
	// Method is the API's name for the calls, such as "BatchWrite"; "" means all.
	Method string
	// Skip lets so many of these calls go by before the first one is hit.
	Skip int
	// Count is how many are hit from then on; 0 means no end.
	Count int
	// Rate is the part of them that is hit, drawn anew for each; 0 means all.
	Rate float64
	// For ends the fault so long after it was set; 0 means never.
	For time.Duration

	// Delay passes before the call is applied. When the caller gives up first, nothing is.
	Delay time.Duration
	// ReplyDelay passes after the call was applied, before its answer.
	ReplyDelay time.Duration
	// Code answers with an error, and Message with its text; "" means the code's name.
	Code    codes.Code
	Message string
	// Silence gives no answer at all, until the caller gives up or the server is closed.
	Silence bool
	// Applied applies the call all the same: with Silence or Code the answer is lost and the change
	// is made.
	Applied bool
	// Entries fails the writes at these places of a BatchWrite with Code, counted from 0, and does
	// not apply them unless Applied is set. The others go through.
	Entries []int
}

// whole reports whether the call as a whole fails.
func (f *Fault) whole() bool { return f.Silence || len(f.Entries) == 0 && f.Code != codes.OK }

func (f *Fault) when() fakeserver.When {
	return fakeserver.When{Skip: f.Skip, Count: f.Count, Rate: f.Rate, For: f.For}
}

var methods = []string{"BatchWrite", "Commit", "BeginTransaction", "Rollback", "BatchGetDocuments", "RunQuery"}

// SetFaults replaces the server's faults; without an argument there are none. Counting begins
// anew. It may be called at any time. A fault with a Method that the server does not have would
// never be seen: it panics.
func (s *Server) SetFaults(fs ...Fault) {
	for i, f := range fs {
		if f.Method != "" && !slices.Contains(methods, f.Method) {
			panic(fmt.Sprintf("firestorefake: fault %d: there is no method %q", i, f.Method))
		}
	}
	s.faults.Set(fs, (*Fault).when)
}

// A Refusal is what the service answers to a call that it does not let happen, as somebody has
// reported it. The emulator has none of these.
type Refusal struct {
	Name    string
	Code    codes.Code
	Message string
	// Source is where it was reported.
	Source string
}

// Fault lets the calls of a method fail so; "" means all methods.
func (r Refusal) Fault(method string) Fault {
	return Fault{Method: method, Code: r.Code, Message: r.Message}
}

const reported = "https://github.com/"

// Refusals are the service's words for what people have to mend, and for what they meet under load.
// A security rule refuses none of the store's calls, because rules are not for servers' clients.
func Refusals() []Refusal {
	return []Refusal{
		{
			"Datastore mode", codes.FailedPrecondition,
			"The Cloud Firestore API is not available for Firestore in Datastore Mode database projects/p/databases/(default).",
			reported + "dbcodeio/public/issues/673",
		},
		{
			"no database", codes.NotFound,
			"The project p does not exist or it does not contain an active Cloud Datastore or Cloud Firestore database. " +
				"Please visit http://console.cloud.google.com to create a project or " +
				"https://console.cloud.google.com/datastore/setup?project=p to add a Cloud Datastore or Cloud Firestore database. " +
				"Note that Cloud Datastore or Cloud Firestore always have an associated App Engine app and this app must not be disabled.",
			reported + "googleapis/nodejs-firestore/issues/991",
		},
		{
			"the API is switched off", codes.PermissionDenied,
			"Cloud Firestore API has not been used in project p before or it is disabled. Enable it by visiting " +
				"https://console.developers.google.com/apis/api/firestore.googleapis.com/overview?project=p then retry. If you enabled this API " +
				"recently, wait a few minutes for the action to propagate to our systems and retry.",
			reported + "GoogleCloudPlatform/spring-cloud-gcp/issues/2205",
		},
		{
			"no role", codes.PermissionDenied, "Missing or insufficient permissions.",
			reported + "googleapis/google-cloud-java/issues/7697",
		},
		{
			"quota", codes.ResourceExhausted, "Quota exceeded.",
			reported + "firebase/firebase-js-sdk/issues/8318",
		},
		{
			"a hot document", codes.Aborted, tooMuchContention,
			reported + "googleapis/nodejs-firestore/issues/827",
		},
		{
			"transactions that meet", codes.Aborted, crossTransaction,
			reported + "golang/oscar/issues/49",
		},
	}
}

const (
	tooMuchContention = "Too much contention on these documents. Please try again."
	crossTransaction  = "Aborted due to cross-transaction contention. This occurs when multiple transactions attempt to access the same data, " +
		"requiring Firestore to abort at least one in order to enforce serializability."
)
