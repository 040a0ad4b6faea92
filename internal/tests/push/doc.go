// Package push runs a push endpoint behind Google's Pub/Sub emulator, where there is one: real
// pushes over HTTP, a job that fails once, and an answer that is lost on its way.
package push
