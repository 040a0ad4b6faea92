// Package jobs tests how a job is sent, relayed by Forward, and led to the handler of its type by a
// Mux, and what its options and configuration may be.
package jobs
