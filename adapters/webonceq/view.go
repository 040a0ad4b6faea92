package webonceq

import (
	"cmp"
	"embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns what all screens have in common: the frame around them. A view is its request's
// own.

//go:embed templates/*.html
var files embed.FS

// templates are parsed once, when somebody looks for the first time.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"text": dlq.Printable, "n": number, "ago": ago, "dur": span, "clock": clock, "day": day, "iso": iso, "cut": func(n int, s string) string { return cut(s, n) },
		"dict": dict, "list": func(l ...string) []string { return l }, "since": time.Since, "between": func(a, b time.Time) time.Duration { return b.Sub(a) }, "progress": progress, "lines": lines,
	}).ParseFS(files, "templates/*.html"))
})

// dict gives a template several values.
func dict(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}

// A view is what a screen's template gets.
type view struct {
	name    string
	Title   string // of the installation
	Base    string
	Here    string // the screen's own address, for a form that leads back to it
	Static  string // where style and script are
	Heading string
	Crumbs  []crumb
	Who     Access
	Now     time.Time
	Banners []banner
	// Reload: without a script, the screen is loaded anew after so many seconds; 0 = it is not.
	// What is typed would be lost, so such a screen has no field.
	Reload  int
	Live    string // the topic of the stream that tells of it; "" = none
	Version string
	Protect bool
	Fault   string // why an act was refused, shown at the form named At
	At      string
	Form    url.Values // what was typed there
	Data    any
	query   url.Values
	board   *ops.Snapshot // what it was made of
	state   string
}

type crumb struct{ Text, Path string }

// view is the frame of a screen.
func (a *ask) view(name, heading string, crumbs ...crumb) *view {
	o := &a.page.o
	return &view{
		name: name, Title: o.Title, Base: o.Base, Here: a.here(), Static: o.Base + staticPath(), Heading: heading, Crumbs: crumbs, Who: a.who, Now: time.Now(),
		Protect: o.Protected, Form: url.Values{}, query: a.r.URL.Query(),
	}
}

// here is the address of the screen that is asked for, or from which a form came; "" = not known.
// It is one of the page's own.
func (a *ask) here() string {
	at := a.r.URL
	if a.r.Method == http.MethodPost {
		var err error
		if at, err = url.Parse(a.r.PostForm.Get("back")); err != nil || at.Scheme != "" || at.Host != "" || at.Opaque != "" {
			return ""
		}
	}
	if path := at.EscapedPath(); !strings.HasPrefix(path, a.page.o.Base+"/") || strings.HasPrefix(path, "//") || strings.Contains(path, "\\") || strings.Contains(path+"/", "/../") {
		return ""
	}
	return (&url.URL{Path: at.Path, RawPath: at.RawPath, RawQuery: at.RawQuery}).String()
}

// May reports whether who asks may do all that is named, such as "replay" and "edit".
func (v *view) May(names ...string) bool {
	for _, name := range names {
		if i := slices.Index(permissions, name); i < 0 || !v.Who.May.has(1<<i) {
			return false
		}
	}
	return true
}

// To is the address of a screen, of path elements.
func (v *view) To(elements ...string) string {
	var b strings.Builder
	b.WriteString(v.Base)
	for _, e := range elements {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(e))
	}
	return cmp.Or(b.String(), "/")
}

// Sub is To with the filter of the screen that is shown.
func (v *view) Sub(elements ...string) string {
	q := url.Values{}
	for _, name := range [...]string{"class", "type", "source", "since"} {
		if text := v.query.Get(name); text != "" {
			q.Set(name, text)
		}
	}
	if len(q) == 0 {
		return v.To(elements...)
	}
	return v.To(elements...) + "?" + q.Encode()
}

// Key is the address of a key's screen.
func (v *view) Key(queue, scope, key string) string {
	q := url.Values{"queue": {queue}, "key": {key}}
	if scope != "" {
		q.Set("scope", scope)
	}
	return v.Base + "/key?" + q.Encode()
}

// Ends is the rule that somebody wants to end, who came by a screen's link to its form.
func (v *view) Ends() string { return v.query.Get("end") }

// Faulty reports whether an act of this form was refused.
func (v *view) Faulty(form string) bool { return v.Fault != "" && v.At == form }

