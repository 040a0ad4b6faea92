package webonceq

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns the screens of dead letters. They show the last pass through them, because each
// look costs a letter a receive: a pass begins where there was none, or where somebody asks for
// one.

// A group is a kind of failure on the screen.
type group struct {
	*ops.LetterGroup
	N     int // of the chosen ones
	Error string
	Types string
	Bars  bars
}

// letters shows the groups.
func (p *Page) letters(a *ask) error {
	name, err := a.queue()
	if err != nil {
		return err
	}
	look, err := p.board.Letters(name)
	if err == nil && look == nil {
		if _, err = p.board.Pass(name); err == nil {
			look, err = p.board.Letters(name)
		}
	}
	if err != nil {
		return err
	}
	c, err := chosenOf(a.r.URL.Query())
	if err != nil {
		return err
	}
	v := a.framed(a.view("letters", "Dead letters", crumb{name, "/q/" + url.PathEscape(name)}))
	v.Live, v.state = "letters:"+name, stateOfLook(look)
	d := struct {
		Queue   string
		Look    *ops.LettersLook
		Groups  []group
		Total   int
		Chosen  chosen
		Filter  url.Values
		Classes []string
		Types   []string
		Trouble string
		Cut     bool
		Now     string // how many the queue says
	}{Queue: name, Look: look, Chosen: c, Filter: a.r.URL.Query()}
	if look == nil || look.Ended.IsZero() {
		v.Reload = 2
	}
	if look != nil {
		classes, types := map[string]bool{}, map[string]bool{}
		for i := range look.Groups {
			g := &look.Groups[i]
			classes[g.Class] = true
			for t := range g.Types {
				types[t] = true
			}
			if n := c.count(g); n > 0 {
				d.Total += n
				d.Groups = append(d.Groups, a.groupOf(g, n))
			}
		}
		d.Classes, d.Types = offered(classes), offered(types)
		if d.Cut = errors.Is(look.Err, dlq.ErrIncomplete); look.Err != nil && !d.Cut {
			d.Trouble = a.trouble(look.Err)
		}
	}
	if s, err := p.board.Look(a.ctx()); err == nil {
		if q := s.Queue(name); q != nil && q.Letters != nil {
			d.Now = a.card(q).Letters
		}
	}
	v.Data = d
	a.show(http.StatusOK, v)
	return nil
}

func (a *ask) groupOf(g *ops.LetterGroup, n int) group {
	x := group{LetterGroup: g, N: n, Error: hidden, Bars: barsOf(g.Bars), Types: tally(g.Types)}
	if a.can(Bodies) {
		x.Error = cut(g.Group.Error, 300)
	}
	return x
}

// tally is what there is how often, the most frequent first.
func tally(m map[string]int) string {
	names := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(m[b], m[a]) })
	var parts []string
	for _, name := range names[:min(len(names), 3)] {
		parts = append(parts, cmp.Or(dlq.Printable(cut(name, 60)), "no type"))
	}
	if more := len(names) - 3; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}

// lookAgain begins a pass.
func (p *Page) lookAgain(a *ask) error {
	name, err := a.queue()
	if err != nil {
		return err
	}
	if _, err := p.board.Pass(name); err != nil {
		return err
	}
	a.see("/q/" + url.PathEscape(name) + "/letters")
	return nil
}

// A letter is one of the group's, as it is shown.
type letter struct {
	dlq.Entry
	Queue, Scope, Key, Type  string
	Attempts                 int
	First, Last, Body, Whole string
	Bytes                    int
	Now                      string // the record's state
	NowAt                    time.Time
}

// maxBodies bounds the bodies of one screen.
const maxBodies = 256 << 10

// group shows some letters of a group.
func (p *Page) group(a *ask) error { return p.groupScreen(a, http.StatusOK, nil) }

