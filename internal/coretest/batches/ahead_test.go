package batches

import (
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// TestDueBeyondKeeps: a job that Lambda or push brings, and that is due later than its queue keeps
// it, becomes a letter at once where Keeps says how long that is. Where nobody says, it waits, and
// a WARN tells of it.
func TestDueBeyondKeeps(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		keeps, due time.Duration
		end        string
		warned     int
	}{
		"beyond Keeps":       {4 * day, 5 * day, "too-early", 0},
		"at its very end":    {4 * day, 4*day - time.Hour, "too-early", 0},
		"within Keeps":       {4 * day, 3 * day, "early", 0},
		"nobody says":        {0, 5 * day, "early", 1},
		"nobody says, a day": {0, 23 * time.Hour, "early", 0},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
				ds := rig.Deliveries("a")
				ds[0].Message.Meta.NotBefore = time.Now().Add(c.due)
				r.WantEnds(r.Process(r.Context(), ds...), c.end)
				if c.end == "early" {
					r.NoLetters()
				} else {
					r.Letter(onceq.ClassTooEarly)
				}
				if n := r.Logged.Count("nobody has said how long"); n != c.warned {
					t.Errorf("%d warnings, want %d", n, c.warned)
				}
			}, rig.With(func(s *rig.Setup) { s.Keeps = c.keeps }))
		})
	}
}
