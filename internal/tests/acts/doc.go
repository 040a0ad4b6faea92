// Package acts is all tests: ops.Board and ops.Running over queues of SQS, beside real workers.
package acts
