// Package life tests a worker's life: polling, slots, groups, beats, drains and pauses. It holds
// the benchmarks Worker and SendToAck too.
package life
