package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/cmd/onceq/internal/places"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/ops"
)

// This file owns what a command works on: it reads the configuration, and opens the store and the
// queues. Each command calls open and closes what it got, in its own goroutine.

// A world is what a command works on. Its Ops has the queues that the command names.
type world struct {
	*ops.Ops
	profile *settings.Profile // nil: no file has one
	places  *places.Places
	links   map[string]string
	closing []func()
}

func (w *world) close() {
	_ = w.places.Close()
	for _, c := range w.closing {
		c()
	}
}

// label is the profile's name, for people.
func (w *world) label() string {
	if w.profile == nil {
		return "no profile"
	}
	return w.profile.Name
}

// openPatience is how long queues and stores may take to be opened by a command that shows the
// others all the same.
const openPatience = 10 * time.Second

// patiently is ctx, cut off where the opening takes too long. Clients keep their context, so it
// lives on when opened was called, until the world is closed.
func patiently(ctx context.Context, w *world) (opening context.Context, opened func()) {
	opening, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(openPatience, func() { cancel(errNoAnswer) })
	w.closing = append(w.closing, func() { timer.Stop(); cancel(nil) })
	return opening, func() { timer.Stop() }
}

var errNoAnswer = fmt.Errorf("no answer in %v", openPatience)

// silent is an error of opening, with what cut it off.
func silent(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errNoAnswer) {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return err
}

// conf is the profile with what the environment says above it.
type conf struct {
	profile *settings.Profile
	store   string
	here    bool // the profile is of a file of the folder
}

// config reads the file, and picks the profile.
func (a *app) config() (*conf, error) {
	f, err := settings.Load(a.io.Env, a.io.Home)
	if err != nil {
		return nil, exitWith(exitUsage, err)
	}
	env := func(name string) string { v, _ := a.io.Env(name); return v }
	p, err := f.Pick(cmp.Or(a.profile, env(settings.EnvProfile)))
	if err != nil {
		return nil, exitWith(exitUsage, err)
	}
	c := &conf{profile: p, store: env(settings.EnvStore), here: f.Here}
	if c.store == "" && p != nil {
		c.store = p.Store
	}
	return c, nil
}

// queues are those that a command names; none means all that there are. With needCards a queue that
// nothing here names comes without a URL.
func (a *app) queues(c *conf, names []string, needs need) ([]*settings.Queue, error) {
	url, _ := a.io.Env(settings.EnvQueue)
	dead, _ := a.io.Env(settings.EnvDead)
	var own *settings.Queue
	if url != "" {
		u, err := settings.ParseQueue(url)
		if err != nil {
			return nil, exit(exitUsage, "%s: %w", settings.EnvQueue, err)
		}
		own = &settings.Queue{Name: u.Name, URL: url, Dead: dead}
	}
	if len(names) == 0 {
		if own != nil {
			return []*settings.Queue{own}, nil
		}
		var all []*settings.Queue
		if c.profile != nil {
			for _, name := range c.profile.Order {
				all = append(all, c.profile.Queues[name])
			}
		}
		return all, nil
	}
	var qs []*settings.Queue
	for _, name := range names {
		if own != nil && name == own.Name {
			qs = append(qs, own)
			continue
		}
		q, err := c.profile.Find(name)
		switch {
		case err == nil:
		case needs&needCards != 0 && c.store != "" && !strings.Contains(name, ":/"):
			q = &settings.Queue{Name: name}
		case own != nil:
			return nil, exit(exitUsage, "%s names the queue %s: %w", settings.EnvQueue, own.Name, err)
		default:
			return nil, exitWith(exitUsage, err)
		}
		if !slices.ContainsFunc(qs, func(o *settings.Queue) bool { return o.Name == q.Name }) {
			qs = append(qs, q)
		}
	}
	return qs, nil
}

// A need is what a command cannot do without.
type need uint8

const (
	needStore need = 1 << iota
	needDead
	// needNoQueue: keys alone are looked at, and queues only if they cost nothing to open.
	needNoQueue
	// needParts: what does not answer is shown as such, beside the rest.
	needParts
	// needCards: a queue that only the cards of its workers name will do, because the store alone
	// is asked.
	needCards
	// needShared: many goroutines look at letters, so none tells a person how far it has come.
	needShared
)

