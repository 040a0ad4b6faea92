package onceq

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns Mux: the handlers by type, their options and scopes. Users call the exported
// methods; NewProcessor calls check and snapshot, once, and every job of a Mux calls Handle. mu
// guards all fields. It is let go before a handler runs.

// Mux picks a handler by [broker.Meta].Type. The zero Mux is ready to use.
//
// Each type has its own scope of keys, so that two types with one key never meet. A message of a
// type without a handler does not fail at once. It is tried again, class "no-handler", because
// another worker may know the type during a rolling deploy.
//
// Give a Processor the Mux itself, or what [Chain] makes of it. A Mux that is wrapped in any other
// way loses the scopes and options of its types, and refuses every job, class "config".
// NewProcessor refuses a Mux within another Mux, and a [Forward] within any.
//
// A queue that moves from a single handler to a Mux gets other scopes for its keys, so that a
// duplicate from before would run again. Give the type that takes the handler's place
// JobOptions{Scope: "the old scope"}.
type Mux struct {
	mu    sync.RWMutex
	types map[string]*route
	mw    []Middleware
	err   error // the first mistake in On; NewProcessor answers it
}

type route struct {
	bare, wrapped Handler
	options       JobOptions
}

// On sets the handler of a type. A nil o means the Processor's Defaults. Set all types before the
// Processor is made: NewProcessor refuses an empty or repeated type, and a nil handler.
func (m *Mux) On(typ string, h Handler, o *JobOptions) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refuse(typ, h); err != nil {
		m.err = cmp.Or(m.err, err)
		return
	}
	r := &route{bare: h, wrapped: Chain(h, m.mw...)}
	if o != nil {
		r.options = *o
	}
	if m.types == nil {
		m.types = make(map[string]*route)
	}
	m.types[typ] = r
}

func (m *Mux) refuse(typ string, h Handler) error {
	switch {
	case typ == "":
		return badConfig("Mux.On", "the type is empty")
	case values.IsNil(h):
		return badConfig("Mux.On", "the handler of type %q is nil", typ)
	case muxIn(h) != nil:
		return badConfig("Mux.On", "the handler of type %q is a Mux, whose scopes and options would be lost", typ)
	case relayIn(h) != nil:
		return badConfig("Mux.On", "the handler of type %q is a Forward, which sends on all that its queue holds; give it a Processor of its own", typ)
	case m.types[typ] != nil:
		return badConfig("Mux.On", "the type %q has a handler already", typ)
	}
	return nil
}

// Use adds middleware around every handler of the Mux, those set before included. The first is
// the outermost.
func (m *Mux) Use(mw ...Middleware) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.ContainsFunc(mw, func(f Middleware) bool { return f == nil }) {
		m.err = cmp.Or(m.err, badConfig("Mux.Use", "a middleware is nil"))
		return
	}
	m.mw = append(m.mw, mw...)
	for _, r := range m.types {
		r.wrapped = Chain(r.bare, m.mw...)
	}
}

// Handle calls the handler of the job's type.
func (m *Mux) Handle(ctx context.Context, j *Job) error {
	m.mu.RLock()
	r := m.types[j.Type()]
	m.mu.RUnlock()
	own, knows := j.r.Flow().Host.(muxed).serves(m, j.Type())
	if !own {
		return errHiddenMux
	}
	if r == nil || !knows { // the type is unknown, or came after the Processor was made
		return verdict.Classed(ClassNoHandler, "onceq: no handler for type %q", verdict.Clip(j.Type(), verdict.MaxClass))
	}
	return r.wrapped.Handle(ctx, j)
}

// Types are the types that have a handler, sorted.
func (m *Mux) Types() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	types := make([]string, 0, len(m.types))
	for t := range m.types {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}

var errHiddenMux = verdict.Classed(ClassConfig, "onceq: the worker's Handler wraps a Mux, whose scopes and options are then unknown; wrap it with Chain, or give the middleware to Mux.Use")

// jobType is what a Processor knows of a type.
type jobType struct {
	options     JobOptions
	scope       string
	startsLater bool
}

// snapshot is what a Processor with this scope needs to know of the types.
func (m *Mux) snapshot(scope string) map[string]*jobType {
	m.mu.RLock()
	defer m.mu.RUnlock()
	types := make(map[string]*jobType, len(m.types))
	for typ, r := range m.types {
		types[typ] = &jobType{options: r.options, scope: r.options.scopeOf(scope, typ), startsLater: startsLater(r.wrapped)}
	}
	return types
}

// each calls f for each type and its handler, until f answers an error.
func (m *Mux) each(f func(typ string, bare Handler) error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, typ := range slices.Sorted(maps.Keys(m.types)) {
		if err := f(typ, m.types[typ].bare); err != nil {
			return err
		}
	}
	return nil
}

// check validates the types' options against the scope they will live in.
func (m *Mux) check(scope string, storeless bool, d *JobOptions) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.err != nil {
		return m.err
	}
	if len(m.types) == 0 {
		return badConfig("ProcessorConfig.Handler", "the Mux has no handlers; call Mux.On first")
	}
	for typ, r := range m.types {
		if values.IsNil(r.wrapped) {
			return badConfig("Mux.Use", "a middleware made the handler of type %q nil", typ)
		}
		if k := knownIn(r.bare); k != nil && k.mistake() != nil {
			return fmt.Errorf("%w (of Mux.On(%q))", k.mistake(), verdict.Clip(typ, verdict.MaxClass))
		}
		if err := r.options.check(fmt.Sprintf("Mux.On(%q) options", typ), d); err != nil {
			return err
		}
		if storeless && r.options.Interrupted == dedupe.Park {
			return badConfig(fmt.Sprintf("Mux.On(%q) options.Interrupted", typ), "Park needs a Store: without one, nobody knows that a job was interrupted")
		}
		if err := checkScope(fmt.Sprintf("Mux.On(%q)", verdict.Clip(typ, verdict.MaxClass)), r.options.scopeOf(scope, typ)); err != nil {
			return err
		}
	}
	return nil
}

// muxed is what a Mux asks of whoever runs a job: whether the Mux is the Handler there, and whether
// it knew the type when the Processor was made.
type muxed interface {
	serves(m *Mux, typ string) (own, knows bool)
}

// tellSharedScopes tells of types of a Mux whose keys are the same: where that is a mistake, one
// type's job is acked because another's was done.
func tellSharedScopes(log *slog.Logger, types map[string]*jobType) {
	first := make(map[string]string, len(types))
	for _, typ := range slices.Sorted(maps.Keys(types)) {
		scope := types[typ].scope
		if other, shared := first[scope]; shared {
			log.Warn("onceq: two types of the Mux share a scope: a job of one counts as done when a job of the other with its key is",
				slog.String("type", typ), slog.String("other", other), slog.String("scope", scope))
			continue
		}
		first[scope] = typ
	}
}
