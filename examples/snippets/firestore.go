package snippets

import (
	"context"
	"errors"

	"cloud.google.com/go/firestore"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe/firestorestore"
)

func openKeys(ctx context.Context, project string) (*firestore.Client, *firestorestore.Store, error) {
	client, err := firestore.NewClient(ctx, project) // NewClientWithDatabase for another than (default)
	if err != nil {
		return nil, nil, err
	}
	api, err := firestorestore.NewAPI(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	store, err := firestorestore.New(client, api, "onceq", nil)
	return client, store, err
}

func deductDoc(client *firestore.Client, store *firestorestore.Store) onceq.Handler {
	return onceq.JSON(func(ctx context.Context, j *onceq.Job, o order) error {
		return store.Commit(ctx, j, nil, func(_ context.Context, tx *firestore.Transaction) error {
			return tx.Set(client.Collection("stock").Doc(o.SKU),
				map[string]any{"n": firestore.Increment(-o.Pieces)}, firestore.MergeAll)
		})
	})
}