// open opens the store, and the queues that a command names; no name means all.
func (a *app) open(ctx context.Context, needs need, names ...string) (*world, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	qs, err := a.queues(c, names, needs)
	if err != nil {
		return nil, err
	}
	w := &world{profile: c.profile, places: &places.Places{Old: a.old}}
	if err := a.fill(ctx, w, c, qs, needs); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (a *app) fill(ctx context.Context, w *world, c *conf, qs []*settings.Queue, needs need) error {
	all := ctx
	if needs&needParts != 0 {
		var opened func()
		ctx, opened = patiently(all, w)
		defer opened()
	}
	store, err := a.store(ctx, w, c, needs)
	if needs&needParts != 0 && isAway(all, err) {
		store, err = awayStore{silent(ctx, err)}, nil
	}
	if err != nil {
		return err
	}
	var ts []ops.Target
	for _, q := range qs {
		t := ops.Target{Name: q.Name, Known: known(q), Store: store, Scopes: q.Scopes, MaxAttempts: q.MaxAttempts, Retention: q.Retention}
		switch {
		case q.URL == "":
			if err := a.seated(ctx, c, store, q.Name); err != nil {
				return err
			}
		case needs&needNoQueue == 0:
			err := a.openQueue(ctx, w, q, &t, needs)
			if needs&needParts != 0 && isAway(all, err) {
				if t.Queue == nil {
					t.Queue = awayQueue{silent(ctx, err)}
				} else {
					t.DeadLetters = awayQueue{silent(ctx, err)}
				}
				err = nil
			}
			if err != nil {
				return err
			}
		}
		ts = append(ts, t)
	}
	if len(ts) == 0 {
		if needs&needNoQueue == 0 {
			return exit(exitUsage, "no queue: name one by its URL (sqs://orders), in %s, or in a profile", settings.EnvQueue)
		}
		ts = []ops.Target{{Store: store}}
	}
	if c.profile != nil {
		w.links = c.profile.Links
	}
	w.Ops, err = ops.New(ts, &ops.Options{By: a.by(), Links: w.links})
	return err
}

// known is a queue's name as its workers have it, where the queue itself is not asked.
func known(q *settings.Queue) string {
	if q.Known != "" || q.URL == "" {
		return q.Known
	}
	u, err := settings.ParseQueue(q.URL)
	if err != nil {
		return ""
	}
	return u.Name
}

// seated refuses a queue that nothing here names, and no worker's card either.
func (a *app) seated(ctx context.Context, c *conf, store dedupe.Store, name string) error {
	seats, err := controlstore.Seats(ctx, store, name)
	if err == nil && len(seats) > 0 {
		return nil
	}
	if err != nil && !errors.Is(err, control.ErrInvalid) {
		return err
	}
	_, err = c.profile.Find(name)
	return exit(exitUsage, "%w; and no worker has a seat at it", err)
}

func (a *app) store(ctx context.Context, w *world, c *conf, needs need) (dedupe.Store, error) {
	if c.store == "" {
		if needs&needStore != 0 {
			return nil, exit(exitUsage, "no store: name it in %s or in a profile (postgres://…, sqlite:///path, dynamodb://TABLE, firestore://PROJECT/DATABASE/COLLECTION)", settings.EnvStore)
		}
		return nil, nil
	}
	u, err := settings.ParseStore(c.store)
	if err != nil {
		return nil, exitWith(exitUsage, err)
	}
	store, err := w.places.Store(ctx, u)
	if err == nil {
		return store, nil
	}
	what := "store " + settings.Mask(c.store)
	if c.profile != nil && c.profile.Store == c.store {
		what = "store " + c.profile.Name
	}
	if errors.Is(err, places.ErrOld) || places.IsForeign(err) {
		return nil, exit(exitUsage, "%s: %w", what, err)
	}
	return nil, fmt.Errorf("%s: %w", what, err)
}

func (a *app) openQueue(ctx context.Context, w *world, q *settings.Queue, t *ops.Target, needs need) error {
	u, err := settings.ParseQueue(q.URL)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	b, err := w.places.Queue(ctx, u)
	if err != nil {
		return fmt.Errorf("queue %s: %w", q.Name, err)
	}
	t.Queue = b
	if q.Dead != "" {
		d, err := settings.ParseQueue(q.Dead)
		if err != nil {
			return exitWith(exitUsage, err)
		}
		if t.DeadLetters, err = w.places.Queue(ctx, d); err != nil {
			return fmt.Errorf("dead-letter queue of %s: %w", q.Name, err)
		}
	} else if d, err := w.places.Dead(ctx, u, b); err == nil && d != nil {
		t.DeadLetters = d
	} else if err != nil && needs&needDead != 0 {
		return fmt.Errorf("dead-letter queue of %s: %w", q.Name, err)
	}
	if t.DeadLetters == nil {
		if needs&needDead != 0 {
			return exit(exitUsage, "queue %s has no dead-letter queue: no redrive policy names one; give dead: in the profile, or %s", q.Name, settings.EnvDead)
		}
		return nil
	}
	o := &dlq.Options{Wait: a.io.LetterWait, MaxHeld: a.hold}
	if needs&needShared == 0 {
		o.Progress = a.looking
	}
	if w.profile != nil {
		for _, k := range w.profile.LetterKeys {
			o.LetterKeys = append(o.LetterKeys, k)
		}
	}
	t.Letters, err = dlq.New(t.DeadLetters, o)
	return err
}

// ownerQueue is the queue whose seats know the key's owner: of several queues in a profile the one
// whose scopes the key's is of. The first one where nobody can tell.
func (w *world) ownerQueue(ctx context.Context, k dedupe.Key) string {
	names := w.Names()
	if len(names) < 2 {
		return names[0]
	}
	for _, name := range names {
		t, err := w.Target(name)
		if err != nil {
			continue
		}
		for _, scope := range t.Scopes {
			if k.Scope == scope || strings.HasPrefix(k.Scope, scope+":") {
				return name
			}
		}
	}
	for _, name := range names {
		if scopes, err := w.Scopes(ctx, name); err == nil && slices.Contains(scopes, k.Scope) {
			return name
		}
	}
	return names[0]
}
