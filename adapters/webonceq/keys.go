package webonceq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// This file owns the screens of keys and of the audit. They ask the store for each request.

// seesKey reports whether a key of the target's store is one that he may see: stores are shared by
// queues.
func (a *ask) seesKey(ctx context.Context, queue string, k dedupe.Key) (bool, error) {
	if a.who.Queues == nil {
		return true, nil
	}
	scopes, err := a.ops.Scopes(ctx, queue)
	return slices.Contains(scopes, k.Scope), err
}

// where is the queue and the key that a form, or an address, names. Without a scope it is "".
func (a *ask) where(ctx context.Context) (queue string, k dedupe.Key, err error) {
	f := a.r.FormValue
	if queue, err = a.queue(); err != nil {
		return "", k, err
	}
	k = dedupe.Key{Scope: strings.TrimSpace(f("scope")), Key: f("key")}
	if k.Scope == "" {
		return queue, k, nil
	}
	if strings.HasPrefix(k.Scope, ":") {
		return "", k, fmt.Errorf("%w: such scopes are onceq's own", dedupe.ErrBadKey)
	}
	sees, err := a.seesKey(ctx, queue, k)
	if err == nil && !sees {
		err = fmt.Errorf("%w: %v", ops.ErrNoKey, k)
	}
	return queue, k, err
}

// A found is a record in a list.
type found struct {
	*dedupe.Record
	Queue, Error string
}

func (a *ask) foundOf(queue string, r *dedupe.Record) found {
	f := found{r, queue, ""}
	if r.LastErr != "" {
		f.Error = hidden
		if a.can(Bodies) {
			f.Error = cut(r.LastErr, 300)
		}
	}
	return f
}

// key shows a key, or the list of those of its name.
func (p *Page) key(a *ask) error {
	q := a.r.URL.Query()
	ctx, cancel := a.within()
	defer cancel()
	if q.Get("scope") != "" && q.Get("queue") != "" {
		return p.keyScreen(a, http.StatusOK, nil)
	}
	name := q.Get("key")
	v := a.framed(a.view("find", "Find a key"))
	d := struct {
		Key   string
		Found []found
		Notes []string
		Asked bool
	}{Key: name, Asked: name != ""}
	if name != "" {
		in, unknown := a.queueNames(), []string(nil)
		if queue := q.Get("queue"); queue != "" {
			in = []string{queue}
		}
		seen := map[dedupe.Key]bool{}
		for _, queue := range in {
			rs, err := a.find(ctx, queue, name)
			if errors.Is(err, errNoScopes) {
				unknown = append(unknown, queue+": "+a.told(err))
			} else if err != nil {
				d.Notes = append(d.Notes, queue+": "+a.told(err))
			}
			for _, r := range rs {
				if !seen[r.Key] {
					seen[r.Key] = true
					d.Found = append(d.Found, a.foundOf(queue, r))
				}
			}
		}
		if len(d.Found) == 0 {
			d.Notes = append(d.Notes, unknown...)
		}
		if len(d.Found) == 1 && len(d.Notes) == 0 {
			a.see("/key?" + url.Values{"queue": {d.Found[0].Queue}, "scope": {d.Found[0].Key.Scope}, "key": {name}}.Encode())
			return nil
		}
	}
	v.Data = d
	a.show(http.StatusOK, v)
	return nil
}

func (a *ask) find(ctx context.Context, queue, key string) ([]*dedupe.Record, error) {
	if !a.who.sees(queue) {
		return nil, fmt.Errorf("%w: %q", ops.ErrUnknownQueue, queue)
	}
	scopes, err := a.ops.Scopes(ctx, queue)
	if err != nil {
		return nil, err
	}
	if len(scopes) == 0 {
		return nil, errNoScopes
	}
	return a.ops.Find(ctx, queue, scopes, key)
}

// A step is one of a time line, as it is shown.
type step struct {
	ops.TimeStep
	After string // since the step before
	Kind  string
}

// A piece is what the drawing of a time line has: a span, or a mark.
type piece struct{ X, W, Kind string }

