package awssqs

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/broker"
)

// answers gathers what SQS says of each entry, by position. An entry that it does not name is in doubt.
type answers struct {
	b    *Broker
	call string
	read func(error) error // of a failed entry's error
	errs []error
	told [maxBatch]bool
	size int
	n    int // how many were applied
}

func (b *Broker) answers(call string, size int, read func(error) error) *answers {
	return &answers{b: b, call: call, size: size, read: read}
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
	if i >= 0 && !a.told[i] {
		a.told[i] = true
		a.n++
	}
	return i
}

func (a *answers) failed(e types.BatchResultErrorEntry) {
	if i := a.at(e.Id); i >= 0 {
		a.set(i, a.read(a.b.entryError(a.call, e)))
	}
}

func (a *answers) set(i int, err error) {
	if a.errs == nil {
		a.errs = make([]error, a.size)
	}
	a.errs[i], a.told[i] = err, true
}

// rest answers those entries that nothing is known of yet.
func (a *answers) rest(err error) {
	for i := range a.size {
		if !a.told[i] {
			a.set(i, err)
		}
	}
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
	return broker.Batch(a.errs)
}
