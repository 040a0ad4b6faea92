package webonceq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns plans: how a set of letters is frozen, what its numbers say, and that it is used
// once, by the one who made it. A plan is made in a goroutine of its own, because that takes a pass
// through the queue. plans.mu guards the map and every plan in it; it is held for no call.

// The kinds of plans. The last part of the address by which a plan is run says which it is, so that
// the table of routes knows what is needed.
const (
	kindReplay = "run"
	kindEdit   = "run-edited"
	kindPurge  = "purge"
)

const (
	// maxPlans is how many plans are kept, ownPlans how many of one person, and planLetters how
	// many letters they hold in all, and a quarter of it those of one person.
	maxPlans    = 64
	ownPlans    = 8
	planLetters = 120_000
	// planPatience bounds how long a plan may take.
	planPatience = 5 * time.Minute
	// mustType is from how many letters on the number is to be typed.
	mustType = 100
)

// planReplay, planEdit and planPurge begin a plan.
func (p *Page) planReplay(a *ask) error { return p.plan(a, kindReplay) }
func (p *Page) planEdit(a *ask) error   { return p.plan(a, kindEdit) }
func (p *Page) planPurge(a *ask) error  { return p.plan(a, kindPurge) }

func (p *Page) plan(a *ask, kind string) error {
	name, err := a.queue()
	if err != nil {
		return err
	}
	x := &plan{kind: kind, queue: name}
	if x.chosen, err = chosenOf(a.r.PostForm); err != nil {
		return err
	}
	if kind == kindEdit {
		x.patch = strings.TrimSpace(a.r.PostForm.Get("patch"))
		x.note = "merge patch " + x.patch
		if err := checkPatch([]byte(x.patch)); err != nil {
			return p.groupScreen(a, http.StatusConflict, faulty(a, "edit", err))
		}
	}
	return p.begin(a, x)
}

// planKey begins the plan of one key's letter.
func (p *Page) planKey(a *ask) error { return p.planOne(a, kindReplay) }

// planKeyEdit begins it with another body.
func (p *Page) planKeyEdit(a *ask) error { return p.planOne(a, kindEdit) }

func (p *Page) planOne(a *ask, kind string) error {
	ctx, cancel := a.within()
	defer cancel()
	queue, k, err := a.where(ctx)
	if err != nil {
		return err
	}
	fence, err := strconv.ParseUint(a.r.PostForm.Get("fence"), 10, 64)
	if err != nil {
		return refusedAct("the form does not say which failure is meant: load the page anew")
	}
	x := &plan{kind: kind, queue: queue, of: &ops.Failure{Key: k, Fence: fence}}
	if kind == kindEdit {
		if x.body = a.r.PostForm.Get("body"); x.body == "" {
			return p.keyWith(a, http.StatusConflict, ops.KeyOptions{}, faulty(a, "edit", errors.New("body: it is empty")))
		}
		x.note = fmt.Sprintf("another body, of %d bytes", len(x.body))
	}
	return p.begin(a, x)
}

// begin makes the plan in the background, and sends the browser to it.
func (p *Page) begin(a *ask, x *plan) error {
	x.id, x.by, x.asked = rand.Text(), a.who.Name, time.Now()
	s := &p.plans
	s.mu.Lock()
	if s.making >= MaxActs {
		s.mu.Unlock()
		return &sayError{http.StatusTooManyRequests, fmt.Errorf("%d plans are being made: wait for one of them", MaxActs)}
	}
	s.making++
	if s.m == nil {
		s.m = map[string]*plan{}
	}
	s.forget(x.by)
	s.m[x.id] = x
	s.mu.Unlock()
	if !p.spawn(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, planPatience)
		defer cancel()
		var made plan
		var edits []edit
		err := guarded(func() error {
			edits = p.preview(x)
			return p.board.WithLetters(ctx, x.queue, func(ctx context.Context) error { return made.freeze(ctx, a.ops, x) })
		})
		s.mu.Lock()
		x.replay, x.purge, x.err, x.edits, x.made = made.replay, made.purge, err, edits, true
		s.making--
		s.mu.Unlock()
		p.tell()
	}) {
		return &sayError{http.StatusServiceUnavailable, errors.New("the page is closed")}
	}
	a.see("/plans/" + x.id)
	return nil
}

