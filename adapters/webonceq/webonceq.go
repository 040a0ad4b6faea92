package webonceq

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/onceq/onceq/ops"
)

// This file owns what New makes. The HTTP server calls ServeHTTP from many goroutines. What changes
// after New is under the lock of its own type: the plans, the acts, the streams.

// New makes the page of what o sees. It does no I/O, and starts no goroutine until somebody looks.
// Acts have the name of who asks ([ops.Ops.As]). An error names the option and its limit.
func New(o *ops.Ops, options *Options) (*Page, error) {
	if o == nil {
		return nil, errors.New("webonceq: New: Ops is nil, want one")
	}
	p := &Page{ops: o, cross: http.NewCrossOriginProtection(), life: newLife()}
	if options != nil {
		p.o = *options
	}
	if p.o.Hosts = slices.Clone(p.o.Hosts); p.o.Hosts == nil {
		p.o.Hosts = loopback
	}
	switch b := p.o.Base; {
	case b != "" && (b[0] != '/' || strings.HasSuffix(b, "/") || strings.ContainsAny(b, "{}?#% ")):
		return nil, fmt.Errorf("webonceq: Options.Base is %q, want a path like \"/onceq\"", b)
	case len(p.o.Title) > 64:
		return nil, fmt.Errorf("webonceq: Options.Title has %d bytes, the limit is 64", len(p.o.Title))
	case p.o.Protected && p.o.Title == "":
		return nil, errors.New("webonceq: Options.Protected needs Options.Title, because the forms ask for it")
	case slices.Contains(p.o.Hosts, ""):
		return nil, errors.New("webonceq: Options.Hosts has an empty name")
	}
	for _, h := range p.o.Hosts {
		if strings.ContainsAny(h, "/* ") { // no request would match
			return nil, fmt.Errorf("webonceq: Options.Hosts has %q, want a name such as \"ops.example\", with a port or without", h)
		}
	}
	var err error
	if p.board, err = ops.NewBoard(o, nil); err != nil {
		return nil, err
	}
	if p.running, err = ops.NewRunning(&ops.RunningOptions{MaxActs: MaxActs, Board: p.board}); err != nil {
		return nil, err
	}
	p.route()
	return p, nil
}

// ServeHTTP answers a request.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.guard(w, r) }
