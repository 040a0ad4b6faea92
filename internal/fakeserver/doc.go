// Package fakeserver is what the fake servers, sqsfake and pubsubfake, have in common: faults that
// hit some calls, a log of calls, the control over HTTP, lists, and the words of their options. It
// knows no queue: what a call is, what a fault does, and all state are the servers' own.
package fakeserver
