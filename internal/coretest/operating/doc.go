// Package operating tests what operators see and say: rules, pauses, seats and cards, health and
// stats, events, observers, log lines and sweeps.
package operating
