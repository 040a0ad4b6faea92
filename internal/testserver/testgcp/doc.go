// Package testgcp gives a test the Pub/Sub or the Firestore that internal/testserver finds, with a
// project of the test's own.
//
// The drivers' and stores' tests call it, and so does localstack, which brings the ways to start a
// server. It needs the standard library alone: rpc.go speaks as much of gRPC as it takes to ask
// what is there.
package testgcp
