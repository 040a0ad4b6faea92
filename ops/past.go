package ops

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
)

// This file owns what the audit keeps of letters that are gone: which were replayed under another
// key, and which were purged that no record tells of. Replay and Purge write it, and a
// reconciliation reads it, so that nothing of it is sent again. Nothing is locked.

const (
	// resultRekeyed is in the result of a replay with an Edit: a JSON list of rekeyed.
	resultRekeyed = "rekeyed"
	detailEdited  = "edited"
	// detailUnclaimed is in the detail of a purge: a JSON list of the jobs whose letters had no
	// fence, because no claim was won for them.
	detailUnclaimed = "unclaimed"
	// listedMost bounds each list. A longer one is left out, and "cut" stands for it.
	listedMost = 4 << 10
	listCut    = "cut"
	listNone   = "none"
	// letterLag is how long after a failure its letter may come.
	letterLag = time.Minute
)

// Failure names a failed or parked job as its dead letter does: by its record, and by the fence of
// the claim that ended so.
type Failure struct {
	Key   dedupe.Key
	Fence uint64
}

// failureOf is the failure of a letter; its scope is empty where the letter does not name its
// record. It reports whether there was one: fence 0 is that of no claim.
func failureOf(m *broker.Message) (f Failure, ok bool) {
	if m == nil || m.Meta == nil || m.Meta.Dead == nil || m.Meta.Dead.Fence == 0 {
		return f, false
	}
	d := m.Meta.Dead
	f = Failure{dedupe.Key{Scope: d.Scope, Key: d.Key}, d.Fence}
	if d.Scope == "" {
		f.Key = dedupe.Key{Key: m.Meta.Key}
		if f.Key.Key == "" {
			f.Key.Key = m.Meta.ID
		}
	}
	return f, true
}

// rekeyed is a letter that a replay sent under another key or type.
type rekeyed struct {
	Scope string `json:"s,omitempty"`
	Key   string `json:"k"`
	Fence uint64 `json:"f,omitempty"`
	To    string `json:"to"`
}

// watchEdit is edit, and what tells of the keys that it gave.
func watchEdit(edit func(*broker.Outgoing) error) (func(*broker.Outgoing) error, func() string) {
	var all []rekeyed
	return func(m *broker.Outgoing) error {
			f, _ := failureOf(&broker.Message{Meta: m.Meta})
			if f.Fence == 0 {
				f.Key = unclaimed(m.Meta)
			}
			key, typ := keyAndType(m.Meta)
			if err := edit(m); err != nil {
				return err
			}
			if k, t := keyAndType(m.Meta); k != key || t != typ {
				all = append(all, rekeyed{f.Key.Scope, f.Key.Key, f.Fence, k})
			}
			return nil
		}, func() string {
			if all == nil {
				return listNone
			}
			return listOf(all)
		}
}

func keyAndType(m *broker.Meta) (key, typ string) {
	if m != nil {
		key, typ = m.Key, m.Type
	}
	return key, typ
}

// unclaimed is the job of a letter without a fence.
func unclaimed(m *broker.Meta) (k dedupe.Key) {
	if m != nil && m.Dead != nil {
		k = dedupe.Key{Scope: m.Dead.Scope, Key: m.Dead.Key}
	}
	return k
}

// unclaimedOf are the jobs of the letters that a purge takes and no claim was won for.
func unclaimedOf(p *dlq.Plan) string {
	var all []rekeyed
	for i := range p.Letters {
		if l := &p.Letters[i]; l.Fence == 0 && l.Decision == dlq.Take && l.Record.Key != "" {
			all = append(all, rekeyed{Scope: l.Record.Scope, Key: l.Record.Key})
		}
	}
	if p.Rest != nil {
		return listCut // nobody knows them yet
	}
	if len(all) == 0 {
		return ""
	}
	return listOf(all)
}

func listOf(all []rekeyed) string {
	b, err := json.Marshal(all)
	if err != nil || len(b) > listedMost {
		return listCut
	}
	return string(b)
}

// past is what the audit says of letters that are gone.
type past struct {
	purged *AuditEntry          // the last purge; nil = none is known of
	unsure *AuditEntry          // the last replay that may have given other keys, nobody knows which
	cut    *AuditEntry          // the last purge of unclaimed jobs that it does not name
	moved  map[Failure]movement // replayed under another key, or purged unclaimed
}

type movement struct {
	by *AuditEntry
	to string // empty = it was purged
}

// pastOf reads what became of the queue's letters since.
func (t *target) pastOf(ctx context.Context, since time.Time) (*past, error) {
	p := &past{moved: map[Failure]movement{}}
	for a, err := range controlstore.Acts(ctx, t.Store, since, time.Now().Add(time.Minute)) {
		switch {
		case err != nil:
			return nil, err
		case a.Queue != t.known:
		case a.Act == string(dlq.ActPurge):
			p.purged = &a
			if list := a.Detail[detailUnclaimed]; list != "" && !p.take(&a, list) {
				p.cut = &a
			}
		case a.Act == string(dlq.ActReplay) && (a.Detail[detailEdited] != "" || a.Detail["edit"] != ""):
			if !p.take(&a, a.Result[resultRekeyed]) {
				p.unsure = &a
			}
		}
	}
	return p, nil
}

// take notes the jobs of a list, and reports whether it is whole.
func (p *past) take(a *AuditEntry, list string) bool {
	var all []rekeyed
	if list != listNone && json.Unmarshal([]byte(list), &all) != nil {
		return false
	}
	for _, x := range all {
		p.moved[Failure{dedupe.Key{Scope: x.Scope, Key: x.Key}, x.Fence}] = movement{a, x.To}
	}
	return true
}

// became is what became of a failure's letter; fence 0 = of a job without a record. An act before
// sent took nothing of it.
func (p *past) became(f Failure, sent time.Time, ledger bool) (why string) {
	if p == nil {
		return ""
	}
	m, ok := p.moved[f]
	if !ok {
		m, ok = p.moved[Failure{dedupe.Key{Key: f.Key.Key}, f.Fence}] // an older letter names no scope
	}
	after := func(a *AuditEntry) bool { return a != nil && a.Began.Add(letterLag).After(sent) }
	switch {
	case ok && m.to != "":
		return "replayed as " + strconv.Quote(m.to) + " by " + whose(m.by) + ": look at that key"
	case ok && !ledger:
		return "no worker could begin it, and its letter was removed with the purge by " + whose(m.by) + ": look whether the job was done by hand, or give a ledger"
	case f.Fence != 0 && after(p.unsure):
		return "its letter is gone, perhaps with the replay by " + whose(p.unsure) + ", which gave letters other keys: look for it there"
	case f.Fence != 0 && !ledger && after(p.purged):
		return "its letter is gone, perhaps with the purge by " + whose(p.purged) + ": look whether the job was done by hand, or give a ledger"
	case f.Fence == 0 && !ledger && after(p.cut):
		return "no record, and its letter may be gone with the purge by " + whose(p.cut) + ": look whether the job was done by hand, or give a ledger"
	}
	return ""
}

func whose(a *AuditEntry) string {
	return named(a.By) + " at " + stamp(a.Began) + " (audit " + a.ID + ")"
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
