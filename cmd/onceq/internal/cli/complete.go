package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns what a shell is offered while a person types: names of the profile, and what the
// workers' cards in the store tell. A store is asked in a goroutine that is left behind when it
// takes too long, because a shell stands still meanwhile. It shares nothing with the rest.

// completePatience is how long a shell waits for the store. The names of the profile come anyway.
const completePatience = 250 * time.Millisecond

// completeMost is of how many queues the cards are read for one completion.
const completeMost = 20

// A completion is what cobra asks for the words of an argument or a flag.
type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// asked is what ask finds in the store; nothing where that takes too long, or fails. A store that a
// file of the folder names is not asked, because a key pressed in a stranger's folder would send it
// a password. ONCEQ_CONFIG may be of another folder still, where it has no whole path.
func (a *app) asked(c *cobra.Command, ask func(context.Context) []string) []string {
	if conf, err := a.config(); err != nil || conf.here {
		return nil
	}
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.io.Patience, completePatience))
	defer cancel()
	found := make(chan []string, 1)
	go func() { found <- ask(ctx) }()
	select {
	case l := <-found:
		return l
	case <-ctx.Done():
		return nil
	}
}

// offered are words as a shell takes them without quotes. What a worker's card says is no more than
// a word of whoever can write the store, and a shell would run what stands in $( ).
func offered(words []string) []string {
	words = slices.DeleteFunc(words, func(s string) bool {
		word, _, _ := strings.Cut(s, "\t") // behind it stands what it means
		return word == "" || quote(word) != word
	})
	slices.Sort(words)
	return slices.Compact(words)
}

// seatsOf are the workers of the queue that is named, or else of the profile's queues, or else of
// all that have workers.
func (a *app) seatsOf(ctx context.Context, queue string) (seats []ops.WorkerState) {
	a.atWorkers(ctx, queue, func(w *world, name string) {
		if some, err := w.Workers(ctx, name); err == nil {
			seats = append(seats, some...)
		}
	})
	return seats
}

// atWorkers opens the store, and calls do for each of those queues.
func (a *app) atWorkers(ctx context.Context, queue string, do func(w *world, name string)) {
	names := []string{queue}
	if queue == "" {
		names = a.queueNames()
	}
	if len(names) == 0 {
		names = a.seatedNames(ctx)
	}
	if len(names) == 0 {
		return
	}
	w, err := a.open(ctx, needStore|needNoQueue|needCards, names[:min(len(names), completeMost)]...)
	if err != nil {
		return
	}
	defer w.close()
	for _, name := range w.Names() {
		do(w, name)
	}
}

// seatedNames are the queues that have workers, as these call them.
func (a *app) seatedNames(ctx context.Context) []string {
	w, err := a.open(ctx, needStore|needNoQueue)
	if err != nil {
		return nil
	}
	defer w.close()
	names, _ := w.QueuesWithWorkers(ctx) // a store that bills it is not asked
	return names
}

// queueNames are the queues of the profile, or the environment's. It does no I/O beyond the file.
func (a *app) queueNames() (names []string) {
	conf, err := a.config()
	if err != nil {
		return nil
	}
	qs, err := a.queues(conf, nil, 0)
	if err != nil {
		return nil
	}
	for _, q := range qs {
		names = append(names, q.Name)
	}
	return names
}

// completeQueue names the profile's queues for the first argument.
func (a *app) completeQueue(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.queueNames(), cobra.ShellCompDirectiveNoFileComp
}

// completeQueues is completeQueue for commands that take several.
func (a *app) completeQueues(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	l := slices.DeleteFunc(a.queueNames(), func(s string) bool { return slices.Contains(args, s) })
	return l, cobra.ShellCompDirectiveNoFileComp
}

