package firestorestore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/firestore/apiv1/admin/adminpb"
	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"github.com/googleapis/gax-go/v2"

	"github.com/onceq/onceq/dedupe"
)

// Admin is what [Store.Check] asks about a database. The FirestoreAdminClient of
// cloud.google.com/go/firestore/apiv1/admin has it.
type Admin interface {
	GetDatabase(context.Context, *adminpb.GetDatabaseRequest, ...gax.CallOption) (*adminpb.Database, error)
	GetField(context.Context, *adminpb.GetFieldRequest, ...gax.CallOption) (*adminpb.Field, error)
}

// Check tells whether the store can work, and what is to be mended. It creates a document, reads it
// through the other client and deletes it, which needs the rights of a worker. With an admin client
// it also asks how the database is set up, which needs datastore.databases.getMetadata and
// datastore.indexes.get, as in roles/datastore.indexAdmin; nil asks nothing. The error joins all
// that was found: a missing database, one in Datastore mode, missing rights, a missing TTL policy,
// an index that is missing, and indexes that slow down every write.
func (s *Store) Check(ctx context.Context, admin Admin) error {
	if err := s.ready(ctx, 0); err != nil {
		return err
	}
	err := s.probe(ctx)
	if admin == nil {
		return err
	}
	return errors.Join(err, s.checkDatabase(ctx, admin))
}

// probe writes and reads a document that counts as no record.
func (s *Store) probe(ctx context.Context) error {
	k := dedupe.Key{Scope: "onceq.check", Key: rand.Text()}
	c := &change{key: k, sure: true}
	c.decide = func(found *stored, at reading) (*stored, error) {
		if found != nil {
			return nil, nil
		}
		return s.tombstone(k, 1, at.now, at.now.Add(time.Hour)), nil
	}
	if err := s.run(ctx, "Check", []*change{c}); err != nil {
		return err
	}
	if c.err != nil {
		return c.err
	}
	doc, err := s.client.DocFromFullPath(s.name(k)).Get(ctx)
	switch {
	case doc != nil && !doc.Exists():
		err = fmt.Errorf("firestorestore: Check: what api writes client cannot read: are both of the same service?")
	case err != nil:
		err = s.explain(ctx, "Check", err)
	}
	_, undeleted := s.delete(ctx, "Check", &firestorepb.Document{Name: s.name(k), UpdateTime: cmp.Or(c.next, c.found).at})
	return errors.Join(err, undeleted)
}

func (s *Store) checkDatabase(ctx context.Context, admin Admin) error {
	db, err := admin.GetDatabase(ctx, &adminpb.GetDatabaseRequest{Name: s.database})
	if err != nil {
		return s.explain(ctx, "Check", err)
	}
	if db.GetType() != adminpb.Database_FIRESTORE_NATIVE {
		return fmt.Errorf("firestorestore: Check: %s is of type %v, want FIRESTORE_NATIVE: the mode of a database with data does not change", s.database, db.GetType())
	}
	group := s.group()
	var errs []error
	field := func(name string) *adminpb.Field {
		f, err := admin.GetField(ctx, &adminpb.GetFieldRequest{Name: s.database + "/collectionGroups/" + group + "/fields/" + name})
		if err != nil {
			errs = append(errs, s.explain(ctx, "Check: field "+name, err))
			return nil
		}
		return f
	}
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("firestorestore: Check: "+format, args...))
	}
	if f := field(s.ttl); f != nil && !s.sweeps {
		switch f.GetTtlConfig().GetState() {
		case adminpb.Field_TtlConfig_ACTIVE, adminpb.Field_TtlConfig_CREATING:
		default:
			bad("nothing deletes expired records: gcloud firestore fields ttls update %s --collection-group=%s --enable-ttl makes the policy, or set Options.Sweep", s.ttl, group)
		}
	}
	if f := field(fieldAttention); f != nil && len(f.GetIndexConfig().GetIndexes()) == 0 {
		bad("field %s has no index, and List of failed, parked or released records needs it: gcloud firestore indexes fields update %s --collection-group=%s --index=order=ascending",
			fieldAttention, fieldAttention, group)
	}
	if f := field(fieldUpdated); f != nil && len(f.GetIndexConfig().GetIndexes()) > 0 {
		bad("field %s is indexed, and Firestore takes 500 writes a second to an index of rising times: gcloud firestore indexes fields update %s --collection-group=%s --disable-indexes, and so for the other fields",
			fieldUpdated, fieldUpdated, group)
	}
	return errors.Join(errs...)
}
