// Package httponceq lets an HTTP server answer each request once, by the Idempotency-Key header. A
// client that has lost an answer asks again with the same key, and gets the first answer, whatever
// crashed meanwhile. The package is built on [onceq.Do] and keeps the answers in a dedupe store.
// Requests that come at the same time, to any number of processes, get one run.
//
//	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "payments"})
//	once, err := httponceq.New(p, httponceq.Options{Client: whoAsks})
//	mux.Handle("POST /payments", once(http.HandlerFunc(pay)))
//
// What a client gets follows draft-ietf-httpapi-idempotency-key-header. Refusals are
// application/problem+json (RFC 9457):
//
//	the handler's answer                  it ran now
//	the same, Idempotency-Replayed: true  it ran before
//	204, Idempotency-Replayed: true       an operator resolved the job as done: there is no answer
//	400                                   no key, an empty one, several, one above 255 bytes, not
//	                                      UTF-8, or a string without its end
//	401                                   Options.Client knows nobody
//	409, Retry-After                      the key's request is still worked on after Options.Wait,
//	                                      or when the context of the one that waits ends
//	413                                   the body has more than Options.MaxBody bytes
//	422                                   the key was used for another request
//	503, Retry-After                      the store does not answer; this request did nothing
//	500                                   it failed or is parked: a person must look at it
//
// A handler may run again for the same request in three cases:
//
//   - Its process died before the answer was recorded.
//   - Its answer is one that is not kept, see [Options].Keep.
//   - It panicked.
//
// So an effect of it elsewhere needs a key of its own. [Job] gives the request's job, and
// [onceq.Job.EffectKey] gives a key that is equal over all runs. APIs that keep a decline under its
// key give that decline again to each of the runs. There an answer that declines is final for its
// Idempotency-Key.
//
// Requests are told apart by method, path, query and body, as the client sent them. So let no
// handler outside of the middleware read the body. One may parse a form, and the digest takes its
// values and files then. A body that was read in another way gets a 500, where the request's
// Content-Length shows it. Content-Type and Content-Encoding tell no requests apart: the same bytes
// under another type get the first answer.
//
// The handler sees the headers that handlers outside have set on the answer, and may change them.
// What it changed is kept. A replay has the headers that those handlers set for it, and the changes
// on top: their cookies are of the request that is answered.
//
// A request holds its body in memory until it is answered, also while it waits for another one
// ([Options].Wait) or for a store that is away, ten seconds at most. So 200 that wait with 1 MiB
// each take 200 MiB; MaxBody bounds it.
//
// GET, HEAD, OPTIONS and TRACE change nothing, so the middleware lets them pass. An answer is held
// in memory until it is recorded, so nothing can be streamed: [http.ResponseController] answers
// [http.ErrNotSupported]. Trailers and cookies go with the first answer alone.
package httponceq
