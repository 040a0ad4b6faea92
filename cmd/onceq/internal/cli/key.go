package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// This file owns the commands about keys: lists, and the words on single records. keyshow.go has
// the time line. Each command runs in the goroutine of Main.

// openKeys opens what a command about one key needs: the store, and the names of the profile's
// queues, or the one in which the key is looked for. That may be one that only its workers name.
func (a *app) openKeys(ctx context.Context, queue *string) (*world, error) {
	if *queue == "" {
		return a.open(ctx, needStore|needNoQueue)
	}
	w, err := a.open(ctx, needStore|needNoQueue|needCards, *queue)
	if err == nil {
		*queue = w.Names()[0]
	}
	return w, err
}

// where finds the record that a command's words name: SCOPE KEY, or KEY alone, which is looked for
// in the scopes of the queue.
func (a *app) where(ctx context.Context, w *world, queue string, words []string) (dedupe.Key, error) {
	if len(words) == 2 {
		k := dedupe.Key{Scope: words[0], Key: words[1]}
		if err := k.Validate(); err != nil {
			return k, exitWith(exitUsage, err)
		}
		return k, nil
	}
	key := words[0]
	if err := (dedupe.Key{Scope: "x", Key: key}).Validate(); err != nil {
		return dedupe.Key{}, exitWith(exitUsage, err)
	}
	names := w.Names()
	if queue != "" {
		names = []string{queue}
	}
	var scopes []string
	for _, name := range names {
		if name == "" { // a store alone
			continue
		}
		some, err := w.Scopes(ctx, name)
		if err != nil {
			return dedupe.Key{}, usable(err)
		}
		scopes = append(scopes, some...)
	}
	slices.Sort(scopes)
	scopes = slices.Compact(scopes)
	if len(scopes) == 0 {
		return dedupe.Key{}, exit(exitUsage, "which scope? No profile and no worker's card names one: give SCOPE %s, or --queue", out.Text(key))
	}
	found, err := w.Find(ctx, queue, scopes, key)
	switch {
	case err != nil:
		return dedupe.Key{}, err
	case len(found) == 1:
		return found[0].Key, nil
	case len(found) == 0:
		return dedupe.Key{}, exit(exitFound, "no record of %s in %s; elsewhere: %s", out.Text(key), out.Text(strings.Join(scopes, ", ")), suggest("key show", "", "SCOPE", key))
	}
	var in []string
	for _, r := range found {
		in = append(in, r.Key.Scope)
	}
	return dedupe.Key{}, exit(exitUsage, "%s is in several scopes; name one: %s", out.Text(key), out.Text(strings.Join(in, ", ")))
}

