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

	"github.com/onceq/onceq/dedupe"
)

var _ dedupe.Checker = (*Store)(nil)

// errNoAdmin is the answer where nobody can ask how the database is set up.
var errNoAdmin = errors.New("firestorestore: Check: Options.Admin is nil, so nothing tells how the database is set up")

// Check tells what is wrong with the database, and changes nothing: Datastore mode, a missing TTL
// policy, an index that is missing, and indexes that slow down every write. It asks Options.Admin,
// which needs datastore.databases.getMetadata and datastore.indexes.get, as in
// roles/datastore.indexAdmin; workers do without. An error says that not all could be asked.
func (s *Store) Check(ctx context.Context) ([]dedupe.Fault, error) {
	if err := s.ready(ctx, 0); err != nil {
		return nil, err
	}
	if s.admin == nil {
		return nil, errNoAdmin
	}
	return s.checkDatabase(ctx, s.admin)
}

// Probe tells whether the store can work, for the start of a program. It creates a document that
// counts as no record, reads it through the other client and deletes it, which needs the rights of
// a worker. So it tells of a missing database, one in Datastore mode, missing rights, and clients
// of two services.
func (s *Store) Probe(ctx context.Context) error {
	if err := s.ready(ctx, 0); err != nil {
		return err
	}
	k := dedupe.Key{Scope: "onceq.check", Key: rand.Text()}
	c := &change{key: k, sure: true}
	c.decide = func(found *stored, at reading) (*stored, error) {
		if found != nil {
			return nil, nil
		}
		return s.tombstone(k, 1, at.now, at.now.Add(time.Hour)), nil
	}
	if err := s.run(ctx, "Probe", []*change{c}); err != nil {
		return err
	}
	if c.err != nil {
		return c.err
	}
	doc, err := s.client.DocFromFullPath(s.name(k)).Get(ctx)
	switch {
	case doc != nil && !doc.Exists():
		err = fmt.Errorf("firestorestore: Probe: what api writes client cannot read: are both of the same service?")
	case err != nil:
		err = s.explain(ctx, "Probe", err)
	}
	_, undeleted := s.delete(ctx, "Probe", &firestorepb.Document{Name: s.name(k), UpdateTime: cmp.Or(c.next, c.found).at})
	return errors.Join(err, undeleted)
}

func (s *Store) checkDatabase(ctx context.Context, admin Admin) (fs []dedupe.Fault, err error) {
	db, err := admin.GetDatabase(ctx, &adminpb.GetDatabaseRequest{Name: s.database})
	if err != nil {
		return nil, s.explain(ctx, "Check", err)
	}
	if db.GetType() != adminpb.Database_FIRESTORE_NATIVE {
		return []dedupe.Fault{{
			Text: fmt.Sprintf("%s is of type %v, want FIRESTORE_NATIVE: no call of the store works", s.database, db.GetType()),
			Mend: "another database: the mode of one with data does not change",
		}}, nil
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
	bad := func(text, mend string, args ...any) {
		fs = append(fs, dedupe.Fault{Text: text, Mend: fmt.Sprintf("gcloud firestore "+mend, args...)})
	}
	if f := field(s.ttl); f != nil && !s.sweeps {
		switch f.GetTtlConfig().GetState() {
		case adminpb.Field_TtlConfig_ACTIVE, adminpb.Field_TtlConfig_CREATING:
		default:
			bad("nothing deletes expired records", "fields ttls update %s --collection-group=%s --enable-ttl; or set Options.Sweep", s.ttl, group)
		}
	}
	if f := field(fieldAttention); f != nil && len(f.GetIndexConfig().GetIndexes()) == 0 {
		bad("field "+fieldAttention+" has no index, and List of failed, parked or released records needs it",
			"indexes fields update %s --collection-group=%s --index=order=ascending", fieldAttention, group)
	}
	if f := field(fieldUpdated); f != nil && len(f.GetIndexConfig().GetIndexes()) > 0 {
		bad("field "+fieldUpdated+" is indexed, and Firestore takes 500 writes a second to an index of rising times",
			"indexes fields update %s --collection-group=%s --disable-indexes, and so for the other fields", fieldUpdated, group)
	}
	return fs, errors.Join(errs...)
}