// guarded does something in a goroutine of the page's own. What panics there ends it alone.
func guarded(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("webonceq: the plan has panicked: %v", v)
		}
	}()
	return do()
}

// size is about how many letters a plan holds in memory.
func (x *plan) size() int {
	if f := x.frozen(); f != nil {
		return len(f.Letters)
	}
	return 0
}

func lettersOf(xs []*plan) (n int) {
	for _, x := range xs {
		n += x.size()
	}
	return n
}

// forget drops what nobody can use any more, the oldest of whoever makes another plan beyond
// ownPlans, and the oldest of all beyond maxPlans and planLetters. The caller has the lock.
func (s *plans) forget(by string) {
	maps.DeleteFunc(s.m, func(_ string, x *plan) bool { return x.made && time.Since(x.asked) > 2*dlq.PlanTTL })
	oldest := func(a, b *plan) int { return a.asked.Compare(b.asked) }
	own := slices.SortedFunc(maps.Values(s.m), oldest)
	own = slices.DeleteFunc(own, func(x *plan) bool { return x.by != by })
	letters := lettersOf(own)
	for len(own) >= ownPlans || letters > planLetters/4 && len(own) > 0 { // nobody pushes out what others have planned
		letters -= own[0].size()
		delete(s.m, own[0].id)
		own = own[1:]
	}
	letters = lettersOf(slices.Collect(maps.Values(s.m)))
	for len(s.m) > 0 && (len(s.m) >= maxPlans || letters > planLetters) {
		x := slices.MinFunc(slices.Collect(maps.Values(s.m)), oldest)
		letters -= x.size()
		delete(s.m, x.id)
	}
}

// freeze makes the frozen set.
func (x *plan) freeze(ctx context.Context, o *ops.Ops, as *plan) (err error) {
	defer func() {
		if errors.Is(err, dlq.ErrIncomplete) && (x.replay != nil || x.purge != nil) {
			err = nil // the plan has a Rest, and the screen says so
		}
	}()
	if as.kind == kindPurge {
		po := dlq.PurgeOptions{Filter: as.chosen.filter(), All: as.chosen.All(), NoExport: true}
		x.purge, err = o.PlanPurge(ctx, ops.PurgeSpec{PurgeOptions: po, Queue: as.queue})
		return err
	}
	spec := ops.ReplaySpec{Queue: as.queue, Note: as.note, ReplayOptions: dlq.ReplayOptions{Filter: as.chosen.filter(), Edit: as.edit()}}
	if as.of != nil {
		spec.Filter = dlq.Filter{}
		x.replay, err = o.PlanLetters(ctx, spec, []ops.Failure{*as.of})
		return err
	}
	x.replay, err = o.PlanReplay(ctx, spec)
	return err
}

// edit is what the plan does to a body; nil = nothing.
func (x *plan) edit() func(*broker.Outgoing) error {
	switch {
	case x.patch != "":
		return func(out *broker.Outgoing) error {
			body, err := mergePatch(out.Body, []byte(x.patch))
			if err == nil {
				out.Body = body
			}
			return err
		}
	case x.body != "":
		return func(out *broker.Outgoing) error {
			out.Body = []byte(x.body)
			return nil
		}
	}
	return nil
}

// preview shows the patch on the first three letters that the last pass has kept. These were
// redacted, as everything that is shown.
func (p *Page) preview(x *plan) (es []edit) {
	if x.patch == "" {
		return nil
	}
	look, err := p.board.Letters(x.queue)
	if err != nil || look == nil {
		return nil
	}
	for i := range look.Groups {
		g := &look.Groups[i]
		if x.chosen.Group != "" && g.Group.Group != x.chosen.Group {
			continue
		}
		for j := range g.Letters {
			e := &g.Letters[j]
			shown := edit{Key: e.Ref().Key}
			if body, err := mergePatch(e.Message.Body, []byte(x.patch)); err != nil {
				shown.Err = err.Error()
			} else {
				shown.Lines = diff(bodyText(e.Message.Body), bodyText(body))
			}
			if es = append(es, shown); len(es) == 3 {
				return es
			}
		}
	}
	return es
}

