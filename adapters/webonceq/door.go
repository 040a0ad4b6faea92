package webonceq

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/onceq/onceq/dlq"
)

// This file owns the way of a request: what is refused at the door, and how an answer or an error
// is written. It runs in the request's goroutine, and keeps nothing.

// policy is what a browser may load, and from where: from here alone, and nothing inline.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// guard refuses what must not come in, whatever the route is.
func (p *Page) guard(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if p.life.base.Err() != nil {
		http.Error(w, "the page is closed", http.StatusServiceUnavailable)
		return
	}
	if !hosts(p.o.Hosts).known(r.Host) {
		p.refuse(w, r, "", fmt.Errorf("the host %q is not among Options.Hosts", cut(r.Host, 100)))
		return
	}
	if err := p.cross.Check(r); err != nil {
		p.refuse(w, r, "", err)
		return
	}
	if mode := r.Header.Get("Sec-Fetch-Mode"); isForeign(r) && mode != "" && mode != "navigate" {
		p.refuse(w, r, "", errForeign)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, MaxRequest)
	p.mux.ServeHTTP(w, r)
}

var errForeign = errors.New("another site's page has asked for it")

// isForeign reports whether another site's page has caused the request. CrossOriginProtection lets
// each GET in, and a look at letters, or an export, costs a receive of each.
func isForeign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// refuse answers 403. What the refused one reads does not say why, because he may be anybody.
func (p *Page) refuse(w http.ResponseWriter, r *http.Request, who string, why error) {
	if l := p.o.Logger; l != nil {
		l.LogAttrs(r.Context(), slog.LevelWarn, "onceq: the page refused a request", slog.String("peer", r.RemoteAddr), slog.String("by", who),
			slog.String("method", r.Method), slog.String("path", dlq.Printable(cut(r.URL.Path, 200))), slog.Any("why", why))
	}
	http.Error(w, "refused", http.StatusForbidden)
}

// serve answers for a route.
func (p *Page) serve(w http.ResponseWriter, r *http.Request, x *route) {
	who := Access{May: Look}
	if p.o.Access != nil {
		var err error
		if who, err = p.o.Access(r); err != nil {
			p.refuse(w, r, who.Name, err)
			return
		}
	}
	if who = who.settled(); !who.May.has(x.need) {
		p.refuse(w, r, who.Name, fmt.Errorf("%s %s needs %v, and there is %v", x.method, x.path, x.need, who.May))
		return
	}
	if x.method == http.MethodPost {
		if err := r.ParseForm(); err != nil {
			status := http.StatusBadRequest
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, "the form cannot be read", status)
			return
		}
	}
	a := &ask{w: w, r: r, who: who, ops: p.ops.As(who.Name), page: p}
	if err := x.do(p, a); err != nil {
		p.failed(a, err)
	}
}

// failed shows an error on a screen of its own.
func (p *Page) failed(a *ask, err error) {
	if a.ctx().Err() != nil {
		return // nobody reads it
	}
	status := statusOf(err)
	title := "Not now"
	switch status {
	case http.StatusNotFound:
		title = "Not found"
	case http.StatusBadRequest:
		title = "Not understood"
	}
	v := a.view("trouble", title)
	v.Data = a.told(err)
	a.show(status, v)
}

// show writes a screen.
func (a *ask) show(status int, v *view) {
	if v.Live != "" {
		v.Version = a.version(v.board, v.Live, v.state)
	}
	var b bytes.Buffer
	b.Grow(16 << 10)
	if err := templates().ExecuteTemplate(&b, v.name, v); err != nil {
		if l := a.page.o.Logger; l != nil {
			l.LogAttrs(a.ctx(), slog.LevelError, "onceq: a screen of the page could not be made", slog.String("screen", v.name), slog.Any("error", err))
		}
		http.Error(a.w, "this screen cannot be made", http.StatusInternalServerError)
		return
	}
	a.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	a.w.WriteHeader(status)
	_, _ = a.w.Write(b.Bytes()) // who asked may be gone
}

// see sends the browser on, after an act has begun.
func (a *ask) see(path string) { http.Redirect(a.w, a.r, a.page.o.Base+path, http.StatusSeeOther) }
