package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/places"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns what takes letters away, or copies them: purge, export, and the redrive of the
// service's own. Each command runs in the goroutine of Main.

func (a *app) purgeCommand() *cobra.Command {
	var f filters
	var file, plan string
	var dry, all, noExport, both bool
	c := &cobra.Command{
		Use: "purge QUEUE", Short: "Remove dead letters, into a file; their jobs stay failed", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		Long: "Freezes the letters that the filters choose, and says how many they are. With --dry-run=false it asks, and\n" +
			"removes these and no others. Each is written to the file (NDJSON) before.",
		RunE: a.unbounded(func(ctx context.Context, args []string) error {
			spec := ops.PurgeSpec{PurgeOptions: dlq.PurgeOptions{All: all, NoExport: noExport}, Beside: both}
			var err error
			if spec.Filter, err = a.chosen(&f); err != nil {
				return err
			}
			var kept *dlq.Plan
			switch {
			case plan != "" && !dry && (all || !f.none()):
				return exit(exitUsage, "--plan has chosen the letters already: leave the filters and --all out")
			case plan != "" && !dry:
				if kept, err = readPlan(plan); err != nil {
					return err
				}
			case all == !f.none():
				return exit(exitUsage, "give a filter (--group, --class, …), or --all for every letter")
			}
			if !dry {
				if (file == "") == !noExport {
					return exit(exitUsage, "-f is missing: the file that keeps what is removed; --no-export loses it")
				}
				if spec.Reason, err = a.reason(ctx); err != nil {
					return err
				}
			}
			w, err := a.open(ctx, needDead|storeUnless(dry), args[0])
			if err != nil {
				return err
			}
			defer w.close()
			spec.Queue = w.Names()[0]
			return a.purgeLetters(ctx, w, spec, kept, &f, plan, file, dry)
		}),
	}
	f.flags(c)
	fs := c.Flags()
	fs.BoolVar(&dry, "dry-run", true, "only say what would be removed; --dry-run=false removes")
	fs.StringVar(&plan, "plan", "", "with --dry-run: the new file for the plan; else the file of the plan")
	fs.StringVarP(&file, "file", "f", "", "the file that keeps what is removed; it is appended to")
	fs.BoolVar(&noExport, "no-export", false, "keep nothing: the letters are lost")
	fs.BoolVar(&all, "all", false, "every letter")
	fs.BoolVar(&both, "beside", false, "go on although somebody else acts on the same letters")
	a.reasonFlag(c)
	return c
}

func (a *app) purgeLetters(ctx context.Context, w *world, spec ops.PurgeSpec, p *dlq.Plan, f *filters, plan, file string, dry bool) error {
	var incomplete error
	kept := p != nil
	if !kept {
		var err error
		if p, err = w.PlanPurge(ctx, spec); err != nil {
			if !errors.Is(err, dlq.ErrIncomplete) || p == nil {
				return lettersFailed(err)
			}
			if p.Rest == nil {
				incomplete = err
			}
		}
	}
	name, n := spec.Queue, p.Count(dlq.Take)
	text := fmt.Sprintf("plan %s (frozen %s): %s of %s would be removed; %s stay", p.ID, a.until(p.Made), out.Plural(n, "letter", "letters"), out.Text(p.Queue), out.Int(p.Unchosen))
	if line := a.restLine(p, "removed"); line != "" {
		text += "\n" + line
	}
	if dry {
		chosen := f.again()
		if spec.All {
			chosen = " --all" + chosen
		}
		if plan != "" {
			if p.Rest != nil {
				p.Rest.Match = f.match
			}
			if err := writePlan(plan, p); err != nil {
				return err
			}
			chosen = " --plan " + quote(plan)
		}
		next := fmt.Sprintf("onceq dlq purge %s%s --dry-run=false -f FILE --reason TEXT", name, chosen)
		if err := a.show(out.Result{Lines: append(strings.Split(text, "\n"), "nothing was removed"), Value: viewPlan(name, p, nil, plan), Next: next}); err != nil {
			return err
		}
		return lettersFailed(incomplete)
	}
	if n == 0 && p.Rest == nil {
		return a.show(out.Result{Lines: []string{"no letter to purge"}, Value: viewReport(name, p, &dlq.Report{}, ""), Next: "onceq dlq group " + name})
	}
	q := question{Plan: text, Bounded: kept || f.most > 0}
	q.Want, q.Act = reach(p, n, "remove")
	if !kept {
		q.SoFar = lookedAt
	}
	if err := a.confirm(ctx, w, q); err != nil {
		return err
	}
	if file != "" {
		keep, err := openKept(file)
		if err != nil {
			return err
		}
		defer keep.Close()
		spec.Export = dlq.ExportJSON(keep)
	}
	spec.Each = func(dlq.Step) { a.progress("removing …") }
	rep, audit, err := w.Purge(ctx, p, spec)
	a.progress("")
	if audit == "" && err != nil && rep.Seen == 0 {
		return lettersFailed(err)
	}
	v := viewReport(name, p, &rep, audit)
	v.File, v.Completed = file, err == nil
	lines := []string{fmt.Sprintf("%s purged, %s of the plan gone", out.Int(rep.Purged), out.Int(rep.Missing))}
	if file != "" {
		lines[0] += ", kept in " + file
	}
	lines = append(lines, reasonLines(&rep)...)
	if audit != "" {
		lines = append(lines, "audit "+audit)
	}
	if e := a.show(out.Result{Lines: lines, Value: v, IDs: []string{audit}, Next: "onceq dlq group " + name}); e != nil {
		return e
	}
	if err = sentError(ctx, err, false, &rep); err == nil {
		err = lettersFailed(incomplete)
	}
	return err
}