// completeSeated is completeQueue for commands that ask the store alone: they also take a queue
// that only its workers name. then completes the second argument; nil = there is none.
func (a *app) completeSeated(then completion) completion {
	return func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			of := a.queueNames()
			known := a.knownNames()
			for _, name := range offered(a.asked(c, a.seatedNames)) {
				if !slices.Contains(known, name) {
					of = append(of, name)
				}
			}
			return of, cobra.ShellCompDirectiveNoFileComp
		case then != nil:
			return then(c, args, word)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// knownNames are the names that the workers of the profile's queues have for them.
func (a *app) knownNames() (names []string) {
	conf, err := a.config()
	if err != nil {
		return nil
	}
	qs, _ := a.queues(conf, nil, 0)
	for _, q := range qs {
		names = append(names, cmp.Or(known(q), q.Name))
	}
	return names
}

// completeWorkers names the workers of the queue that stands before.
func (a *app) completeWorkers(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return offered(a.asked(c, func(ctx context.Context) (owners []string) {
		for _, s := range a.seatsOf(ctx, args[0]) {
			if !slices.Contains(args[1:], s.Owner) {
				owners = append(owners, s.Owner)
			}
		}
		return owners
	})), cobra.ShellCompDirectiveNoFileComp
}

// completeRules names the rules that are in force for the queue that stands before.
func (a *app) completeRules(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return offered(a.asked(c, func(ctx context.Context) (ids []string) {
		a.atWorkers(ctx, args[0], func(w *world, name string) {
			rules, _ := w.Rules(ctx, name)
			for i := range rules {
				r := &rules[i]
				ids = append(ids, fmt.Sprintf("%s\t%s %s by %s: %s", r.ID, r.Do, ruled(r), out.Text(r.By), out.Text(r.Reason)))
			}
		})
		return ids
	})), cobra.ShellCompDirectiveNoFileComp
}

// completeTypes names the types of jobs that workers know: of the queue that is the first argument,
// or of all queues.
func (a *app) completeTypes(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return offered(a.asked(c, func(ctx context.Context) (types []string) {
		for _, s := range a.seatsOf(ctx, firstOf(args)) {
			if s.Status != nil {
				types = append(types, s.Status.Types...)
			}
		}
		return types
	})), cobra.ShellCompDirectiveNoFileComp
}

// completeScopes names the profile's scopes, and those that workers' cards name, each with its
// types.
func (a *app) completeScopes(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	queue := ""
	if c.Name() == "pause" {
		queue = firstOf(args)
	} else if f := c.Flags().Lookup("queue"); f != nil {
		queue = f.Value.String()
	}
	return offered(append(a.profileScopes(queue), a.asked(c, func(ctx context.Context) (scopes []string) {
		a.atWorkers(ctx, queue, func(w *world, name string) {
			some, _ := w.Scopes(ctx, name)
			scopes = append(scopes, some...)
		})
		return scopes
	})...)), cobra.ShellCompDirectiveNoFileComp
}

// completeScope is completeScopes for commands whose arguments are [SCOPE] KEY.
func (a *app) completeScope(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeScopes(c, nil, word)
}

// profileScopes are those that the file names, of one queue or of all.
func (a *app) profileScopes(queue string) (scopes []string) {
	conf, err := a.config()
	if err != nil || conf.profile == nil {
		return nil
	}
	for _, q := range conf.profile.Queues {
		if queue == "" || q.Name == queue {
			scopes = append(scopes, q.Scopes...)
		}
	}
	return scopes
}

func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// completeFlags has all flags of a name completed alike.
func (a *app) completeFlags(c *cobra.Command) {
	for name, by := range map[string]completion{
		"type": a.completeTypes, "scope": a.completeScopes, "queue": a.completeFlagQueue, "group": a.completeGroups, "plan": files, "from": files, "file": files, "expect": files, "effects": files, "baseline": files,
	} {
		if c.LocalNonPersistentFlags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, by)
		}
	}
	for _, sub := range c.Commands() {
		a.completeFlags(sub)
	}
}

// files has the shell offer its own files.
func files(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// completeGroups names the kinds of failures among the first letters of the queue that stands
// before, where they can be seen without a receive. Elsewhere a tab would change each letter.
func (a *app) completeGroups(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 || c.Parent() == nil || c.Parent().Name() != "dlq" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return offered(a.asked(c, func(ctx context.Context) (groups []string) {
		w, err := a.open(ctx, needDead, args[0])
		if err != nil {
			return nil
		}
		defer w.close()
		t, err := w.Target("")
		if err != nil {
			return nil
		}
		p, ok := broker.As[broker.Peeker](t.DeadLetters)
		if !ok {
			return nil
		}
		for m, err := range p.Peek(ctx, completeLetters) {
			if err != nil {
				break
			}
			e := dlq.Entry{Message: m}
			groups = append(groups, e.Fingerprint()+"\t"+out.Text(e.Class()))
		}
		return groups
	})), cobra.ShellCompDirectiveNoFileComp
}

// completeLetters is how many letters are looked at for the groups that a shell offers.
const completeLetters = 200

// completeFlagQueue names the profile's queues for a flag.
func (a *app) completeFlagQueue(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return a.queueNames(), cobra.ShellCompDirectiveNoFileComp
}

// completeProfiles names the file's profiles.
func (a *app) completeProfiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	f, err := settings.Load(a.io.Env, a.io.Home)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var l []string
	for name := range f.Profiles {
		l = append(l, name)
	}
	slices.Sort(l)
	return l, cobra.ShellCompDirectiveNoFileComp
}
