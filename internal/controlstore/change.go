package controlstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/storecall"
)

// This file owns the record of the rules: reading it, and changing it. Operators' programs call
// Change, any number of them at once; what it does to a record, swap does to others, too. Nothing
// is locked: the record's token is what they compare and swap.
//
// A change takes the token away from the last one (Settle), wins the record for itself (Claim,
// which hands the rules over), and writes the rules under its own token (Renew). Whoever has lost
// the token anywhere starts again. The rules are written by one call, so a reader sees the old ones
// or the new ones. An operator who dies in between leaves the old ones.

// forEver is the lease of a change, and how long released rules are kept.
const forEver = 10 * 365 * 24 * time.Hour

// An operator who has begun a change is left to end it for this long: less than takeFirst to
// takeMost, drawn at random.
const (
	takeFirst = 50 * time.Millisecond
	takeMost  = time.Second
)

// Read reads the rules. A store in which nobody has ever made a rule has none.
func Read(ctx context.Context, s dedupe.Store) (Rules, error) {
	rec, err := storecall.First(s.Get(ctx, []dedupe.Key{rulesKey}))
	if err != nil {
		return Rules{}, fmt.Errorf("control: reading the rules: %w", err)
	}
	if rec == nil {
		return Rules{}, nil
	}
	return decode(rec.State, rec.StateNo)
}

// Change edits the rules and answers what they are now. It calls edit with the present ones, and
// calls it again with newer ones whenever another operator was faster. So edit must do the same
// each time, to whatever rules it is given. Its error ends the change, and nothing is written.
//
// Change gives an ID to each rule without one, the same one each time edit is called. It fills in
// Made, makes a Pause of a Limit to 0, and drops rules that ended a day ago. It refuses what makes
// no sense in a new or changed rule, and more than [MaxRules] or [MaxBytes]; the error wraps
// [control.ErrInvalid].
//
// It goes on until the change is made or ctx ends, as long as the store answers. A call that fails
// is repeated for about a second.
func Change(ctx context.Context, s dedupe.Store, edit func(*Rules) error) (Rules, error) {
	c := &change{s: s, edit: edit, swap: swap{s: s, key: rulesKey, what: "the rules"}}
	for n := 1; ; n++ {
		r, made, err := c.once(ctx)
		if err != nil || made {
			return r, err
		}
		if !retry.Rest(ctx, retry.Within(takeFirst, takeMost, n)) {
			return Rules{}, fmt.Errorf("control: others change the rules all the time: %w", context.Cause(ctx))
		}
	}
}

// change is one call of Change.
type change struct {
	s     dedupe.Store
	edit  func(*Rules) error
	swap  swap
	given []string // the ids that this change gives, in their order
}

// once makes the change, unless somebody else comes in between; then made is false.
func (c *change) once(ctx context.Context) (r Rules, made bool, err error) {
	made, err = c.swap.try(ctx, func(state []byte, no int) (next []byte, version int, err error) {
		r, next, err = c.edited(state, no)
		return next, int(r.Version), err
	})
	if !made {
		r = Rules{}
	}
	return r, made, err
}

// A swap changes what one record holds, beside others who do.
type swap struct {
	s    dedupe.Store
	key  dedupe.Key
	what string       // of errors
	met  dedupe.Token // of another's change that was under way at the last look
}