// planOf is the plan that the path names. It is its maker's alone.
func (p *Page) planOf(a *ask) (*plan, error) {
	s := &p.plans
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.m[a.r.PathValue("id")]
	switch {
	case x == nil || !a.who.sees(x.queue):
		return nil, &sayError{http.StatusNotFound, errors.New("there is no such plan here: plans live for 15 minutes, and as long as this process")}
	case x.by != a.who.Name:
		return nil, &sayError{http.StatusForbidden, errors.New("the plan is somebody else's: make one of your own")}
	}
	return x, nil
}

// A planView is a plan as it is shown.
type planView struct {
	ID, Kind, Queue, Chosen, Note string
	Group, Key, Scope             string
	Made                          bool
	Asked                         time.Time
	Trouble                       string
	Name                          string // four digits
	Frozen, Until                 time.Time
	Take                          int
	Reopen, Ordinary, Unknown     int
	Done, Moved, Unsigned         int
	Skipped                       []reason
	Rest                          bool
	About                         int
	Elsewhere                     int
	Live                          int
	Vacuous                       string // why canaries would prove nothing
	Edits                         []edit
	Canary                        int
	MustType, Keeps, MayRun       bool
	Act                           string
}

type reason struct {
	Text string
	N    int
}

// showPlan shows a plan.
func (p *Page) showPlan(a *ask) error { return p.planScreen(a, http.StatusOK, nil) }

func (p *Page) planScreen(a *ask, status int, change func(*view)) error {
	x, err := p.planOf(a)
	if err != nil {
		return err
	}
	p.plans.mu.Lock()
	c := *x
	p.plans.mu.Unlock()
	here := "/q/" + url.PathEscape(c.queue)
	v := a.view("plan", map[string]string{kindReplay: "Replay", kindEdit: "Replay with another body", kindPurge: "Purge"}[c.kind],
		crumb{c.queue, here}, crumb{"Dead letters", here + "/letters"})
	v.state = c.state()
	if v.Live = "plan:" + c.id; !c.made {
		v.Reload = 2
	}
	d := planView{ID: c.id, Kind: c.kind, Queue: c.queue, Chosen: c.chosen.String(), Note: c.note, Group: c.chosen.Group, Made: c.made, Asked: c.asked, Act: p.began(c.act), Keeps: p.o.Keep != nil}
	if a.can(Bodies) {
		d.Edits = c.edits
	}
	if c.of != nil {
		d.Chosen, d.Key, d.Scope = "the letter of "+c.of.Key.Key, c.of.Key.Key, c.of.Key.Scope
	}
	if c.err != nil {
		d.Trouble = a.told(c.err)
	}
	s, err := p.board.Look(a.ctx())
	if err == nil {
		a.frame(v, s)
		if q := s.Queue(c.queue); q != nil {
			d.Live = q.Sum.Live
		}
	}
	if f := c.frozen(); f != nil {
		d.fill(f, c.replay)
		if c.replay != nil && d.Take > 0 {
			check := *c.replay
			check.Spec.Canary, check.Spec.Ramp = d.Canary, true
			ctx, cancel := a.within()
			defer cancel()
			if err := a.ops.CheckReplay(ctx, &check); err != nil {
				d.Vacuous = a.told(err)
			}
		}
	}
	d.MayRun = a.can(p.needs["/plans/{id}/"+c.kind])
	v.Data = d
	if change != nil {
		change(v)
	}
	a.show(status, v)
	return nil
}

// Ramp is whether the ramp is chosen at first: yes, unless the form was sent without it.
func (planView) Ramp(refused string) string {
	if refused == "run" {
		return ""
	}
	return "on"
}

