package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
	"github.com/onceq/onceq/schedule"
)

func (a *app) scheduleCommand() *cobra.Command {
	ls := &cobra.Command{
		Use: "ls", Short: "The entries of the schedulers: the last instant sent, its job, and the next", Args: cobra.NoArgs,
		Long: "One line an entry that a scheduler (schedule.Run) has told the store. JOB is what became of the job\n" +
			"of the last instant: \"waits\" where no worker has claimed it yet, or its scope is not known. SEEN is how\n" +
			"long ago a scheduler said that it has the entry, which one of them does about once an hour.",
		RunE: a.run(func(ctx context.Context, _ []string) error {
			w, err := a.open(ctx, needStore|needNoQueue)
			if err != nil {
				return err
			}
			defer w.close()
			states, err := w.Schedules(ctx)
			if err != nil {
				return usable(err)
			}
			r := out.Result{Columns: out.Columns("ENTRY", "SCHEDULE", "LAST@", "JOB", "NEXT@", "SEEN>"), Items: []any{}, Empty: "no scheduler has told this store of an entry", Next: "onceq queue ls"}
			for i := range states {
				s := &states[i]
				seen := out.Span(a.io.Now().Sub(s.Seen))
				if s.Silent {
					seen += ", NO SCHEDULER"
				}
				r.Add(s.Name, viewSchedule(s), out.Text(s.Name), out.Text(s.Spec), a.out.Time(s.Last), lastJob(s), a.out.Time(s.Next), seen)
				if k := s.Job; k != nil && (k.Status == dedupe.Failed || k.Status == dedupe.Parked) {
					r.Next = suggest("key show", "", k.Key.Scope, k.Key.Key)
				}
			}
			if err := a.show(r); err != nil {
				return err
			}
			for i := range states {
				if s := &states[i]; s.Err != nil {
					a.say("%s: %s", out.Text(s.Name), out.Error(s.Err))
				}
			}
			return nil
		}),
	}
	return group("schedule", "What schedulers send, and when", ls)
}

// lastJob is what became of the job of the last instant.
func lastJob(s *ops.ScheduleState) string {
	switch {
	case s.Job != nil:
		return s.Job.Status.String()
	case !s.Last.IsZero():
		return "waits"
	}
	return out.None
}

func viewSchedule(s *ops.ScheduleState) scheduleView {
	v := scheduleView{Entry: s.Name, Schedule: s.Spec, Born: out.Stamp(s.Born), Seen: out.Stamp(s.Seen), Silent: s.Silent, Last: out.Stamp(s.Last), Next: out.Stamp(s.Next)}
	if !s.Last.IsZero() {
		v.Key = schedule.Key(s.Name, s.Last)
	}
	if s.Job != nil {
		v.Scope, v.Status = s.Job.Key.Scope, s.Job.Status.String()
	}
	if s.Err != nil {
		v.Error = out.Error(s.Err)
	}
	return v
}
