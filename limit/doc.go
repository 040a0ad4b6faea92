// Package limit keeps jobs from what they use up: an API's requests a minute, a database's
// connections, a tenant's share, a provider that is away.
//
//	perTenant, err := limit.Rate(10, time.Second)
//	…
//	mux.Use(limit.Middleware(perTenant, func(j *onceq.Job) string { return j.Message.Attributes["tenant"] }))
//
// There are four:
//
//   - [Rate] bounds how many jobs of a key begin in a time, in this process.
//   - [Shared] does so over all processes that use one store.
//   - [Slots] bounds how many run at once, over all processes.
//   - A [Breaker] stops a worker while what its jobs need is away.
//
// A limiter is a middleware: it is asked after the claim. A job that must wait for a second or
// longer is given a time of its own and goes back to the queue until then, see [onceq.Postpone]. So
// it holds no slot, it takes no room from other tenants, and no attempt is counted. It costs one
// claim, one release and one receive more. A shorter wait is waited in the slot.
//
// No process leads, and nothing is counted up and down: what many processes must agree on are
// claims in the store of idempotency keys, which end by themselves when their owner dies.
//
// Under [dedupe.Park] a worker that dies while a job waits in its slot parks the job, as after any
// start. A wait in the slot counts against JobOptions.Timeout. In [onceq.Do] there is no message
// that could come again: a limiter's word is f's error.
//
// Experimental: it may change in any minor version. docs/release.md says what that means.
package limit
