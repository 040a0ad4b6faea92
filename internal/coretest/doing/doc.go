// Package doing tests Do: calls without a queue, how they wait for each other, and what they leave
// behind when one is cut off.
package doing
