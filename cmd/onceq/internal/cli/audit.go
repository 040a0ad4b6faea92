package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
)

func (a *app) auditCommand() *cobra.Command {
	var since, until string
	c := &cobra.Command{
		Use: "audit", Short: "Who did what, and why", Args: cobra.NoArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			from, err := a.moment("--since", since)
			if err != nil {
				return err
			}
			to := a.io.Now()
			if until != "" {
				if to, err = a.moment("--until", until); err != nil {
					return err
				}
			}
			if to.Before(from) {
				return exit(exitUsage, "--until is before --since")
			}
			w, err := a.open(ctx, needStore|needNoQueue)
			if err != nil {
				return err
			}
			defer w.close()
			r := out.Result{Columns: out.Columns("AUDIT", "AT@", "BY", "ACT", "QUEUE", "OBJECT", "RESULT", "REASON"), Items: []any{}, Empty: "no acts since " + a.until(from), Next: "onceq queue ls"}
			for e, err := range w.Audit(ctx, from, to) {
				if err != nil {
					return usable(err)
				}
				result := "its end is not known"
				switch {
				case e.Err != "":
					result = "FAILED: " + out.Cut(out.Text(firstLine(e.Err)), 50)
				case !e.Ended.IsZero():
					result = pairs(e.Result)
				}
				r.Add(e.ID, viewAct(&e), e.ID, a.out.Time(e.Began), out.Text(e.By), out.Text(e.Act), out.Or(e.Queue), out.Cut(out.Or(e.Object), shownObject), result, out.Text(e.Reason))
			}
			return a.show(r)
		}),
	}
	c.Flags().StringVar(&since, "since", "24h", "from when: a time, or how long ago")
	c.Flags().StringVar(&until, "until", "", "until when (default: now)")
	return c
}

// shownObject is what a column shows of what was acted on, such as a scope with its key, and of
// what came of it.
const shownObject = 64

func pairs(m map[string]string) string {
	var l []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		l = append(l, fmt.Sprintf("%s %s", out.Text(k), out.Cut(out.Text(m[k]), shownObject)))
	}
	if len(l) == 0 {
		return "done"
	}
	return strings.Join(l, ", ")
}