// keyScreen shows a key; change, where it is set, adds what an act was answered.
func (p *Page) keyScreen(a *ask, status int, change func(*view)) error {
	return p.keyWith(a, status, ops.KeyOptions{}, change)
}

// keyLook shows a key with its dead letter, for which it goes through the queue's letters.
func (p *Page) keyLook(a *ask) error {
	return p.keyWith(a, http.StatusOK, ops.KeyOptions{Letters: true}, nil)
}

func (p *Page) keyWith(a *ask, status int, ko ops.KeyOptions, change func(*view)) error {
	ctx, cancel := context.WithTimeout(a.ctx(), 2*patience)
	defer cancel()
	queue, k, err := a.where(ctx)
	if err != nil {
		return err
	}
	var line *ops.TimeLine
	look := func(ctx context.Context) (err error) {
		line, err = a.ops.Key(ctx, queue, k, ko)
		return err
	}
	if ko.Letters {
		err = p.board.WithLetters(ctx, queue, look)
	} else {
		err = look(ctx)
	}
	if line == nil || err != nil && !errors.Is(err, ops.ErrNoKey) {
		return err
	}
	v := a.framed(a.view("onekey", k.Key, crumb{queue, "/q/" + url.PathEscape(queue)}))
	d := struct {
		Queue   string
		Line    *ops.TimeLine
		Fence   uint64
		Steps   []step
		Draw    []piece
		From    time.Time
		To      time.Time
		Letter  *letter
		Looked  bool
		Links   []link
		Gaps    []string
		Why     string
		Parked  bool
		Again   bool   // its letter can bring it back
		NoAgain string // why it cannot
	}{Queue: queue, Line: line, Looked: ko.Letters, Links: linksOf(line.Links), Gaps: a.gapList(line.Gaps)}
	if r := line.Record; r != nil {
		d.Fence = r.Fence
		d.Parked = r.Status == dedupe.Parked
		d.Again, d.NoAgain = p.bringsBack(line, queue, ko.Letters)
	}
	if line.Letter != nil {
		room := maxBodies
		l := a.letterOf(queue, line.Letter, &room)
		d.Letter = &l
	}
	var before time.Time
	for _, s := range line.Steps {
		if !a.can(Bodies) {
			if isFailure(s.What) {
				s.Text = ""
			}
			s.Text, _, _ = strings.Cut(s.Text, "; it failed: ") // an act's error
		}
		x := step{TimeStep: s, Kind: strings.ReplaceAll(s.What, " ", "-")}
		if !before.IsZero() && s.At.Sub(before) >= time.Millisecond {
			x.After = span(s.At.Sub(before))
		}
		if d.Steps, before = append(d.Steps, x), s.At; d.From.IsZero() {
			d.From = s.At
		}
		d.To = s.At
	}
	d.Draw = draw(line.Steps)
	v.Data = d
	if change != nil {
		change(v)
	}
	if line.Record == nil && status == http.StatusOK {
		status = http.StatusNotFound
	}
	a.show(status, v)
	return nil
}

// bringsBack reports whether a letter is there that runs the job again; else why it is not known. A
// parked job that is released without its letter would wait for a message that was acked long ago.
func (p *Page) bringsBack(l *ops.TimeLine, queue string, looked bool) (ok bool, why string) {
	r := l.Record
	switch {
	case r.Status != dedupe.Failed && r.Status != dedupe.Parked:
		return false, ""
	case l.Letter != nil:
		return true, ""
	case looked:
		return false, "It has no dead letter, so nothing would bring it back."
	}
	if look, err := p.board.Letters(queue); err == nil && look != nil {
		for i := range look.Groups {
			for j := range look.Groups[i].Letters {
				if dedupe.Key(look.Groups[i].Letters[j].Record()) == l.Key {
					return true, ""
				}
			}
		}
	}
	return false, "Its dead letter was not looked for yet."
}

// gapList is what is not known of a key. What a service said may have addresses and names.
func (a *ask) gapList(all []string) (gs []string) {
	for _, g := range all {
		if i := strings.Index(g, "could not be "); i >= 0 && !a.can(Bodies) {
			if what, _, ok := strings.Cut(g[i:], ": "); ok {
				g = g[:i] + what
			}
		}
		gs = append(gs, g)
	}
	return gs
}

