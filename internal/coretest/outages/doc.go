// Package outages tests what the root does while a store or a queue is away, refuses or went back
// in time. Its soak plays random worlds in which all of it happens.
package outages