func (a *app) keyListCommand() *cobra.Command {
	var status, scope, prefix, before string
	var most int
	var scan bool
	c := &cobra.Command{
		Use: "ls", Short: "List keys by their status: failed, parked, released", Args: cobra.NoArgs,
		Long: "Failed, parked and released keys are found by an index. Everything else reads whole scopes, or the\n" +
			"table: the command then says what that costs, and --scan goes on.",
		RunE: a.run(func(ctx context.Context, _ []string) error {
			q := dedupe.Query{Scope: scope, Prefix: prefix, Limit: most}
			var err error
			if q.Before, err = a.moment("--before", before); err != nil {
				return err
			}
			if most < 1 {
				return exit(exitUsage, "--max: %d, want 1 or more", most)
			}
			statuses, err := statusesOf(status)
			if err != nil {
				return err
			}
			return a.listKeys(ctx, q, statuses, scan)
		}),
	}
	f := c.Flags()
	f.StringVar(&status, "status", "failed,parked,released", "statuses, with commas; all = every one")
	f.StringVar(&scope, "scope", "", "of this scope alone")
	f.StringVar(&prefix, "prefix", "", "keys that begin so")
	f.StringVar(&before, "before", "", "last changed before: a time (2026-11-22T03:00:00Z), or how long ago (2h)")
	f.IntVar(&most, "max", 100, "how many at most")
	f.BoolVar(&scan, "scan", false, "read the table where no index answers, and pay for it")
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions([]string{"failed", "parked", "released", "claimed", "done", "all"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func statusesOf(text string) (l []dedupe.Status, err error) {
	if text == "all" {
		return []dedupe.Status{0}, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		s, err := dedupe.ParseStatus(strings.TrimSpace(word))
		if err != nil {
			return nil, exit(exitUsage, "--status: %q%s", word, settings.DidYouMean(word, []string{"failed", "parked", "released", "claimed", "done", "all"}))
		}
		l = append(l, s)
	}
	return l, nil
}

// moment reads a time, or how long ago something was.
func (a *app) moment(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	zone := time.Local
	if a.utc {
		zone = time.UTC
	}
	for _, layout := range [...]string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t, nil
		}
	}
	d, err := settings.ParseDuration(text)
	if err != nil {
		return time.Time{}, exit(exitUsage, "%s: %w, nor a time such as 2026-11-22T03:00:00Z", flag, err)
	}
	return a.io.Now().Add(-d), nil
}

func (a *app) listKeys(ctx context.Context, q dedupe.Query, statuses []dedupe.Status, scan bool) error {
	w, err := a.open(ctx, needStore|needNoQueue)
	if err != nil {
		return err
	}
	defer w.close()
	r := out.Result{Columns: out.Columns("SCOPE", "KEY", "STATUS", "ATTEMPT>", "FENCE>", "CHANGED@", "CLASS", "ERROR"), Empty: "no such key", Items: []any{}}
	left, n := q.Limit, 0
	for _, s := range statuses {
		q.Status, q.Limit = s, left
		if left == 0 {
			break
		}
		for rec, err := range w.Keys(ctx, "", ops.KeysQuery{Query: q, Scan: scan}) {
			if err != nil {
				return scanned(err)
			}
			left--
			n++
			switch { // of a long list only that is kept which is printed
			case a.quiet:
				r.IDs = append(r.IDs, out.Text(rec.Key.String()))
			case a.out.Format == out.NDJSON:
				if err := a.out.Item(viewRecord(rec)); err != nil {
					return err
				}
			case a.out.Format == out.JSON:
				r.Items = append(r.Items, viewRecord(rec))
			default:
				r.Rows = append(r.Rows, []string{
					out.Text(rec.Key.Scope), cutKey(rec.Key.Key), rec.Status.String(), out.Int(rec.Attempt), strconv.FormatUint(rec.Fence, 10),
					a.out.Time(rec.Updated), cutName(rec.ErrClass), out.Cut(out.Text(firstLine(lastErr(rec))), 60),
				})
			}
			if r.Next == "" {
				r.Next = suggest("key show", "", rec.Key.Scope, rec.Key.Key)
			}
		}
	}
	if a.out.Format == out.NDJSON && !a.quiet {
		return nil
	}
	if n == 0 {
		r.Next = "onceq queue ls"
	}
	if err := a.show(r); err != nil {
		return err
	}
	if left == 0 {
		a.say("there may be more: --max %d", 10*n)
	}
	return nil
}

// lastErr is a record's last error. A job that was interrupted had none.
func lastErr(r *dedupe.Record) string {
	if r.LastErr == "" && r.Status == dedupe.Parked && r.Owner != "" {
		return r.Owner + " went silent amid it"
	}
	return r.LastErr
}

// scanned turns the price of a scan into a refusal.
func scanned(err error) error {
	e := (*ops.ScanError)(nil)
	if errors.As(err, &e) {
		return exit(exitRefused, "%s; --scan goes on", strings.TrimPrefix(e.Error(), "ops: "))
	}
	return usable(err)
}

func firstLine(s string) string {
	l, _, _ := strings.Cut(s, "\n")
	return l
}

func (a *app) forgetCommand() *cobra.Command {
	var fence uint64
	var queue string
	var force bool
	c := &cobra.Command{
		Use: "forget [SCOPE] KEY", Short: "Remove a key's record: its next message, if one comes, runs as if it were the first", Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeScope,
		RunE: a.run(func(ctx context.Context, args []string) error {
			return a.word(ctx, args, queue, fence, "forget it, so that it may run again", func(ctx context.Context, w *world, k dedupe.Key, reason string) (string, error) {
				return w.Forget(ctx, ops.ForgetSpec{Key: k, Fence: fence, Force: force, Reason: reason})
			}, "none")
		}),
	}
	c.Flags().BoolVar(&force, "force", false, "also while a worker runs it, which then cannot record its end")
	a.wordFlags(c, &fence, &queue)
	return c
}

func (a *app) wordFlags(c *cobra.Command, fence *uint64, queue *string) {
	c.Flags().Uint64Var(fence, "fence", 0, "the record's fence, as key show has it (required)")
	c.Flags().StringVar(queue, "queue", "", "look for the key in this queue's scopes")
	a.reasonFlag(c)
}

// runsNothing says that to forget a record runs nothing by itself. Only a job that waits has a
// message that comes for sure.
func runsNothing(r *dedupe.Record, queue string) string {
	const acked = "where its message was acked, this runs nothing: "
	switch {
	case r.Status == dedupe.Done, ops.IsCancelled(r):
		return acked + "send it again"
	case r.Status == dedupe.Failed, r.Status == dedupe.Parked:
		return acked + fmt.Sprintf("its letter does (onceq dlq replay %s %s)", cmp.Or(queue, "QUEUE"), flagged("key", r.Key.Key))
	}
	return ""
}

// word asks for and carries out an operator's word on one record.
func (a *app) word(ctx context.Context, args []string, queue string, fence uint64, act string, do func(context.Context, *world, dedupe.Key, string) (string, error), status string) error {
	if fence == 0 {
		return exit(exitUsage, "--fence is missing: the record's, as onceq key show has it")
	}
	reason, err := a.reason(ctx)
	if err != nil {
		return err
	}
	w, err := a.openKeys(ctx, &queue)
	if err != nil {
		return err
	}
	defer w.close()
	k, err := a.where(ctx, w, queue, args)
	if err != nil {
		return err
	}
	l, err := w.Key(ctx, "", k, ops.KeyOptions{NoAudit: true})
	if err != nil {
		return usable(err)
	}
	plan := fmt.Sprintf("%s %s is %v, attempt %d, fence %d", out.Text(k.Scope), out.Text(k.Key), l.Record.Status, l.Record.Attempt, l.Record.Fence)
	if l.Record.Fence != fence {
		return exit(exitRefused, "%s, not %d: look again", plan, fence)
	}
	if err := a.confirm(ctx, w, question{Plan: plan, Want: k.Key, Act: act, Bounded: true}); err != nil {
		return err
	}
	audit, err := do(ctx, w, k, reason)
	if err != nil {
		return usable(err)
	}
	v := doneView{Scope: k.Scope, Key: k.Key, Status: status, Audit: audit}
	lines := []string{fmt.Sprintf("%s %s is %s now   audit %s", out.Text(k.Scope), out.Text(k.Key), status, audit)}
	if text := runsNothing(l.Record, cmp.Or(queue, w.ownerQueue(ctx, k))); text != "" {
		lines = append(lines, text)
	}
	return a.show(out.Result{Lines: lines, Value: v, IDs: []string{audit}, Next: suggest("key show", "", k.Scope, k.Key)})
}
