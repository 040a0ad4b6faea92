package sqsfake

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// account is all queues of a server, and what they share. The calls and the queues know it, and not
// the Server, which brings the calls.
type account struct {
	o      Options
	seed   uint64
	base   time.Time
	nonces *rand.Rand
	// closing is closed when the server drains: what waits ends.
	closing chan struct{}

	// mu holds all queues: a call is a few microseconds under it, and moving messages
	// between queues needs no order of locks. It guards the draws of nonces, too.
	mu        sync.Mutex
	draining  bool
	queues    map[string]*queue
	deletions map[string]time.Time
	sequence  uint64
	touched   []*queue // got messages from others in this stretch of work
}

func (a *account) now() int64 { return int64(time.Since(a.base)) }

// timestamp is a time as messages tell it: milliseconds since 1970.
func (a *account) timestamp(at int64) string {
	return strconv.FormatInt(a.base.Add(time.Duration(at)).UnixMilli(), 10)
}

func (a *account) arn(name string) string {
	return "arn:aws:sqs:" + a.o.Region + ":" + a.o.Account + ":" + name
}

// byARN finds a queue; nil if there is none. The caller holds the lock.
func (a *account) byARN(arn string) *queue {
	name, ok := strings.CutPrefix(arn, a.arn(""))
	if !ok {
		return nil
	}
	return a.queues[name]
}

// sortedNames are the names of the queues with a prefix. The caller holds the lock.
func (a *account) sortedNames(prefix string) []string {
	var names []string
	for name := range a.queues {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// nextSequence is a sequence number: 20 digits, rising, with gaps, and too large for 64
// bits, as AWS's are.
func (a *account) nextSequence() string {
	a.sequence += 256
	return fmt.Sprintf("188%017d", a.sequence)
}

// settle lets the queues that got messages from others serve their waiting receives.
func (a *account) settle(now int64) {
	for len(a.touched) > 0 {
		q := a.touched[len(a.touched)-1]
		a.touched = a.touched[:len(a.touched)-1]
		q.begin(now)
		q.end(now)
	}
}