func (p *Page) groupScreen(a *ask, status int, change func(*view)) error {
	name, err := a.queue()
	if err != nil {
		return err
	}
	look, g, err := p.groupSeen(a, name)
	if err != nil {
		return err
	}
	c, err := chosenOf(a.r.URL.Query())
	if err != nil {
		return err
	}
	c.Group = g.Group.Group
	here := "/q/" + url.PathEscape(name)
	v := a.framed(a.view("group", c.Group, crumb{name, here}, crumb{"Dead letters", here + "/letters"}))
	d := struct {
		Queue  string
		Look   *ops.LettersLook
		Group  group
		Shown  []letter
		Chosen chosen
		Filter url.Values
		Sample string
		Same   bool // the sample says no more than the error
	}{Queue: name, Look: look, Group: a.groupOf(g, c.count(g)), Chosen: c, Filter: a.r.URL.Query()}
	if a.can(Bodies) {
		d.Sample = cut(g.Sample, 2000)
		d.Same = d.Sample == g.Group.Error
	}
	states := p.recorded(a, name, g.Letters)
	room := maxBodies
	for i := range g.Letters {
		l := a.letterOf(name, &g.Letters[i], &room)
		if r := states[dedupe.Key(g.Letters[i].Record())]; r != nil {
			l.Now, l.NowAt = r.Status.String(), r.Updated
		}
		d.Shown = append(d.Shown, l)
	}
	v.Data = d
	if change != nil {
		change(v)
	}
	a.show(status, v)
	return nil
}

// groupSeen is a group of the last pass.
func (p *Page) groupSeen(a *ask, queue string) (*ops.LettersLook, *ops.LetterGroup, error) {
	look, err := p.board.Letters(queue)
	if err != nil {
		return nil, nil, err
	}
	name := cmp.Or(a.r.PathValue("group"), a.r.FormValue("group"))
	if look != nil {
		if g := look.Group(name); g != nil {
			return look, g, nil
		}
	}
	return nil, nil, &sayError{http.StatusNotFound, fmt.Errorf("no letters of the group %q were seen in the last look at %s: look again", cut(name, 40), queue)}
}

// recorded are the records of letters now, from one read. A letter may name any record, so who sees
// some queues reads those of this queue's scopes alone.
func (p *Page) recorded(a *ask, queue string, es []dlq.Entry) map[dedupe.Key]*dedupe.Record {
	t, err := a.ops.Target(queue)
	if err != nil || t.Store == nil {
		return nil
	}
	ctx, cancel := a.within()
	defer cancel()
	var scopes []string
	if a.who.Queues != nil {
		if scopes, err = a.ops.Scopes(ctx, queue); err != nil {
			return nil
		}
	}
	var ks []dedupe.Key
	for i := range es {
		k := dedupe.Key(es[i].Record())
		if k.Validate() == nil && !slices.Contains(ks, k) && (a.who.Queues == nil || slices.Contains(scopes, k.Scope)) {
			ks = append(ks, k)
		}
	}
	found := map[dedupe.Key]*dedupe.Record{}
	for part := range slices.Chunk(ks, max(1, t.Store.Limits().MaxBatch)) {
		rs, err := t.Store.Get(ctx, part)
		if err != nil || len(rs) != len(part) {
			return found // the letters are shown without it
		}
		for i, r := range rs {
			found[part[i]] = r
		}
	}
	return found
}

func (a *ask) letterOf(queue string, e *dlq.Entry, room *int) letter {
	ref := e.Ref()
	l := letter{Entry: *e, Queue: queue, Scope: e.Record().Scope, Key: cmp.Or(e.Record().Key, ref.Key), Type: ref.Type, First: hidden, Last: hidden}
	var dead broker.Letter
	if m := e.Message.Meta; m != nil && m.Dead != nil {
		dead = *m.Dead
	}
	l.Attempts, l.Bytes = dead.Attempts, len(e.Message.Body)
	if !a.can(Bodies) {
		return l
	}
	if l.Last, l.First = cut(dead.LastErr, 2000), cut(dead.FirstErr, 2000); l.First == l.Last {
		l.First = ""
	}
	if l.Bytes <= min(MaxBody, *room) {
		l.Body = bodyText(e.Message.Body)
		*room -= l.Bytes
	}
	if l.Body == "" || !utf8.Valid(e.Message.Body) {
		l.Whole = "/q/" + url.PathEscape(queue) + "/body/" + url.PathEscape(e.Message.ID)
	}
	return l
}