// openKept opens the file that keeps what is removed, to be appended to. In a folder that others
// may write to, somebody could have put a file of his own there, or a link, and would get the
// letters.
func openKept(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_APPEND|noFollow, 0o600)
	if err != nil {
		if info, e := os.Lstat(file); e == nil && info.Mode()&fs.ModeSymlink != 0 {
			return nil, exit(exitUsage, "-f: %s is a link: name the file itself", out.Text(file))
		}
		return nil, exit(exitUsage, "-f: %w", err)
	}
	info, err := f.Stat()
	why := ""
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		why = "is no regular file"
	case !isOwn(info):
		why = "is another user's, or has a second name"
	case !isPrivate(info):
		why = fmt.Sprintf("may be read or written by others (%v): chmod 600 it", info.Mode().Perm())
	default:
		return f, nil
	}
	_ = f.Close()
	if err != nil {
		return nil, exit(exitUsage, "-f: %w", err)
	}
	return nil, exit(exitUsage, "-f: %s %s", out.Text(file), why)
}

func (a *app) exportCommand() *cobra.Command {
	var f filters
	var file string
	c := &cobra.Command{
		Use: "export QUEUE", Short: "Copy dead letters into a file (NDJSON); they stay", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		RunE: a.unbounded(func(ctx context.Context, args []string) error {
			filter, err := a.chosen(&f)
			if err != nil {
				return err
			}
			if file == "" {
				return exit(exitUsage, "-f is missing: the new file, or - for the output")
			}
			if filter.Max == 0 {
				filter.Max = math.MaxInt // all that can be held; where there are more, it says so
			}
			w, err := a.open(ctx, needDead, args[0])
			if err != nil {
				return err
			}
			defer w.close()
			var to io.Writer = out.JSONWriter{W: a.io.Out}
			if file != "-" {
				keep, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return exit(exitUsage, "-f: %w", err)
				}
				defer keep.Close()
				to = keep
			}
			write, n := dlq.ExportJSON(to), 0
			for e, err := range w.Letters(ctx, w.Names()[0], filter) {
				if err != nil {
					return lettersFailed(err)
				}
				if err := write(e); err != nil {
					return err
				}
				n++
			}
			a.say("%s exported to %s; they stay, and each has one receive more", out.Plural(n, "letter", "letters"), file)
			return nil
		}),
	}
	f.flags(c)
	c.Flags().StringVarP(&file, "file", "f", "", "the new file, or - for the output")
	return c
}

