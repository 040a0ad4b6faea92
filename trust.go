package onceq

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// What a message may bring about beyond its own job is decided here: who may send it may write all of its metadata.

// lower lets a job's Meta lower what its worker has set, and raise it no further than the operator's ceilings.
func (o *jobOptions) lower(m *broker.Meta, most int, timeout time.Duration) {
	if asked := bounded(m.MaxAttempts); asked != 0 {
		ceiling := bounded(most)
		if most == 0 && o.most > 0 {
			ceiling = max(DefaultMostAttempts, o.most)
		}
		if ceiling > 0 && (asked < 0 || asked > ceiling) {
			asked = ceiling
		}
		o.most = asked
	}
	if asked := m.Timeout; asked > 0 {
		if timeout == 0 && o.timeout > 0 {
			timeout = max(DefaultMostTimeout, o.timeout)
		}
		if timeout > 0 {
			asked = min(asked, timeout)
		}
		o.timeout = asked
	}
}

// tooEarly refuses a message whose not-before lies further ahead than any of its type may: it would be given back again and again,
// and hold its group meanwhile.
func (p *Processor) tooEarly(r *run, left time.Duration) *refusal {
	most := p.c.Defaults.MostNotBefore
	if t := p.types[r.job.Type()]; t != nil {
		most = cmp.Or(t.options.MostNotBefore, most)
	}
	if most = cmp.Or(most, max(p.c.Retention, DefaultRetention)); most < 0 || left <= most {
		return nil
	}
	if no := p.admit(r); no != nil { // its letter needs the key
		return no
	}
	return &refusal{class: ClassTooEarly, err: fmt.Errorf("onceq: the job's not-before, %s, is more than %v ahead",
		r.message.Meta.NotBefore.UTC().Format(time.RFC3339), most)}
}

// reopens is the fence of the failure that the message may reopen; 0 = none. With keys, only a signed letter of this scope may.
func (p *Processor) reopens(r *run) uint64 {
	m := r.message
	if m.Meta == nil || m.Meta.Dead == nil {
		return 0
	}
	d := m.Meta.Dead
	if d.Fence == 0 || len(p.c.LetterKeys) == 0 || d.Source == p.c.Scope && p.c.LetterKeys.Signed(m) {
		return d.Fence
	}
	p.c.Logger.LogAttrs(r.f.t.base, slog.LevelWarn, "onceq: a message names a failure, but none of Config.LetterKeys has signed it; it reopens nothing",
		slog.String("job", r.name()), slog.String("key", r.key.String()))
	return 0
}

// origins gives each claim its message's name for the record: the broker's id, and a sum of what the job does, which tells the message
// from others that bring its key. The names are parts of one string, because a string for each would be an allocation a job.
func origins(rs []*run, reqs []dedupe.ClaimRequest) {
	var few [128]int
	ends := few[:0]
	var room [4096]byte // of most batches
	names := room[:0]
	for _, r := range rs {
		if m := r.message; m.ID != "" { // else it is of a Do
			names = appendSum(append(append(names, m.ID...), sumMark), m, r.token)
		}
		ends = append(ends, len(names))
	}
	all, from := string(names), 0
	for i, to := range ends {
		reqs[i].MessageID, from = all[from:to], to
	}
}

const sumMark = '#'

// isOwn tells whether m is the message whose failure rec tells of, or as good as it: delivered again, moved by hand, or sent twice.
func isOwn(rec *dedupe.Record, m *broker.Message) bool {
	at := strings.LastIndexByte(rec.MessageID, sumMark)
	if at < 0 {
		return rec.MessageID == m.ID
	}
	return rec.MessageID[at+1:] == string(appendSum(nil, m, rec.Token))
}

// putAgain puts the letter of a message that finds its key failed or parked: a worker may have died between the record and the
// letter. Another message with that key gets a letter which can reopen nothing: with the record's fence its body would run in the
// place of the one that failed.
func (p *Processor) putAgain(r *run, rec *dedupe.Record) {
	if r.f.t.letters == toCaller || isOwn(rec, r.message) { // the caller is told of the record itself
		p.letter(r, cmp.Or(rec.ErrClass, ClassError), rec.LastErr, rec.Fence, rec.Attempt, rec.Finished)
		return
	}
	p.turnAway(r, &refusal{class: ClassDuplicate, err: fmt.Errorf("onceq: another message with this key is %v", rec.Status)})
}

// maxLogged is how much of an id or a type a log line holds, in bytes: a message may bring any length.
const maxLogged = 256

// name is the job's id for logs.
func (r *run) name() string { return clip(r.job.ID(), maxLogged) }
