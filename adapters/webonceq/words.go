package webonceq

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// This file owns the small acts: rules, and words on keys. Each is done when its answer is written.

// pause and limit make a rule.
func (p *Page) pause(a *ask) error { return p.rule(a, "pause") }
func (p *Page) limit(a *ask) error { return p.rule(a, "limit") }

func (p *Page) rule(a *ask, form string) error {
	name, err := a.queue()
	if err != nil {
		return err
	}
	if err := p.makeRule(a, name, form); err != nil {
		return p.queueScreen(a, statusOf(err), faulty(a, form, err))
	}
	a.readRules()
	a.see("/q/" + url.PathEscape(name))
	return nil
}

// readRules brings the rules on the board up to date.
func (a *ask) readRules() {
	ctx, cancel := a.within()
	defer cancel()
	a.page.board.ReadRules(ctx)
}

// unfollowed: nobody waits for the workers, because the screen shows who follows.
var unfollowed = &ops.RuleOptions{Follow: -1}

func (p *Page) makeRule(a *ask, queue, form string) error {
	f := a.r.PostForm.Get
	reason, err := a.reason()
	if err != nil {
		return err
	}
	d, err := parsedFor(f("for"))
	if err != nil {
		return err
	}
	ctx, cancel := a.within()
	defer cancel()
	r := control.Rule{Queue: queue, Until: time.Now().Add(d), Reason: reason}
	if form == "limit" {
		if r.Slots, err = whole(f("slots"), 1, 100_000); err != nil {
			return refusedAct("handlers: " + err.Error())
		}
		_, err = a.ops.Limit(ctx, r, unfollowed)
		return err
	}
	r.Type, r.Scope = f("type"), f("scope")
	_, err = a.ops.Pause(ctx, r, unfollowed)
	return err
}

// end ends a rule by its id, and no other.
func (p *Page) end(a *ask) error {
	name, err := a.queue()
	if err != nil {
		return err
	}
	if err := p.endRule(a, name); err != nil {
		return p.queueScreen(a, statusOf(err), faulty(a, "end "+a.r.PathValue("id"), err))
	}
	a.readRules()
	if back := a.here(); back != "" {
		http.Redirect(a.w, a.r, back, http.StatusSeeOther)
		return nil
	}
	a.see("/q/" + url.PathEscape(name))
	return nil
}

func (p *Page) endRule(a *ask, queue string) error {
	reason, err := a.reason()
	if err != nil {
		return err
	}
	ctx, cancel := a.within()
	defer cancel()
	id := a.r.PathValue("id")
	rules, err := a.ops.Rules(ctx, queue)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(rules, func(r control.Rule) bool { return r.ID == id })
	if i < 0 || a.ruleSeen(rules[i], queue).ID == "" {
		return fmt.Errorf("%w: %q; it may have ended already", ops.ErrNoRule, id)
	}
	_, err = a.ops.Resume(ctx, ops.ResumeSpec{Queue: queue, Rule: id, Reason: reason}, unfollowed)
	return err
}

// resolve is a word on a parked key, and forget removes a record. Both name its fence, so that what
// has moved on since the screen was made is not touched.
func (p *Page) resolve(a *ask) error {
	return p.decide(a, "resolve", func(queue string, k dedupe.Key, fence uint64, reason string) error {
		to := map[string]dedupe.Status{"done": dedupe.Done, "failed": dedupe.Failed}[a.r.PostForm.Get("to")]
		if to == 0 {
			return refusedAct("to: want done or failed")
		}
		ctx, cancel := a.within()
		defer cancel()
		_, err := a.ops.Resolve(ctx, ops.ResolveSpec{Queue: queue, Key: k, Fence: fence, To: to, Reason: reason})
		return err
	})
}

func (p *Page) forget(a *ask) error {
	return p.decide(a, "forget", func(queue string, k dedupe.Key, fence uint64, reason string) error {
		ctx, cancel := a.within()
		defer cancel()
		_, err := a.ops.Forget(ctx, ops.ForgetSpec{Queue: queue, Key: k, Fence: fence, Reason: reason})
		return err
	})
}

func (p *Page) decide(a *ask, form string, do func(queue string, k dedupe.Key, fence uint64, reason string) error) error {
	ctx, cancel := a.within()
	defer cancel()
	queue, k, err := a.where(ctx)
	if err != nil {
		return err
	}
	reason, err := a.reason()
	if err == nil {
		var fence uint64
		if fence, err = strconv.ParseUint(a.r.PostForm.Get("fence"), 10, 64); err != nil {
			err = refusedAct("the form does not say which record is meant: load the page anew")
		} else {
			err = do(queue, k, fence, reason)
		}
	}
	if err != nil {
		return p.keyWith(a, cmp.Or(statusOf(err), http.StatusConflict), ops.KeyOptions{}, faulty(a, form, err))
	}
	a.see("/key?" + url.Values{"queue": {queue}, "scope": {k.Scope}, "key": {k.Key}}.Encode())
	return nil
}