func (a *app) redriveCommand() *cobra.Command {
	var cancel, status bool
	var speed int
	c := &cobra.Command{
		Use: "redrive QUEUE", Short: "Have SQS move all dead letters back by itself; replay is mostly better", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		Long: "The service moves all letters, without a filter, a canary or a plan. Each still reopens its own failure\n" +
			"only. Without a reason and a confirmation it shows the tasks that there are (--status).",
		RunE: a.run(func(ctx context.Context, args []string) error {
			if speed < 0 || speed > 500 {
				return exit(exitUsage, "--per-second: %d, want 1 to 500", speed)
			}
			w, err := a.open(ctx, needDead|storeUnless(status), args[0])
			if err != nil {
				return err
			}
			defer w.close()
			t, err := w.Target("")
			if err != nil {
				return err
			}
			tasks, err := places.Redrives(ctx, t.DeadLetters)
			if err != nil {
				return err
			}
			if status {
				return a.showRedrives(tasks)
			}
			reason, err := a.reason(ctx)
			if err != nil {
				return err
			}
			if cancel {
				return a.cancelRedrive(ctx, w, t, tasks, reason)
			}
			return a.startRedrive(ctx, w, t, tasks, speed, reason)
		}),
	}
	f := c.Flags()
	f.BoolVar(&cancel, "cancel", false, "end the task that runs")
	f.BoolVar(&status, "status", false, "only show the newest tasks")
	f.IntVar(&speed, "per-second", 0, "how many messages a second at most, 1 to 500 (default: the service's)")
	a.reasonFlag(c)
	return c
}

func (a *app) showRedrives(tasks []places.Redrive) error {
	r := out.Result{Columns: out.Columns("STARTED@", "STATUS", "MOVED>", "OF>", "FAILURE"), Empty: "no redrive", Items: []any{}}
	for i := range tasks {
		t := &tasks[i]
		r.Add(out.Text(t.Handle), viewRedrive(t, ""), a.out.Date(t.Started)+" "+a.out.Time(t.Started), t.Status, out.Int(t.Moved), out.Int(t.Total), out.Or(t.Failure))
	}
	return a.show(r)
}

func viewRedrive(t *places.Redrive, audit string) redriveView {
	return redriveView{Handle: t.Handle, Status: t.Status, Moved: t.Moved, Total: t.Total, Started: out.Stamp(t.Started), Failure: t.Failure, Audit: audit}
}

func (a *app) startRedrive(ctx context.Context, w *world, t ops.Target, tasks []places.Redrive, speed int, reason string) error {
	for i := range tasks {
		if tasks[i].IsRunning() {
			return exit(exitRefused, "a redrive of these letters runs since %s, %s moved; --cancel ends it", a.until(tasks[i].Started), out.Int(tasks[i].Moved))
		}
	}
	q := question{Plan: "SQS moves ALL letters of " + t.Name + " back, without a plan", Want: t.Name, Act: "redrive all of them", Bounded: true}
	if err := a.confirm(ctx, w, q); err != nil {
		return err
	}
	done := places.Redrive{Status: "RUNNING", Started: time.Now()}
	audit, err := w.Act(ctx, ops.ActSpec{
		Queue: t.Name, Act: "redrive", Reason: reason, Detail: map[string]string{"per_second": strconv.Itoa(speed)},
	}, func(ctx context.Context) (map[string]string, error) {
		var err error
		done.Handle, err = places.StartRedrive(ctx, t.DeadLetters, speed)
		return nil, err
	})
	if err != nil {
		return usable(err)
	}
	lines := []string{"SQS moves the letters of " + t.Name + " back", "audit " + audit}
	return a.show(out.Result{Lines: lines, Value: viewRedrive(&done, audit), IDs: []string{done.Handle}, Next: "onceq dlq redrive " + t.Name + " --status"})
}

func (a *app) cancelRedrive(ctx context.Context, w *world, t ops.Target, tasks []places.Redrive, reason string) error {
	for i := range tasks {
		task := &tasks[i]
		if !task.IsRunning() {
			continue
		}
		if err := a.confirm(ctx, w, question{Act: "end the redrive", Free: true}); err != nil {
			return err
		}
		audit, err := w.Act(ctx, ops.ActSpec{Queue: t.Name, Act: "cancel redrive", Reason: reason}, func(ctx context.Context) (map[string]string, error) {
			moved, err := places.CancelRedrive(ctx, t.DeadLetters, task.Handle)
			task.Moved = moved
			return map[string]string{"moved": strconv.FormatInt(moved, 10)}, err
		})
		if err != nil {
			return usable(err)
		}
		task.Status = "CANCELLING"
		line := strings.Join([]string{"the redrive ends; " + out.Int(task.Moved) + " were moved", "audit " + audit}, "   ")
		return a.show(out.Result{Lines: []string{line}, Value: viewRedrive(task, audit), Next: "onceq dlq redrive " + t.Name + " --status"})
	}
	return exit(exitFound, "no redrive of the letters of %s runs", t.Name)
}
