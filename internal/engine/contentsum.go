package engine

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
)

// contentSum is a polynomial at a secret point, modulo 2^61 - 1. Who does not know the point finds
// no second content with the same sum, not even from the first content, because two contents of n
// bytes agree at n/7 points at most. The point comes from the claim's token, which the record keeps
// and nothing shows. A hash that needs no secret would cost a tenth of a short job's time.
type contentSum struct{ at, sum uint64 }

const prime61 = 1<<61 - 1

func (s *contentSum) add(block uint64) {
	hi, lo := bits.Mul64(s.sum, s.at)
	n := lo&prime61 + (lo>>61 | hi<<3) + block
	s.sum = n&prime61 + n>>61
}

// number adds two blocks, because a block has fewer than 61 bits.
func (s *contentSum) number(n int64) {
	s.add(uint64(n) & 0xffffffff) // the same bits
	s.add(uint64(n) >> 32)        // the same bits
}

// addText adds the length first, so that two different lists of texts never give the same blocks.
func addText[T string | []byte](s *contentSum, b T) {
	s.add(uint64(len(b)))
	for ; len(b) >= 7; b = b[7:] {
		s.add(uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 | uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48)
	}
	var last uint64
	for i := range len(b) {
		last = last<<8 | uint64(b[i])
	}
	s.add(last)
}

// appendSum appends what tells m's content from others. It leaves out what differs between two
// honest sends of one job: its id, when it was made, and what travels for a trace.
func appendSum(dst []byte, m *broker.Message, secret dedupe.Token) []byte {
	s := contentSum{at: binary.LittleEndian.Uint64(secret[:8]) & (prime61 >> 1)}
	meta := m.Meta
	if meta == nil {
		meta = &broker.Meta{} // as a foreign message's letter has it
	}
	addText(&s, meta.Type)
	if !meta.NotBefore.IsZero() || !meta.Expires.IsZero() || meta.MaxAttempts != 0 || meta.Timeout != 0 {
		s.number(millis(meta.NotBefore))
		s.number(millis(meta.Expires))
		s.number(int64(meta.MaxAttempts))
		s.number(0) // in the place of the priority that metadata once had: the sums in a store stay what they were
		s.number(int64(meta.Timeout))
		s.add(1)
	} else {
		s.add(0)
	}
	var few [16]string
	names := few[:0]
	for name := range m.Attributes {
		if name != broker.TraceAttribute && name != dlq.UnreadableAttribute {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		addText(&s, name)
		addText(&s, m.Attributes[name])
	}
	s.number(int64(len(names)))
	addText(&s, m.Body)
	// The other half of the token masks the sum. Otherwise the sum would say something of the first
	// half to anyone who reads it beside the content.
	return strconv.AppendUint(dst, s.sum%prime61+binary.LittleEndian.Uint64(secret[8:]), 36)
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}

// origins gives each claim its message's name for the record: the broker's id, and a sum of what
// the job does. The sum tells the message from others that bring its key. The names are parts of
// one string, because a string for each would be an allocation a job.
func origins[J any](rs []*Run[J], reqs []dedupe.ClaimRequest) {
	if len(rs) > 1 {
		manyOrigins(rs, reqs)
		return
	}
	var end [1]int
	var room [128]byte
	writeOrigins(rs, reqs, end[:0], room[:0])
}

// manyOrigins has the room that most batches need. It is not inlined, because a single claim shall
// not make its goroutine's stack grow.
//
//go:noinline
func manyOrigins[J any](rs []*Run[J], reqs []dedupe.ClaimRequest) {
	var ends [128]int
	var room [4096]byte
	writeOrigins(rs, reqs, ends[:0], room[:0])
}

func writeOrigins[J any](rs []*Run[J], reqs []dedupe.ClaimRequest, ends []int, names []byte) {
	for _, r := range rs {
		if m := r.Message; m.ID != "" { // otherwise it is of a Do
			names = appendSum(append(append(names, m.ID...), sumMark), m, r.Token)
		}
		ends = append(ends, len(names))
	}
	all, from := string(names), 0
	for i, to := range ends {
		reqs[i].MessageID, from = all[from:to], to
	}
}

const sumMark = '#'

// isOwn reports whether m is the message whose failure rec records, or a copy of it: delivered
// again, moved by hand, or sent twice.
func isOwn(rec *dedupe.Record, m *broker.Message) bool {
	at := strings.LastIndexByte(rec.MessageID, sumMark)
	if at < 0 {
		return rec.MessageID == m.ID
	}
	return rec.MessageID[at+1:] == string(appendSum(nil, m, rec.Token))
}