// Lost reports whether an act was refused whose form is not there any more: that of a rule that has
// ended meanwhile.
func (v *view) Lost() bool {
	id, of := strings.CutPrefix(v.At, "end ")
	return v.Fault != "" && of && !slices.ContainsFunc(v.Banners, func(b banner) bool { return b.ID == id && b.CanEnd })
}

// Was is what was typed into a field of a form that was refused; else what it has at first.
func (v *view) Was(form, field, first string) string {
	if v.At != form || !v.Form.Has(field) {
		return first
	}
	return v.Form.Get(field)
}

// A banner is a rule in force. It stands on every screen until it is over.
type banner struct {
	ID, Do, What, By, Reason string
	Queue                    string // through which target it is ended
	Until, made              time.Time
	CanEnd                   bool
}

// addBanners adds the rules of a queue. A rule of all queues is each queue's, and stands there
// once.
func (a *ask) addBanners(bs []banner, q *ops.QueueState) []banner {
	if !a.who.sees(q.Queue) {
		return bs
	}
	for _, r := range q.Rules {
		r = a.ruleSeen(r, q.Queue)
		what := ruled(&r, q.Queue)
		if slices.ContainsFunc(bs, func(b banner) bool { return b.ID == r.ID && b.made.Equal(r.Made) && b.What == what }) {
			continue
		}
		bs = append(bs, banner{
			ID: r.ID, Do: string(r.Do), What: what, By: r.By, Reason: r.Reason, Queue: q.Queue, Until: r.Until, made: r.Made,
			CanEnd: a.can(Pause) && r.ID != "",
		})
	}
	return bs
}

// ruleSeen is a rule as he may see it. To who sees some queues, one of all queues is a rule of his
// queue, which stands still by it. Who made it and why is of other queues, too, so that is not
// shown, nor an id by which it could be ended.
func (a *ask) ruleSeen(r control.Rule, queue string) control.Rule {
	if r.Queue == "" && a.who.Queues != nil {
		r.Queue, r.ID, r.By, r.Reason = queue, "", "", ""
	}
	return r
}

// ruled is what a rule does, in a few words.
func ruled(r *control.Rule, queue string) string {
	what := "queue " + queue
	switch {
	case r.Scope != "" && r.Type != "":
		what = fmt.Sprintf("type %s in scope %s", r.Type, r.Scope)
	case r.Type != "":
		what = "type " + r.Type
	case r.Scope != "":
		what = "scope " + r.Scope
	}
	switch {
	case r.Queue == "":
		what += " in all queues"
		if r.OfQueue() {
			what = "all queues"
		}
	case r.Scope != "" || r.Type != "":
		what += " of " + queue
	}
	if r.Do == control.Limit {
		return fmt.Sprintf("%s: at most %s in each worker", what, count(r.Slots, "handler"))
	}
	return what
}

// frame fills in what the board says to all screens.
func (a *ask) frame(v *view, s *ops.Snapshot) {
	v.board = s
	for i := range s.Queues {
		v.Banners = a.addBanners(v.Banners, &s.Queues[i].QueueState)
	}
}

// version is a name of what a screen shows: it changes when the screen does. A screen has that of
// the very snapshot and state that it was made of, because a later one may be like an earlier one:
// then the stream has nothing new to tell.
func (a *ask) version(s *ops.Snapshot, topic, state string) string {
	sum := fnv.New64a()
	if s != nil {
		for i := range s.Queues {
			if q := &s.Queues[i]; a.who.sees(q.Queue) {
				fmt.Fprint(sum, q.Version, len(q.Rules), q.Sum.Live)
			}
		}
		if topic == "board" {
			fmt.Fprint(sum, s.Number)
		}
	}
	fmt.Fprint(sum, state)
	return fmt.Sprintf("%x", sum.Sum64())
}

func stateOfLook(look *ops.LettersLook) string {
	if look == nil {
		return ""
	}
	return fmt.Sprint(look.Number)
}

// framed is frame for screens that need nothing else of the board, and go without it where it does
// not answer.
func (a *ask) framed(v *view) *view {
	if s, err := a.page.board.Look(a.ctx()); err == nil {
		a.frame(v, s)
	}
	return v
}
