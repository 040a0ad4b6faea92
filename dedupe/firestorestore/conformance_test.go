package firestorestore

import (
	"context"
	"errors"
	"testing"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dedupetest"
)

// TestEmulator runs the suite on the emulator, each case on a collection of its own.
func TestEmulator(t *testing.T) {
	w := emulator(t)
	dedupetest.Run(t, dedupetest.Harness{Open: func(t testing.TB) dedupetest.Subject { return w.subject(t) }})
}

// TestConformance runs the suite on the fake.
func TestConformance(t *testing.T) {
	dedupetest.Run(t, dedupetest.Harness{Open: func(t testing.TB) dedupetest.Subject {
		_, w := fake(t)
		return w.subject(t)
	}})
}

func (w *world) subject(t testing.TB) dedupetest.Subject {
	s := w.store(t, &Options{Sweep: true})
	ledger := w.client.Collection("ledger-" + s.name(dedupe.Key{})[len(s.docs)+1:] + s.docs[len(s.docs)-20:])
	return dedupetest.Subject{
		Store:  s,
		Age:    func(t testing.TB, k dedupe.Key, d time.Duration) { age(t, s, k, d) },
		Second: func(t testing.TB) dedupe.Store { return second(t, s) },
		Begin:  func(t testing.TB) dedupetest.Tx { return begin(t, s, ledger) },
		Rows:   func(t testing.TB) []string { return rows(t, ledger) },
		Close:  s.Close,
	}
}

func rows(t testing.TB, ledger *firestore.CollectionRef) (names []string) {
	docs, err := ledger.Documents(t.Context()).GetAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		names = append(names, d.Ref.ID)
	}
	return names
}

// begin gathers a Commit: a row is a document that must not be there yet.
func begin(t testing.TB, s *Store, ledger *firestore.CollectionRef) dedupetest.Tx {
	var lines []string
	var owner dedupe.Owned
	var with []byte
	return dedupetest.Tx{
		Insert: func(row string) error {
			lines = append(lines, row)
			return nil
		},
		Complete: func(ctx context.Context, job dedupe.Owned, result []byte) error {
			owner, with = job, result
			if job.Lease().Fence == 0 {
				return dedupe.ErrBadRequest
			}
			job.Join() // Commit joins as well, but later
			return errors.Join(job.Lease().Key.Validate(), ctx.Err())
		},
		Commit: func() error {
			return s.Commit(t.Context(), owner, with, func(_ context.Context, tx *firestore.Transaction) error {
				for _, l := range lines {
					if err := tx.Create(ledger.Doc(l), map[string]any{}); err != nil {
						return err
					}
				}
				return nil
			})
		},
		Rollback: func() error { return nil },
	}
}