// isFailure reports whether a step's text is an error's.
func isFailure(what string) bool {
	return what == ops.StepReleased || what == ops.StepFailed || what == ops.StepParked
}

// draw is the time line to scale: attempts are spans, all else is a mark.
func draw(steps []ops.TimeStep) (ps []piece) {
	if len(steps) < 2 {
		return nil
	}
	from := steps[0].At
	all := steps[len(steps)-1].At.Sub(from)
	if all < time.Millisecond {
		return nil
	}
	at := func(t time.Time) float64 { return 98 * float64(t.Sub(from)) / float64(all) }
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
	began := map[uint64]time.Time{}
	for _, s := range steps {
		switch s.What {
		case ops.StepClaimed:
			began[s.Fence] = s.At
		case ops.StepSent, ops.StepAct, ops.StepLetter:
			ps = append(ps, piece{f(at(s.At)), "0.8", "mark-" + strings.ReplaceAll(s.What, " ", "-")})
		default:
			b, ok := began[s.Fence]
			if !ok {
				b = s.At
			}
			ps = append(ps, piece{f(at(b)), f(max(1, at(s.At)-at(b))), "ran-" + strings.ReplaceAll(s.What, " ", "-")})
		}
	}
	return ps
}

type link struct{ Name, To string }

// linksOf are the links that lead to a server, in their order: https alone.
func linksOf(m map[string]string) (ls []link) {
	for name, to := range m {
		if u, err := url.Parse(to); err == nil && u.Scheme == "https" && u.Host != "" {
			ls = append(ls, link{name, u.String()})
		}
	}
	slices.SortFunc(ls, func(a, b link) int { return strings.Compare(a.Name, b.Name) })
	return ls
}

// keysPage is how many records a list has.
const keysPage = 50

// keys lists records. A list that reads a whole table is told with its price, and needs a POST.
func (p *Page) keys(a *ask) error {
	f := a.r.FormValue
	status, err := dedupe.ParseStatus(cmp.Or(f("status"), dedupe.Parked.String()))
	if err != nil {
		return refusedAct("status: want parked, failed, released, claimed or done")
	}
	names, queue := a.queueNames(), f("queue")
	everywhere := queue == "" && a.who.Queues == nil // in the first queue's store
	if queue == "" && len(names) > 0 {
		queue = names[0]
	}
	if t, err := a.ops.Target(queue); err != nil || !a.who.sees(t.Name) {
		return fmt.Errorf("%w: %q", ops.ErrUnknownQueue, queue)
	}
	ctx, cancel := a.within()
	defer cancel()
	v := a.framed(a.view("keys", "Keys"))
	d := struct {
		Queue, Status, Scope, Prefix string
		Queues, States               []string
		Found                        []found
		Next                         string
		Price                        string
		Scan, Any                    bool
	}{
		Queue: queue, Status: status.String(), Scope: f("scope"), Prefix: f("prefix"), Queues: names, Any: a.who.Queues == nil,
		States: []string{"parked", "failed", "released", "claimed", "done"}, Scan: a.r.Method == http.MethodPost,
	}
	if everywhere {
		d.Queue = ""
	}
	query := dedupe.Query{Status: status, Scope: d.Scope, Prefix: d.Prefix, Limit: keysPage + 1, After: dedupe.Key{Scope: f("after-scope"), Key: f("after-key")}}
	var scopes []string
	if !everywhere {
		if scopes, err = a.ops.Scopes(ctx, queue); err != nil && a.who.Queues != nil {
			return err
		}
	}
	own := a.who.Queues != nil || len(scopes) > 0
	if own {
		query.Limit = 0 // the store has the records of other queues, too
	}
	of := map[string]string{} // the queues of scopes, as their workers say
	if everywhere {
		for _, name := range slices.Backward(names) {
			scopes, _ := a.ops.Scopes(ctx, name)
			for _, scope := range scopes {
				of[scope] = name
			}
		}
	}
	for r, err := range a.ops.Keys(ctx, queue, ops.KeysQuery{Query: query, Scan: d.Scan}) {
		if price := (*ops.ScanError)(nil); errors.As(err, &price) {
			if a.who.Queues != nil { // the table has the records of other queues, too
				price = &ops.ScanError{Records: -1, Units: -min(1, price.Units*price.Units)}
			}
			d.Price = sentence(price)
			break
		}
		if err != nil {
			return err
		}
		if own && !slices.Contains(scopes, r.Key.Scope) {
			continue
		}
		if len(d.Found) == keysPage {
			last := d.Found[keysPage-1].Key
			d.Next = url.Values{
				"queue": {d.Queue}, "status": {d.Status}, "scope": {d.Scope}, "prefix": {d.Prefix}, "after-scope": {last.Scope}, "after-key": {last.Key},
			}.Encode()
			break
		}
		d.Found = append(d.Found, a.foundOf(cmp.Or(of[r.Key.Scope], queue), r))
	}
	slices.SortStableFunc(d.Found, func(a, b found) int { return a.Updated.Compare(b.Updated) })
	v.Data = d
	a.show(http.StatusOK, v)
	return nil
}

