// Package function holds the tests of a function's binary, run as Lambda runs it:
// localstack/lambdaruntime and adapters/sqslambda together.
package function
