package pubsubfake

import (
	"fmt"
	"slices"
	"strings"
)

// StaleAckIDs says what an ack id of an earlier delivery does while a later one is held, on a
// subscription without exactly-once delivery. The call succeeds in any case.
type StaleAckIDs uint8

const (
	// StaleRandom draws it anew for each use.
	StaleRandom StaleAckIDs = iota
	// StaleWork lets each work: it acks, nacks or extends what somebody else holds by now.
	StaleWork
	// StaleIgnored does nothing.
	StaleIgnored
)

var staleAckIDs = []string{StaleRandom: "random", StaleWork: "work", StaleIgnored: "ignored"}

// MarshalText is the word for a flag: random, work or ignored.
func (h StaleAckIDs) MarshalText() ([]byte, error) {
	if int(h) >= len(staleAckIDs) {
		return nil, fmt.Errorf("pubsubfake: %d is none of %s", h, strings.Join(staleAckIDs, ", "))
	}
	return []byte(staleAckIDs[h]), nil
}

// UnmarshalText reads the word.
func (h *StaleAckIDs) UnmarshalText(text []byte) error {
	i := slices.Index(staleAckIDs, string(text))
	if i < 0 {
		return fmt.Errorf("%q is none of %s", text, strings.Join(staleAckIDs, ", "))
	}
	*h = StaleAckIDs(i)
	return nil
}
