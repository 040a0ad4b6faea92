// Package watermill is all tests: Watermill's own suite on each of onceq's brokers, and its
// metadata through servers. A module's tests bring what they import to all who require it. Here
// Pub/Sub's clients and the AWS SDK do not come with watermillonceq.
package watermill
