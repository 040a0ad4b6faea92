// Package batches tests Batches, which runs deliveries that somebody else received, and Bulk,
// whose handler takes many jobs in one call.
package batches
