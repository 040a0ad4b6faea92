package awssqs

import (
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/broker"
)

// answers gathers what SQS says of each entry, by position. An entry that it does not name is in
// doubt.
type answers struct {
	b    *Broker
	call string
	errs []error
	told [maxBatch]bool
	size int
}

func (b *Broker) answers(call string, size int) *answers {
	return &answers{b: b, call: call, size: size}
}

// at is the position that id names, -1 where it names none.
func (a *answers) at(id *string) int {
	i, err := strconv.Atoi(deref(id))
	if err != nil || i < 0 || i >= a.size {
		return -1
	}
	return i
}

// applied gives the position of an entry that SQS has applied, -1 where there is none.
func (a *answers) applied(id *string) int {
	i := a.at(id)
	if i >= 0 {
		a.told[i] = true
	}
	return i
}

func (a *answers) failed(e types.BatchResultErrorEntry) {
	if i := a.at(e.Id); i >= 0 {
		a.set(i, a.b.entryError(a.call, e))
	}
}

func (a *answers) set(i int, err error) {
	if a.errs == nil {
		a.errs = make([]error, a.size)
	}
	a.errs[i], a.told[i] = err, true
}

// names reports whether the entry has a receipt at all. SQS refuses the whole request because of
// one entry that has none.
func (a *answers) names(i int, r broker.Receipt) bool {
	if r == "" {
		a.set(i, a.b.wrap(a.call, fmt.Errorf("%w: it is empty", broker.ErrReceiptExpired)))
	}
	return r != ""
}

// whole answers a request that failed as one, of so many entries.
func (a *answers) whole(err error, entries int) error {
	if entries == a.size {
		return err
	}
	for i := range a.size {
		if !a.told[i] {
			a.set(i, err)
		}
	}
	return a.err()
}

// done is how many entries were applied, an entry that was named twice once.
func (a *answers) done() (n int64) {
	for i := range a.size {
		if a.told[i] && (a.errs == nil || a.errs[i] == nil) {
			n++
		}
	}
	return n
}

func (a *answers) err() error {
	for i := range a.size {
		if !a.told[i] {
			a.set(i, a.b.unanswered(a.call))
		}
	}
	if a.errs == nil {
		return nil
	}
	return broker.JoinEntries(a.errs)
}
