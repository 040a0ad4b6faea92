package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"

	"cloud.google.com/go/firestore"
	apiv1 "cloud.google.com/go/firestore/apiv1"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore"
	"github.com/onceq/onceq/examples/internal/shop"
)

// This file owns the till on Firestore: a charge with its record in one transaction, and the audit.
// The demo's process makes and audits it, and each worker's process charges, from many goroutines.
// Nothing is locked here, because the transaction decides.

// The collections of the demo on Firestore.
const (
	recordsCollection = "onceq-demo-records"
	chargesCollection = "onceq-demo-charges"
)

// firestoreTill is a collection of charges beside that of the records.
type firestoreTill struct {
	endpoint string
	client   *firestore.Client
	api      *apiv1.Client
	s        *firestorestore.Store
}

func openFirestoreTill(endpoint string) (till, error) {
	t := &firestoreTill{endpoint: endpoint}
	ctx := context.Background() // the clients outlive it
	// Google's clients look for an emulator there alone.
	err := os.Setenv(variables["firestore"], endpoint)
	if err != nil {
		return nil, err
	}
	if t.client, err = firestore.NewClient(ctx, "demo"); err != nil {
		return nil, err
	}
	if t.api, err = firestorestore.NewAPI(ctx); err == nil {
		t.s, err = firestorestore.New(t.client, t.api, recordsCollection, nil)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *firestoreTill) store() dedupe.Store { return t.s }

// A chargeDoc is a charge's document.
type chargeDoc struct {
	Order     string `firestore:"order"`
	Customer  string `firestore:"customer"`
	Cents     int64  `firestore:"cents"`
	Currency  string `firestore:"currency"`
	ItemCents int64  `firestore:"item_cents"`
	Worker    string `firestore:"worker"`
}

// charge puts each charge under a number of its own: under the order's, a second one would hide
// behind the first.
func (t *firestoreTill) charge(ctx context.Context, j *onceq.Job, o shop.Order, itemCents int64, worker string) error {
	return t.s.Commit(ctx, j, nil, func(_ context.Context, tx *firestore.Transaction) error {
		return tx.Create(t.client.Collection(chargesCollection).Doc(rand.Text()),
			chargeDoc{o.ID, o.Customer, o.Cents, o.Currency, itemCents, worker})
	})
}

// make deletes what is there, if it is to be fresh: a collection needs no making.
func (t *firestoreTill) make(ctx context.Context, fresh bool) error {
	if !fresh {
		return nil
	}
	w := t.client.BulkWriter(ctx)
	for _, name := range []string{recordsCollection, chargesCollection} {
		docs, err := t.client.Collection(name).Documents(ctx).GetAll()
		for _, d := range docs {
			_, failed := w.Delete(d.Ref)
			err = cmp.Or(err, failed)
		}
		if err != nil {
			return err
		}
	}
	w.End()
	return nil
}

func (t *firestoreTill) audit(ctx context.Context, rows []shop.Row, letters map[string]string) (*shop.Audit, error) {
	return auditCopy(ctx, rows, letters, func(put putCharge) error {
		docs, err := t.client.Collection(chargesCollection).Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		for _, d := range docs {
			var c chargeDoc
			if err := d.DataTo(&c); err != nil {
				return fmt.Errorf("the charge %s: %w", d.Ref.ID, err)
			}
			if err := put(shop.Order{ID: c.Order, Customer: c.Customer, Cents: c.Cents, Currency: c.Currency}, c.ItemCents, c.Worker); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *firestoreTill) where() string {
	return "Firestore at " + t.endpoint + ", collection " + chargesCollection
}

func (t *firestoreTill) close() {
	if t.s != nil {
		_ = t.s.Close()
	}
	if t.api != nil {
		_ = t.api.Close()
	}
	_ = t.client.Close()
}