// maxActsShown bounds the audit's screen.
const maxActsShown = 200

// entry is an act of the audit, as it is shown.
type entry struct {
	ops.AuditEntry
	Open bool // its end is not known
}

// entrySeen is an act of the audit as he may see it. What an edit set is of bodies, and an error
// may have addresses and names.
func (a *ask) entrySeen(e ops.AuditEntry) ops.AuditEntry {
	if e.Err != "" {
		e.Err = a.trouble(errors.New(e.Err))
	}
	if _, edited := e.Detail["edit"]; edited && !a.can(Bodies) {
		e.Detail = maps.Clone(e.Detail)
		e.Detail["edit"] = hidden
	}
	return e
}

// since is how far back the audit is read.
func since(text string) (time.Duration, error) {
	d, err := time.ParseDuration(cmp.Or(text, "24h"))
	if err != nil || d <= 0 || d > 31*24*time.Hour {
		return 0, refusedAct("since: want how long ago, such as 24h, at most 744h")
	}
	return d, nil
}

// audit shows the acts, the newest first.
func (p *Page) audit(a *ask) error {
	f := a.r.URL.Query().Get
	back, err := since(f("since"))
	if err != nil {
		return err
	}
	ctx, cancel := a.within()
	defer cancel()
	v := a.framed(a.view("audit", "Audit"))
	d := struct {
		Acts         []entry
		By, Queue    string
		Since        time.Duration
		Queues       []string
		Back         []time.Duration
		More         bool
		Note         string
		Unknown, Now time.Time
	}{By: f("by"), Queue: f("queue"), Since: back, Queues: a.queueNames(), Back: []time.Duration{time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}}
	now := time.Now()
	for e, err := range a.ops.Audit(ctx, now.Add(-back), now.Add(time.Minute)) {
		if err != nil {
			d.Note = a.trouble(err)
			break
		}
		if !a.seesAct(&e) || d.By != "" && e.By != d.By || d.Queue != "" && !a.isOf(&e, d.Queue) {
			continue
		}
		e = a.entrySeen(e)
		d.Acts = append(d.Acts, entry{AuditEntry: e, Open: e.Ended.IsZero()})
	}
	slices.SortStableFunc(d.Acts, func(a, b entry) int { return b.Began.Compare(a.Began) })
	if d.More = len(d.Acts) > maxActsShown; d.More {
		d.Acts = d.Acts[:maxActsShown]
	}
	v.Data = d
	a.show(http.StatusOK, v)
	return nil
}

// seesAct reports whether an act is of a queue that he sees.
func (a *ask) seesAct(e *ops.AuditEntry) bool {
	return a.who.Queues == nil || slices.ContainsFunc(a.who.Queues, func(q string) bool { return a.isOf(e, q) })
}

// isOf reports whether an act is a target's: the audit has the queue's name as its workers have it.
func (a *ask) isOf(e *ops.AuditEntry, queue string) bool {
	t, err := a.ops.Target(queue)
	return err == nil && e.Queue != "" && e.Queue == t.Known
}
