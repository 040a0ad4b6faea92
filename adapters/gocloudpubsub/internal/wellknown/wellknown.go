// Package wellknown holds the words that both directions of gocloud read in a message's metadata.
package wellknown

// Key is the metadata under which a publisher names the job's idempotency key. Programs write it
// into messages, so it never changes.
const Key = "onceq-key"
