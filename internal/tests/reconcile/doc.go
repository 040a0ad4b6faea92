// Package reconcile is all tests: ops.Reconcile and ops.Resend beside real stores and workers.
package reconcile
