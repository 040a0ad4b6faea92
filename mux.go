package onceq

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/letter"
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
// A queue that moves from a single handler to a Mux has its keys in the Processor's Scope, without
// a type. Say so, because a duplicate from before would run again otherwise. There are two ways:
//
//   - JobOptions{Was: OneHandler} for the type that takes the handler's place. The others are new.
//   - [Mux.OneScope], where the handler did the work of several types.
//
// A type that gets another name says JobOptions{Was: "its former name"}. Messages without a type
// need [Mux.Untyped].
type Mux struct {
	mu       sync.RWMutex
	types    map[string]*route
	mw       []Middleware
	oneScope bool
	untyped  string // the type of messages without one; "" = none
	err      error  // the first mistake in On; NewProcessor answers it
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

// OneScope says that the jobs of all types have their keys in the Processor's Defaults.Scope, else
// its Scope, as those of a single handler have. Then two jobs with one key are one job, whatever
// their types. So the keys must tell the types apart, such as "order/7" and "mail/7". A type's own
// JobOptions.Scope or Was wins. Call it before the Processor is made.
//
// All workers of a queue must agree on it. A Mux that has run without it must not get it, nor lose
// it, while a message may still come of a job that was done: such a job would be done again.
func (m *Mux) OneScope() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.oneScope = true
}

// Untyped says of which type messages without one are, such as those of a producer that does not
// use onceq. They get that type's handler, options and scope. Job.Type stays empty for them, and
// ProcessorConfig.Key finds their keys. Call it before the Processor is made. NewProcessor refuses
// a type without a handler.
//
// It also refuses a type that does not say where its keys are, because both answers are wrong for
// somebody: JobOptions.Was is OneHandler where a single handler did these messages before, and the
// type's own name where they are new to the queue, or the type had a handler of this Mux before.
// JobOptions.Scope and OneScope say it, too.
func (m *Mux) Untyped(typ string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.untyped != "" || typ == "" {
		m.err = cmp.Or(m.err, badConfig("Mux.Untyped", "the type is %q, and was %q; want one", verdict.Clip(typ, verdict.MaxClass), verdict.Clip(m.untyped, verdict.MaxClass)))
		return
	}
	m.untyped = typ
}

// route finds the handler of a type. The caller holds the lock.
func (m *Mux) route(typ string) *route {
	if typ == "" {
		return m.types[m.untyped]
	}
	if r := m.types[typ]; r != nil {
		return r
	}
	return m.types[m.heir(typ)]
}

// heir is the type that had this name before; "" = none had it.
func (m *Mux) heir(was string) string {
	if was == OneHandler {
		return ""
	}
	for typ, r := range m.types {
		if r.options.Was == was {
			return typ
		}
	}
	return ""
}

// Handle calls the handler of the job's type.
func (m *Mux) Handle(ctx context.Context, j *Job) error {
	m.mu.RLock()
	r := m.route(j.Type())
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
	name        string // messages may also have none, or its former one
	options     JobOptions
	scope       string
	shares      bool // the Mux has said that it shares its scope
	startsLater bool
}

// scopeFor is the scope of a type's keys. The caller holds the lock.
func (m *Mux) scopeFor(of scopes, typ string, o *JobOptions) string {
	if m.shares(o) {
		return of.bare
	}
	return o.scopeOf(of.whole, of.bare, typ)
}

// shares reports whether a type's keys are in the one scope of all types.
func (m *Mux) shares(o *JobOptions) bool { return m.oneScope && o.Scope == "" && o.Was == "" }

