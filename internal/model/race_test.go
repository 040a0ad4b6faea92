//go:build race

package model

// raced: the race detector makes exploring twenty times slower, and finds nothing in one goroutine.
const raced = true
