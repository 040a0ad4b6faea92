package rig

import (
	"context"
	"runtime"
	"strings"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/retry"
)

// Pass lets virtual time go by, and what happens in it. Only the test's own goroutine calls it.
func Pass(d time.Duration) {
	Takes(d)
	synctest.Wait()
}

// Takes is a handler's work, or a server's.
func Takes(d time.Duration) { retry.Rest(context.Background(), d) }

// Busy works for d, or until its context ends.
func Busy(ctx context.Context, d time.Duration) error {
	if !retry.Rest(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// Works is a handler that is busy for d.
func Works(d time.Duration) onceq.HandlerFunc {
	return func(ctx context.Context, _ *onceq.Job) error { return Busy(ctx, d) }
}

// Goroutine is the caller's number.
func Goroutine() string {
	buf := make([]byte, 64)
	return strings.Fields(string(buf[:runtime.Stack(buf, false)]))[1]
}
