package pubsubfake

import "github.com/onceq/onceq/internal/fakeserver"

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

var staleAckIDs = fakeserver.Words{StaleRandom: "random", StaleWork: "work", StaleIgnored: "ignored"}

// MarshalText is the word for a flag: random, work or ignored.
func (h StaleAckIDs) MarshalText() ([]byte, error) {
	return staleAckIDs.Text("pubsubfake", int(h))
}

// UnmarshalText reads the word.
func (h *StaleAckIDs) UnmarshalText(text []byte) error {
	i, err := staleAckIDs.Value(text)
	*h = StaleAckIDs(i)
	return err
}
