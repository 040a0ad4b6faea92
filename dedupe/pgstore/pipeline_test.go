package pgstore

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/dedupe"
)

// TestSmallBatchesShareNoBuffer: the arrays of a call come from a pool of buffers, and no other
// call writes into them.
func TestSmallBatchesShareNoBuffer(t *testing.T) {
	s := newStore(t, openPool(t), newTable())
	errs := make(chan error, 8)
	for caller := range cap(errs) {
		go func() {
			for i := range 50 {
				q := request(fmt.Sprintf("%d-%d", caller, i))
				if c, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q}); err != nil || c[0].Outcome != dedupe.Won || c[0].Lease.Key != q.Key {
					errs <- fmt.Errorf("%+v, %w", c, err)
					return
				}
				if r, err := s.Get(t.Context(), []dedupe.Key{q.Key}); err != nil || r[0] == nil || r[0].MessageID != q.MessageID {
					errs <- fmt.Errorf("%+v, %w", r, err)
					return
				}
			}
			errs <- nil
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// deaf is a pool that answers a pipeline, and its COMMIT with a word of its own; none is no answer.
type deaf struct {
	DB
	word string
}

func (d deaf) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	return &deafResults{b: b, word: d.word}
}

type deafResults struct {
	pgx.BatchResults
	b    *pgx.Batch
	word string
}

func (r *deafResults) Exec() (pgconn.CommandTag, error) { return pgconn.NewCommandTag(r.word), nil }

func (r *deafResults) Close() error {
	queued := r.b.QueuedQueries
	if last := queued[len(queued)-1]; r.word != "" && last.Fn != nil {
		return last.Fn(r)
	}
	return nil
}

// TestCommitsAnswer: without the word COMMIT nothing counts as written, and no answer is given.
func TestCommitsAnswer(t *testing.T) {
	for word, want := range map[string]string{"ROLLBACK": "COMMIT was answered ROLLBACK", "": "COMMIT was not answered", "COMMIT": ""} {
		p := newPipeline()
		err := p.Run(t.Context(), deaf{word: word})
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", word, err, want)
		}
		if rolledBack := word == "ROLLBACK"; isRolledBack(err) != rolledBack {
			t.Errorf("%q counts as rolled back: %v", word, !rolledBack)
		}
	}
}

// TestRolledBack: which errors are the server's word that a COMMIT was not done.
func TestRolledBack(t *testing.T) {
	for _, c := range []struct {
		code, severity string
		want           bool
	}{
		{"23505", "ERROR", true},
		{"40001", "ERROR", true},
		{"57014", "ERROR", true},
		{"XX000", "ERROR", true},
		{"53100", "ERROR", true},
		{"57P01", "FATAL", false},
		{"23505", "FATAL", false},
		{"XX000", "PANIC", false},
		// as poolers say it
		{"08P01", "ERROR", false},
		{"08006", "ERROR", false},
		{"57P01", "ERROR", false},
		{"57P03", "ERROR", false},
		{"58000", "ERROR", false},
	} {
		for _, pe := range []*pgconn.PgError{{Code: c.code, Severity: c.severity}, {Code: c.code, Severity: "FEHLER", SeverityUnlocalized: c.severity}} {
			if got := isRolledBack(fmt.Errorf("wrapped: %w", pe)); c.severity == "ERROR" && got != c.want || c.severity != "ERROR" && got {
				t.Errorf("%s %s: %v, want %v", c.severity, c.code, got, c.want)
			}
		}
	}
	if isRolledBack(nil) || isRolledBack(io.ErrUnexpectedEOF) {
		t.Error("no word of the server's counts as one")
	}
}
