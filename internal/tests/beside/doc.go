// Package beside is all tests: workers of onceq on one queue with what others have written. An old
// worker that goes on while the new ones start is how a service comes to onceq.
package beside
