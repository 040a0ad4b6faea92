//go:build !nofirestore

package places

import (
	"context"
	"errors"
	"os"

	"cloud.google.com/go/firestore"
	admin "cloud.google.com/go/firestore/apiv1/admin"

	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore"
)

func (p *Places) firestore(ctx context.Context, s settings.StoreURL) (dedupe.Store, error) {
	client, err := firestore.NewClientWithDatabase(ctx, s.Project, s.Database)
	if err != nil {
		return nil, err
	}
	p.closing(client.Close)
	api, err := firestorestore.NewAPI(ctx)
	if err != nil {
		return nil, err
	}
	p.closing(api.Close)
	o := &firestorestore.Options{TTLField: s.TTLAttribute}
	if os.Getenv("FIRESTORE_EMULATOR_HOST") == "" { // which has no administrators
		a, err := admin.NewFirestoreAdminClient(ctx)
		if err != nil {
			return nil, err
		}
		p.closing(a.Close)
		o.Admin = a
	}
	st, err := firestorestore.New(client, api, s.Table, o)
	if err != nil {
		return nil, err
	}
	p.closing(st.Close)
	return fires{st}, nil
}

// fires is a store that bills each document that is read.
type fires struct{ *firestorestore.Store }

var _ dedupe.Sized = fires{}

func (f fires) Unwrap() any { return f.Store }

// Size is not known: to count the documents is to read their index.
func (fires) Size(context.Context) (dedupe.TableSize, error) {
	return dedupe.TableSize{}, errors.New("the size of a collection is not known: Firestore does not tell it")
}
