package tablequeue

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/onceq/onceq/broker"
)

// Receipt names one delivery: the row and its count of deliveries, which is new in each. It also
// says whether the row has a group, because then its end changes who is the group's head.
type Receipt struct {
	Seq     int64
	N       int32
	Grouped bool
}

const groupMark = "g"

func (r Receipt) String() string {
	var room [36]byte
	b := append(strconv.AppendInt(room[:0], r.Seq, 10), '.')
	b = strconv.AppendInt(b, int64(r.N), 10)
	if r.Grouped {
		b = append(b, groupMark...)
	}
	return string(b)
}

// ParseReceipt reads what String has written, and nothing else.
func ParseReceipt(r broker.Receipt) (Receipt, bool) {
	text, grouped := strings.CutSuffix(string(r), groupMark)
	before, after, ok := strings.Cut(text, ".")
	seq, err1 := strconv.ParseInt(before, 10, 64)
	n, err2 := strconv.ParseInt(after, 10, 32)
	p := Receipt{seq, int32(n), grouped}
	return p, ok && err1 == nil && err2 == nil && p.String() == string(r)
}

// Settling is one ack, nack or extension: its receipts, and what it knows of each.
type Settling struct {
	// N is how many entries there are, Receipt is that of each.
	N       int
	Receipt func(i int) broker.Receipt
	// Refuse says why an entry cannot be; nil = nothing is refused.
	Refuse func(i int) error
	// Wrap says of an error which call and which queue it was.
	Wrap func(error) error

	errs  []error
	twins [][2]int // an entry, and the one before it with the same receipt
}

// Entry is a receipt and its place in the batch.
type Entry struct {
	Receipt
	I int
}

// Acks is the Settling of an ack.
func Acks(rs []broker.Receipt, wrap func(error) error) Settling {
	return Settling{N: len(rs), Receipt: func(i int) broker.Receipt { return rs[i] }, Wrap: wrap}
}

// Nacks is the Settling of a nack.
func Nacks(hs []broker.Hold, wrap func(error) error) Settling {
	s := Extensions(hs, wrap)
	s.Refuse = func(i int) error {
		if d := hs[i].For; d < 0 || d > Longest {
			return Unsupported("%v; it is within 0s and %v", d, Longest)
		}
		return nil
	}
	return s
}

// Extensions is the Settling of an extension.
func Extensions(hs []broker.Hold, wrap func(error) error) Settling {
	return Settling{
		N: len(hs), Receipt: func(i int) broker.Receipt { return hs[i].Receipt }, Wrap: wrap,
		Refuse: func(i int) error {
			if d := hs[i].For; d < MinHold || d > MaxHold {
				return Unsupported("%v; it is within %v and %v", d, MinHold, MaxHold)
			}
			return nil
		},
	}
}

// Fail answers an entry.
func (s *Settling) Fail(i int, err error) {
	if s.errs == nil {
		s.errs = make([]error, s.N)
	}
	s.errs[i] = s.Wrap(err)
}

// Entries are the receipts that may name a row, in the order of the rows, each once. The others are
// answered.
func (s *Settling) Entries() []Entry {
	es := make([]Entry, 0, s.N)
	for i := range s.N {
		if s.Refuse != nil {
			if err := s.Refuse(i); err != nil {
				s.Fail(i, err)
				continue
			}
		}
		r, ok := ParseReceipt(s.Receipt(i))
		if !ok {
			s.Fail(i, broker.ErrReceiptExpired)
			continue
		}
		es = append(es, Entry{r, i})
	}
	slices.SortStableFunc(es, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.N, b.N))
	})
	once := es[:0]
	for _, e := range es {
		if n := len(once); n > 0 && once[n-1].Receipt == e.Receipt {
			s.twins = append(s.twins, [2]int{e.I, once[n-1].I})
		} else {
			once = append(once, e)
		}
	}
	return once
}

// Answer is by position. Entries with one receipt have one answer.
func (s *Settling) Answer() error {
	if s.errs != nil {
		for _, t := range s.twins {
			s.errs[t[0]] = s.errs[t[1]]
		}
	}
	return broker.JoinEntries(s.errs)
}
