//go:build unix

package chaos

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	apiv1 "cloud.google.com/go/firestore/apiv1"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore"
	"github.com/onceq/onceq/localstack"
)

// collections is the address of books on Firestore: the emulator's, and a project of the test's.
func collections(t *testing.T) string {
	t.Helper()
	db := localstack.Firestore(t)
	return db.Addr + " " + db.Project(t)
}

type firestoreBooks struct {
	client *firestore.Client
	api    *apiv1.Client
	s      *firestorestore.Store
}

func openFirestore(ctx context.Context, address string) (books, error) {
	addr, project, _ := strings.Cut(address, " ")
	// Google's clients find an emulator there alone, and no other service of the test's reads it.
	if err := os.Setenv("FIRESTORE_EMULATOR_HOST", addr); err != nil {
		return nil, err
	}
	b := &firestoreBooks{}
	var err error
	if b.client, err = firestore.NewClient(context.WithoutCancel(ctx), project); err != nil {
		return nil, err
	}
	if b.api, err = firestorestore.NewAPI(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	b.s, err = firestorestore.New(b.client, b.api, "records", nil)
	return b, err
}

func (b *firestoreBooks) store() dedupe.Store { return b.s }

// migrate has nothing to do: a collection is there with its first document.
func (b *firestoreBooks) migrate(context.Context) error { return nil }

// pay puts the payment under an id of its own: under the order's, a second one would hide behind
// the first.
func (b *firestoreBooks) pay(ctx context.Context, j *onceq.Job) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("the transaction takes too long"))
	defer cancel()
	return b.s.Commit(ctx, j, nil, func(_ context.Context, tx *firestore.Transaction) error {
		return tx.Create(b.payment(), map[string]any{"order": j.Key().Key, "fence": int64(j.Fence())})
	})
}

func (b *firestoreBooks) payment() *firestore.DocumentRef {
	return b.client.Collection("payments").Doc(rand.Text())
}

func (b *firestoreBooks) note(ctx context.Context, order string, fence uint64) error {
	_, err := b.payment().Create(ctx, map[string]any{"order": order, "fence": int64(fence)})
	return err
}

func (b *firestoreBooks) paid(ctx context.Context) (map[string][]uint64, error) {
	docs, err := b.client.Collection("payments").Documents(ctx).GetAll()
	all := map[string][]uint64{}
	for _, d := range docs {
		order, ok := d.Data()["order"].(string)
		fence, also := d.Data()["fence"].(int64)
		if !ok || !also {
			return nil, fmt.Errorf("a payment without an order or a fence: %v", d.Data())
		}
		all[order] = append(all[order], uint64(fence))
	}
	return all, err
}

// blocked is never so: a transaction's locks are those of its documents, and the emulator ends a
// wait for them.
func (b *firestoreBooks) blocked(context.Context) bool { return false }

// patience has the second that the store adds to each lease for its clocks, and the emulator's wait
// for the locks of a transaction whose process was killed.
func (b *firestoreBooks) patience() time.Duration { return 7 * hold }

func (b *firestoreBooks) close() {
	_ = b.s.Close()
	_ = b.client.Close()
	_ = b.api.Close()
}
