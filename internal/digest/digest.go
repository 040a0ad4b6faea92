// Package digest hashes lists of texts. Each text is written behind its length, so that two lists
// that differ only in where a text ends have different sums.
//
// Its sums are idempotency keys, and ids that a queue compares: they never change. What is to be
// hashed is gathered in a slice first, because a hash behind an interface costs allocations.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
)

// Of is the short SHA-256 of the texts, in hexadecimal digits.
func Of(texts ...string) string {
	b := make([]byte, 0, 256) // on the stack
	for _, t := range texts {
		b = text(b, t)
	}
	return Hex(b)
}

// Texts appends each text behind its length.
func Texts(b []byte, texts ...string) []byte {
	n := 0
	for _, t := range texts {
		n += 8 + len(t)
	}
	b = slices.Grow(b, n)
	for _, t := range texts {
		b = text(b, t)
	}
	return b
}

func text(b []byte, t string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(t))), t...)
}

// Numbers appends each number as eight bytes.
func Numbers[N int64 | uint64](b []byte, ns ...N) []byte {
	for _, n := range ns {
		b = binary.BigEndian.AppendUint64(b, uint64(n)) // the same bits
	}
	return b
}

// Short is the first half of the SHA-256 of b. A collision is still out of reach.
func Short(b []byte) [16]byte {
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}

// Hex is Short as 32 hexadecimal digits.
func Hex(b []byte) string {
	sum := Short(b)
	return hex.EncodeToString(sum[:])
}