func (d *planView) fill(f *dlq.Plan, r *ops.ReplayPlan) {
	d.Name, d.Frozen, d.Until = f.ID, f.Made, f.Made.Add(dlq.PlanTTL)
	d.Take, d.Unsigned, d.Elsewhere = f.Count(dlq.Take), f.Unsigned, f.Elsewhere
	d.MustType = d.Take > mustType || d.Kind == kindPurge
	switch {
	case d.Take > 5:
		d.Canary = 5
	case d.Take > 1:
		d.Canary = 1
	}
	if r != nil {
		d.Reopen, d.Ordinary, d.Unknown, d.Done, d.Moved = r.Reopen, r.Ordinary, r.Unknown, r.Done, r.Moved
	}
	if f.Rest != nil {
		d.Rest, d.About = true, f.Rest.About
	}
	for _, text := range slices.Sorted(maps.Keys(f.Skipped)) {
		d.Skipped = append(d.Skipped, reason{dlq.Printable(cut(text, 200)), f.Skipped[text]})
	}
}

// Good is for how long the plan may be used.
func (d planView) Good() time.Duration { return max(0, time.Until(d.Until)) }

// runReplay, runEdited and runPurge begin the act of a plan.
func (p *Page) runReplay(a *ask) error { return p.run(a, kindReplay) }
func (p *Page) runEdited(a *ask) error { return p.run(a, kindEdit) }
func (p *Page) runPurge(a *ask) error  { return p.run(a, kindPurge) }

func (p *Page) run(a *ask, kind string) error {
	x, err := p.planOf(a)
	if err != nil {
		return err
	}
	if x.kind != kind {
		return &sayError{http.StatusNotFound, errors.New("the plan is for another act")}
	}
	again := func(status int, err error) error { return p.planScreen(a, status, faulty(a, "run", err)) }
	p.plans.mu.Lock()
	switch x.act = p.began(x.act); {
	case x.act != "":
		act := x.act
		p.plans.mu.Unlock()
		a.see("/acts/" + act) // a second click
		return nil
	case x.using:
		p.plans.mu.Unlock()
		return again(http.StatusConflict, errors.New("the act begins already"))
	case !x.made || x.frozen() == nil:
		p.plans.mu.Unlock()
		return again(http.StatusConflict, errors.New("the plan is not made yet"))
	}
	x.using = true
	p.plans.mu.Unlock()
	id, err := p.start(a, x)
	p.plans.mu.Lock()
	x.using, x.act = false, id
	p.plans.mu.Unlock()
	if err != nil {
		return again(statusOf(err), err)
	}
	a.see("/acts/" + id)
	return nil
}

// began is the id of an act, unless nothing was begun by it: its plan may be used then.
func (p *Page) began(act string) string {
	if x, ok := p.running.Act(act); ok && !x.Ended.IsZero() && x.Audit == "" {
		return ""
	}
	return act
}

// start reads the form, and begins the act.
func (p *Page) start(a *ask, x *plan) (id string, err error) {
	f := a.r.PostForm.Get
	reason, err := a.reason()
	if err != nil {
		return "", err
	}
	frozen := x.frozen()
	take := frozen.Count(dlq.Take)
	if typed := strings.Map(digit, f("number")); (take > mustType || x.kind == kindPurge) && typed != strconv.Itoa(take) {
		return "", refusedAct(fmt.Sprintf("type %d, the number of letters, to show that you mean it", take))
	}
	if x.purge != nil {
		po := dlq.PurgeOptions{Export: p.o.Keep, NoExport: p.o.Keep == nil}
		return p.running.Purge(a.ctx(), a.ops, x.purge, ops.PurgeSpec{PurgeOptions: po, Queue: x.queue, Reason: reason})
	}
	r := *x.replay
	r.Spec.Reason = reason
	if r.Spec.Canary, err = whole(f("canary"), 0, 100_000); err != nil {
		return "", refusedAct("canary: " + err.Error())
	}
	if r.Spec.Ramp = f("ramp") != ""; r.Spec.Canary >= take && r.Spec.Canary > 0 {
		r.Spec.Canary, r.Spec.Ramp = 0, true // all are canaries: nothing is left to wait for
	}
	rate := 0
	if rate, err = whole(f("rate"), 0, 100_000); err != nil {
		return "", refusedAct("rate: " + err.Error())
	}
	r.Spec.PerSecond = float64(rate)
	return p.running.Replay(a.ctx(), a.ops, &r)
}
