package webonceq

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns what is seen of acts that run, and the small acts: rules, and words on keys. The
// acts themselves are ops.Running's, which outlives the request that began one.

// An actView is an act as it is shown.
type actView struct {
	ops.RunningAct
	Line    string // how far it is
	Percent int
	Next    time.Duration // until the batch that is watched is no longer waited for
	Trouble string
	Stopped bool // in order, because somebody said so
	MayStop bool
	MayStep bool
	Skips   []dlq.Left
	Fails   []dlq.Left
}

// Under reports whether the act is under way.
func (x actView) Under() bool { return x.Ended.IsZero() }

// Stop is the last part of the address that stops it.
func (x actView) Stop() string {
	if x.Act == dlq.ActPurge {
		return "stop-purge"
	}
	return "stop"
}

func (a *ask) actOf(x ops.RunningAct) actView {
	v := actView{RunningAct: x}
	through := x.Sent + x.Removed + x.Purged + x.Skipped + x.Failed
	if x.Letters > 0 {
		v.Percent = min(100, 100*through/x.Letters)
	}
	verb, n := "sent", x.Sent
	if x.Act == dlq.ActPurge {
		verb, n = "removed", x.Purged
	}
	v.Line = fmt.Sprintf("%s of %s %s", number(n), number(x.Letters), verb)
	if w := x.Watched; w != nil {
		v.Next = max(0, x.CanaryWait-w.Watched)
	}
	switch {
	case errors.Is(x.Err, dlq.ErrStopped):
		v.Stopped = true
	case x.Err != nil:
		v.Trouble = a.told(x.Err)
	}
	v.Skips, v.Fails = x.Report.Skipped[:min(len(x.Report.Skipped), 10)], x.Report.Failed[:min(len(x.Report.Failed), 10)]
	if !a.can(Bodies) {
		v.Fails = slices.Clone(v.Fails)
		for i := range v.Fails {
			v.Fails[i].Reason = hidden
		}
	}
	return v
}

// acts are those that he sees.
func (a *ask) actList() (as []actView) {
	for _, x := range a.page.running.Acts() {
		if a.seesActOf(x.Queue) && (x.Ended.IsZero() || time.Since(x.Ended) < time.Hour) {
			as = append(as, a.actOf(x))
		}
	}
	return as
}

func stateOfActs(as []actView) (state string) {
	for i := range as {
		state += fmt.Sprint(as[i].ID, as[i].Line, as[i].Ended)
	}
	return state
}

func stateOfAct(x *ops.RunningAct) string {
	state := fmt.Sprint(x.Audit, x.Sent, x.Removed, x.Purged, x.Skipped, x.Failed, len(x.Batches), x.Asks, x.Stopping, x.Ended)
	if w := x.Watched; w != nil {
		state += fmt.Sprint(w.Number, w.Done, w.Running, w.Waiting, w.Unknown, len(w.Failed))
	}
	return state
}

func (a *ask) seesActOf(queue string) bool {
	t, err := a.ops.Target(queue)
	return err == nil && a.who.sees(t.Name)
}

// running is the act that the path names.
func (p *Page) runningOf(a *ask) (ops.RunningAct, error) {
	x, ok := p.running.Act(a.r.PathValue("id"))
	if !ok || !a.seesActOf(x.Queue) {
		return x, &sayError{http.StatusNotFound, errors.New("no such act is known here: it ended long ago, or with its process. The audit has it; an act without an end there was cut off, its letters come back, and another plan finishes it")}
	}
	return x, nil
}

func (p *Page) act(a *ask) error { return p.actScreen(a, http.StatusOK, nil) }

func (p *Page) actScreen(a *ask, status int, change func(*view)) error {
	x, err := p.runningOf(a)
	if err != nil {
		return err
	}
	v := a.framed(a.view("act", string(x.Act)+" of "+x.Queue, crumb{x.Queue, "/q/" + url.PathEscape(x.Queue)}))
	v.Live, v.state = "act:"+x.ID, stateOfAct(&x)
	if x.Ended.IsZero() {
		v.Reload = 3
	}
	d := a.actOf(x)
	d.MayStop, d.MayStep = a.can(Replay), a.can(Replay)
	if x.Act == dlq.ActPurge {
		d.MayStop, d.MayStep = a.can(Purge), false
	}
	v.Data = d
	if change != nil {
		change(v)
	}
	a.show(status, v)
	return nil
}

// stop and stopPurge end an act in order; step lets it go on although not all of a batch are done.
func (p *Page) stop(a *ask) error      { return p.word(a, dlq.ActReplay, "stop", p.running.Stop) }
func (p *Page) stopPurge(a *ask) error { return p.word(a, dlq.ActPurge, "stop", p.running.Stop) }
func (p *Page) step(a *ask) error      { return p.word(a, dlq.ActReplay, "step", p.running.Step) }

func (p *Page) word(a *ask, of dlq.Act, form string, say func(id, by string) error) error {
	x, err := p.runningOf(a)
	if err != nil {
		return err
	}
	if x.Act != of {
		return &sayError{http.StatusNotFound, errors.New("the act is another one")}
	}
	if err := say(x.ID, a.who.Name); err != nil {
		return p.actScreen(a, http.StatusConflict, faulty(a, form, err))
	}
	a.see("/acts/" + x.ID)
	return nil
}
