package webonceq

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns what a page is made of, and what a request has. The HTTP server calls ServeHTTP
// from many goroutines. What changes after New is under the lock of its own type: plans and life.

// Limits of one page. Beyond them a request gets a 429, or a 413.
const (
	// MaxActs is how many acts run at once.
	MaxActs = 4
	// MaxStreams is how many browsers are told at once what changes. Those beyond ask again by
	// themselves.
	MaxStreams = 32
	// MaxRequest is how many bytes the body of a request may have.
	MaxRequest = 1 << 20
	// MaxBody is how many bytes of a letter's body are shown; the whole one is given as a file.
	MaxBody = 64 << 10
)

// Options set up a Page. nil, and the zero value, mean the defaults: everybody who reaches it by a
// name of this host may look, and nobody may act.
type Options struct {
	// Title tells one installation from another, such as "prod". It is shown on each screen. At
	// most 64 bytes.
	Title string
	// Base is the path at which the page is mounted, such as "/onceq": then
	// mux.Handle("/onceq/", page). It begins with a '/' and does not end with one. Default: the
	// root.
	Base string
	// Access says who asks, and what he may. An error refuses him with a 403, which does not show
	// the error; Logger gets it. It is called once for each request, in the request's goroutine.
	// Default: everybody has Look, and no name.
	Access func(*http.Request) (Access, error)
	// Hosts are the Host headers that are served, such as "ops.example" (with any port) or
	// "ops.example:8443". All others are refused. Default: localhost, 127.0.0.1 and ::1.
	Hosts []string
	// Protected makes each form that acts ask for the Title, which it needs then.
	Protected bool
	// Keep gets each letter before a purge removes it, in the goroutine of the act. It must have
	// stored the letter when it returns nil; after an error the letter stays, and the purge ends.
	// nil = the form says that nothing is kept.
	Keep func(dlq.Entry) error
	// Logger gets a line for each request that is refused because of who sent it, or from where.
	// Default: nothing is logged. The acts are logged by ops.Options.Logger.
	Logger *slog.Logger
}

// Page is the operator's page, an http.Handler.
type Page struct {
	o       Options
	ops     *ops.Ops
	mux     *http.ServeMux
	cross   *http.CrossOriginProtection
	board   *ops.Board
	running *ops.Running
	plans   plans
	life    *life
	needs   map[string]Permission // by the path of a POST
}

// A route is a path with what is needed for it. The permission is asked here and nowhere else.
type route struct {
	method, path string
	need         Permission
	do           func(*Page, *ask) error
}

// An ask is a request with who asks.
type ask struct {
	w    http.ResponseWriter
	r    *http.Request
	who  Access
	ops  *ops.Ops // his
	page *Page
}

func (a *ask) ctx() context.Context { return a.r.Context() }

// queue is the target that the path, or the form, names. One that he does not see is not there.
func (a *ask) queue() (string, error) {
	name := a.r.PathValue("queue")
	if name == "" {
		name = a.r.FormValue("queue")
	}
	t, err := a.ops.Target(name)
	if err != nil || !a.who.sees(t.Name) {
		return "", fmt.Errorf("%w: %q", ops.ErrUnknownQueue, name)
	}
	return t.Name, nil
}

// can reports whether he may do all of it.
func (a *ask) can(p Permission) bool { return a.who.May.has(p) }

// names are the queues that he sees, in their order.
func (a *ask) queueNames() (names []string) {
	for _, name := range a.ops.Names() {
		if a.who.sees(name) {
			names = append(names, name)
		}
	}
	return names
}

// patience bounds what one screen waits for.
const patience = 20 * time.Second

// within is the request's context with an end.
func (a *ask) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(a.ctx(), patience)
}

// A life is what goes on beside requests. mu guards what is told of plans, and that nothing begins
// after Close.
type life struct {
	base    context.Context
	cut     context.CancelFunc
	streams atomic.Int64

	mu      sync.Mutex
	closed  bool
	all     sync.WaitGroup
	changed chan struct{} // of a plan
}

func newLife() *life {
	l := &life{changed: make(chan struct{})}
	l.base, l.cut = context.WithCancel(context.Background())
	return l
}
