// Package producers holds programs in Python and TypeScript that send jobs to onceq's workers, 30
// lines each, without a dependency of ours. They are to be copied. The metadata that they write is
// docs/record.md's, and the tests run them, with the real clients, against the fakes.
package producers