// try hands edit what the record holds, with its number, and writes what it answers; nil leaves
// the record as it is. Where somebody else comes in between, nothing is written, and made is false.
func (w *swap) try(ctx context.Context, edit func(state []byte, no int) (next []byte, nextNo int, err error)) (made bool, err error) {
	rec, err := storecall.Read(ctx, w.s, w.key)
	if err != nil {
		return false, fmt.Errorf("control: reading %s: %w", w.what, err)
	}
	if rec != nil && rec.Status == dedupe.Claimed {
		// The last change has written after its claim. One that has not yet is under way, or its
		// process has died.
		if !rec.Updated.After(rec.ClaimedAt) && rec.Token != w.met {
			w.met = rec.Token
			return false, nil
		}
		err := storecall.Settle(ctx, w.s, dedupe.Settlement{Key: w.key, Token: rec.Token, To: dedupe.Released, Uncounted: true, Retain: forEver})
		switch {
		case errors.Is(err, dedupe.ErrLeaseLost), errors.Is(err, dedupe.ErrBusy):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("control: taking %s over: %w", w.what, err)
		}
	}
	token := storecall.NewToken()
	won, err := storecall.Claim(ctx, w.s, dedupe.ClaimRequest{Key: w.key, Token: token, TTL: forEver, Owner: "control"})
	switch {
	case errors.Is(err, dedupe.ErrBusy), err == nil && (won.Outcome == dedupe.InProgress || won.Outcome == dedupe.Stale):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("control: taking %s over: %w", w.what, err)
	case won.Outcome != dedupe.Won:
		return false, fmt.Errorf("control: the record %v is %v, and was not written by this package", w.key, won.Outcome)
	}
	state, no, err := edit(won.State, won.StateNo)
	if err != nil || state == nil {
		// The next one need not wait for us. If this fails, he waits a moment.
		_ = storecall.Settle(ctx, w.s, dedupe.Settlement{Key: w.key, Token: token, To: dedupe.Released, Uncounted: true, Retain: forEver})
		return err == nil, err
	}
	err = storecall.Renew(ctx, w.s, dedupe.Renewal{Key: w.key, Token: token, TTL: forEver, State: state, StateNo: no})
	switch {
	case errors.Is(err, dedupe.ErrLeaseLost), errors.Is(err, dedupe.ErrBusy):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%w: %w", control.ErrUnknown, err)
	}
	return true, nil
}

// edited is the next version of the rules, and its form.
func (c *change) edited(state []byte, no int) (Rules, []byte, error) {
	old, err := decode(state, no)
	if err != nil {
		return Rules{}, nil, err
	}
	now := time.Now()
	next := old.Clone()
	if err := c.edit(&next); err != nil {
		return Rules{}, nil, err
	}
	next.Version = old.Version + 1
	c.complete(&next, &old, now)
	if err := next.checkAll(&old, now); err != nil {
		return Rules{}, nil, err
	}
	b, err := encode(&next)
	if err != nil {
		return Rules{}, nil, err
	}
	if most := min(MaxBytes, c.s.Limits().MaxResult); len(b) > most {
		return Rules{}, nil, invalid("Rules", "are %d bytes, the limit is %d: remove some", len(b), most)
	}
	return next, b, nil
}

// complete fills in what the edit has left to us. A new rule that has the id of an older one
// replaces it: it was written before, and the answer was lost.
func (c *change) complete(next, old *Rules, now time.Time) {
	nth := 0
	for i := range next.Rules {
		u := &next.Rules[i]
		if u.ID == "" {
			if nth == len(c.given) {
				c.given = append(c.given, c.newID(next, old))
			}
			u.ID = c.given[nth]
			nth++
		}
		if u.Do == control.Limit && u.Slots == 0 {
			u.Do = control.Pause
		}
		if u.Made.IsZero() {
			u.Made = now.UTC().Truncate(time.Millisecond)
		}
	}
	last := make(map[string]int, len(next.Rules))
	for i := range next.Rules {
		last[next.Rules[i].ID] = i
	}
	n := 0
	for i, u := range next.Rules {
		was := old.Find(u.ID)
		if over := was != nil && now.Sub(u.Until) >= kept && same(was, &u); last[u.ID] == i && !over {
			next.Rules[n] = u
			n++
		}
	}
	next.Rules = slices.Clip(next.Rules[:n])
}

// checkAll refuses rules that are too many, and what makes no sense in those that the edit has made
// or changed. The others are what somebody else has made, perhaps with a later version.
func (r *Rules) checkAll(old *Rules, now time.Time) error {
	if n := len(r.Rules); n > MaxRules {
		return invalid("Rules", "are %d, the limit is %d: remove some", n, MaxRules)
	}
	for i := range r.Rules {
		u := &r.Rules[i]
		if was := old.Find(u.ID); was != nil && same(was, u) {
			continue
		}
		if err := checkRule(u, now); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether two rules say the same, in whatever form their times are.
func same(a, b *control.Rule) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// newID is a name that people can say, and that no other rule has: five letters and digits, of
// which there are 33 million.
func (c *change) newID(next, old *Rules) string {
	for {
		var b [4]byte
		_, _ = rand.Read(b[:])
		id := strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))[:5]
		if old.Find(id) == nil && next.Find(id) == nil && !slices.Contains(c.given, id) {
			return id
		}
	}
}