// bodyText is a body for people: JSON on many lines, and nothing in it that steers a screen. It is
// empty where the body is no text.
func bodyText(b []byte) string {
	if !utf8.Valid(b) {
		return ""
	}
	var in bytes.Buffer
	if err := json.Indent(&in, b, "", "  "); err == nil && in.Len() <= 2*MaxBody {
		b = in.Bytes()
	}
	lines := strings.Split(string(b), "\n")
	for i, line := range lines {
		lines[i] = dlq.Printable(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// body gives a letter's body as a file, of a letter that the last pass has kept.
func (p *Page) body(a *ask) error {
	name, err := a.queue()
	if err != nil {
		return err
	}
	look, err := p.board.Letters(name)
	if err != nil {
		return err
	}
	id := a.r.PathValue("message")
	if look != nil {
		for i := range look.Groups {
			for j := range look.Groups[i].Letters {
				if m := look.Groups[i].Letters[j].Message; m.ID == id {
					attach(a.w, "body.bin", len(m.Body))
					_, _ = a.w.Write(m.Body)
					return nil
				}
			}
		}
	}
	return dlq.ErrNoLetter
}

// attach makes the answer a file that no browser shows.
func attach(w http.ResponseWriter, name string, size int) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	if size >= 0 {
		w.Header().Set("Content-Length", strconv.Itoa(size))
	}
}

// export gives the letters of a group as onceq dlq export does. It goes through the queue once.
func (p *Page) export(a *ask) error {
	name, err := a.queue()
	if err != nil {
		return err
	}
	c, err := chosenOf(a.r.URL.Query())
	if err != nil {
		return err
	}
	c.Group = a.r.PathValue("group")
	if isForeign(a.r) { // a link of another site's
		p.refuse(a.w, a.r, a.who.Name, errForeign)
		return nil
	}
	going, cancel := context.WithCancel(a.ctx())
	defer cancel()
	defer context.AfterFunc(p.life.base, cancel)() // Close ends it
	return p.board.WithLetters(going, name, func(ctx context.Context) error {
		write, began := dlq.ExportJSON(a.w), false
		out := http.NewResponseController(a.w)
		for e, err := range a.ops.Letters(ctx, name, dlq.Filter{Group: c.Group, Class: c.Class, Type: c.Type, Source: c.Source, Since: c.Since, Max: 1 << 30}) {
			if err != nil && !began {
				return err
			}
			if err != nil {
				panic(http.ErrAbortHandler) // a file that ends early must not look whole
			}
			if !began {
				began = true
				attach(a.w, "letters-"+safeName(name)+"-"+safeName(c.Group)+".ndjson", -1)
			}
			_ = out.SetWriteDeadline(time.Now().Add(writeFor)) // who does not read keeps nobody from the letters
			if err := write(e); err != nil {
				return nil // who asked is gone
			}
		}
		if !began {
			return dlq.ErrNoLetter
		}
		_ = out.SetWriteDeadline(time.Now().Add(writeFor)) // the server writes the rest
		return nil
	})
}

// safeName is a name as part of a file's.
func safeName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, cut(s, 60))
}

// bars are failures by five minutes, 100 wide and 24 high.
type bars struct {
	Bars     []bar
	From, To time.Time
	Most     int
}

type bar struct{ X, Y, W, H string }

// maxBars is how many bars a screen has; beyond that each stands for more time.
const maxBars = 60

func barsOf(bs []ops.Bar) (x bars) {
	if len(bs) == 0 {
		return x
	}
	const each = 5 * time.Minute
	x.From, x.To = bs[0].At, bs[len(bs)-1].At.Add(each)
	n := int(x.To.Sub(x.From) / each)
	wide := each
	if n > maxBars {
		wide = time.Duration((n+maxBars-1)/maxBars) * each
	}
	n = max(1, int((x.To.Sub(x.From)+wide-1)/wide))
	sums := make([]int, n)
	for _, b := range bs {
		i := min(n-1, max(0, int(b.At.Sub(x.From)/wide)))
		sums[i] += b.N
		x.Most = max(x.Most, sums[i])
	}
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	w := 100 / float64(max(n, 12)) // a single bar is no wall
	for i, s := range sums {
		if s > 0 {
			h := max(1.5, 24*float64(s)/float64(x.Most))
			x.Bars = append(x.Bars, bar{f(float64(i) * w), f(24 - h), f(w * 0.85), f(h)})
		}
	}
	return x
}
