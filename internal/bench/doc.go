// Package bench measures onceq against others, side by side: in each benchmark all variants take
// turns in one run on the same server, and what counts is the ratio, for the machine's speed is in
// both of its parts. It is a module of its own, so that what it compares with is nobody's
// dependency. make bench runs it.
package bench