// snapshot is what a Processor with these scopes needs to know of the types, by each name that a
// message may have. one reports whether types that nobody knows here share their scope.
func (m *Mux) snapshot(of scopes) (types map[string]*jobType, one bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	types = make(map[string]*jobType, len(m.types)+1)
	for typ, r := range m.types {
		types[typ] = &jobType{typ, r.options, m.scopeFor(of, typ, &r.options), m.shares(&r.options), startsLater(r.wrapped)}
	}
	for typ, r := range m.types {
		if was := r.options.Was; was != "" && was != OneHandler && types[was] == nil {
			types[was] = types[typ]
		}
	}
	if m.untyped != "" {
		types[""] = types[m.untyped]
	}
	return types, m.oneScope
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

// check validates the types' options against the scopes they will live in.
func (m *Mux) check(of scopes, storeless bool, d *JobOptions) error {
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
		if err := checkScope(fmt.Sprintf("Mux.On(%q)", verdict.Clip(typ, verdict.MaxClass)), m.scopeFor(of, typ, &r.options)); err != nil {
			return err
		}
	}
	return m.checkNames()
}

// checkNames refuses names under which a message would have two types, or keys in two places. The
// caller holds the lock.
func (m *Mux) checkNames() error {
	was := make(map[string]string, len(m.types))
	for _, typ := range slices.Sorted(maps.Keys(m.types)) {
		o := &m.types[typ].options
		name := verdict.Clip(typ, verdict.MaxClass)
		if o.Was == "" {
			continue
		}
		if other, taken := was[o.Was]; taken {
			return badConfig(fmt.Sprintf("Mux.On(%q) options.Was", name), "the type %q says that it was the same; where several types take one's place, call Mux.OneScope or give them one Scope", verdict.Clip(other, verdict.MaxClass))
		}
		was[o.Was] = typ
	}
	if m.untyped == "" {
		return nil
	}
	name := verdict.Clip(m.untyped, verdict.MaxClass)
	r := m.types[m.untyped]
	switch {
	case r == nil:
		return badConfig("Mux.Untyped", "the type %q has no handler", name)
	case !m.oneScope && r.options.Scope == "" && r.options.Was == "":
		return badConfig("Mux.Untyped", "the type %q must say where its keys are: JobOptions.Was is OneHandler if a single handler did these messages before, and %q if the keys are to be the type's own; with the wrong one, jobs are done again", name, name)
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
		t := types[typ]
		if t.shares || typ != t.name {
			continue
		}
		scope := t.scope
		if other, shared := first[scope]; shared {
			log.Warn("onceq: two types of the Mux share a scope: a job of one counts as done when a job of the other with its key is",
				slog.String("type", typ), slog.String("other", other), slog.String("scope", scope))
			continue
		}
		first[scope] = typ
	}
}

// given is the room for a user's copy of a message. One allocation makes those of a whole receive.
type given struct {
	message broker.Message
	meta    broker.Meta
}

// give makes the user's copy of the message. So a letter is made from what was received, whatever
// the user does with the copy.
func give(r *run) {
	m, meta := r.Job.Message, r.Job.Message.Meta
	*m = *r.Message
	m.Attributes = maps.Clone(m.Attributes)
	if m.Meta == nil {
		return
	}
	*meta = *m.Meta
	if meta.Dead != nil {
		meta.Dead = m.Meta.Clone().Dead
	}
	m.Meta = meta
}

// newRun makes the run of a delivery. The user's copy of the message goes into g.
func newRun(f *flow, m *broker.Message, g *given, now time.Time) *run {
	unfold(m)
	r := f.NewRun(m, now)
	g.message.Meta = &g.meta
	r.Job = Job{Message: &g.message, r: r}
	return r
}

// unfold puts a replayed letter's attributes back into their places, where a queue on its way had
// no room for them. So the handler sees the message as it was. Where an attribute of the same name
// came with the message, that one wins.
func unfold(m *broker.Message) {
	if m == nil || !letter.IsFolded(m.Meta) { // a batch may bring a delivery without a message
		return
	}
	m.Attributes, m.Meta = letter.Attributes(m.Attributes, m.Meta), m.Meta.Clone() // the driver may hold on to its own
	m.Meta.Dead.Attributes = nil
}
