// Package pubsubpush runs an onceq Processor behind a push subscription of Google Pub/Sub, and
// behind Eventarc: an http.Handler for Cloud Run, or any other server.
//
//	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: pay, Store: store, Scope: "shop"})
//	batches, err := p.Batches(onceq.BatchConfig{DeadLetter: dead})
//	h, err := pubsubpush.New(batches, pubsubpush.Options{
//		Auth:        pubsubpush.OIDC{Audience: endpoint, ServiceAccount: pusher},
//		AckDeadline: 60 * time.Second, // the subscription's
//	})
//	mux.Handle("POST /push", h)
//	…
//	<-sigterm                     // Cloud Run gives ten seconds
//	err = h.Shutdown(nineSeconds) // then the server's own
//
// # What Pub/Sub is told
//
// Pub/Sub takes a 204 for an acknowledgement. Any other answer is a failure, and so is none within
// the subscription's acknowledgement deadline: the message comes again. Pushes that fail slow the
// whole subscription down. So what can never succeed is a dead letter and a 204, and
// [Handler.ServeHTTP] has the list of answers. Do not use onceq.KeepInQueue here: the message of a
// job that failed for good would fail again and again.
//
// A push cannot be extended. The handler's context ends Options.Reserve before AckDeadline, or a
// quarter of it. Jobs that take longer than 595 s need the pull driver. A job that begins in the
// second half of its request's time, because another owner had it before, is not to blame when that
// ends: it is handed back uncounted. Its context reports no deadline.
//
// The delay of a retry is the subscription's: a push knows no other. So give it a retry policy. A
// job that may not start yet (broker.Meta.NotBefore), or that was postponed (onceq.Postpone, a
// limiter), is waited for inside the request. Where there is no time for that, it is a failed push,
// and counts toward the dead-letter policy's attempts. A postponed job may then run sooner than it
// asked; onceq.Sleep says what is left of it.
//
// # Duplicates
//
// Pub/Sub delivers at least once, and may push a message while an earlier push of it is still
// worked on. Each request claims the job's key. One runs; the others wait until that is over, and
// then find it done (204), or get a 409 in the second half of their own time. A claim lasts a Lease
// and is renewed while the job runs. So an instance that dies holds its jobs for 30 s, not for
// AckDeadline. A claim and its end are two writes; a job longer than a third of a Lease renews it
// besides.
//
// When the client has gone, the job goes on, and its end is recorded. The message comes again and
// is found done.
//
// # The forms of a request
//
//	wrapped     the envelope of Pub/Sub, which is the default
//	unwrapped   the message's data, with the metadata in headers: needs --push-no-wrapper and
//	            --push-no-wrapper-write-metadata, because a request without an id cannot be
//	            claimed. Attributes are headers then, so Options.Attributes names those that are
//	            wanted.
//	Eventarc    the envelope, or the data of another service's event, with ce- headers. These
//	            become attributes, and the ce-id is the id of an event that is no message of a
//	            topic.
//
// Producers that do not use onceq give a message no key. Set onceq.ProcessorConfig.Key before the
// first start. For Eventarc, attribute "ce-id" is the same in each delivery of an event.
//
// # Who may push
//
// Options.Auth has no default. [OIDC] checks the token of the subscription's push authentication
// itself. [IAM] leaves that to Cloud Run, whose service must not allow unauthenticated calls.
// [None] believes anybody.
//
// # Order
//
// Where the subscription orders messages, Pub/Sub pushes the next one of a key when the one before
// was answered with success. A key whose message fails holds back the key's other messages, until
// it is done or a dead letter.
//
// The page docs/backend-cloudrun.md derives the settings, with Terraform and gcloud to paste.
package pubsubpush
