// Package claims tests what becomes of a claim: won, taken, stale or late, then how the run's end
// is judged and settled.
package claims
