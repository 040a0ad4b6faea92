package firestorestore

import (
	"reflect"
	"testing"
	"time"

	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/protobuf/proto"

	"github.com/onceq/onceq/dedupe"
)

// FuzzDocument: anybody may have written a document under a key's name. It is refused, or it is a
// record that is written and read again as the same one.
func FuzzDocument(f *testing.F) {
	s := form{docs: "projects/p/databases/(default)/documents/onceq", ttl: "expires"}
	at := time.Date(2026, 11, 28, 12, 0, 0, 123456000, time.UTC)
	for _, r := range []dedupe.Record{
		{Status: dedupe.Claimed, LeaseUntil: at, ClaimedAt: at, Owner: "w-7", State: []byte{1, 2}, Attempt: 3},
		{Status: dedupe.Done, Expires: at, Finished: at, Result: []byte("42")},
		{Status: dedupe.Failed, Expires: at, ErrClass: "timeout", FirstErr: "a", LastErr: "b", Fingerprint: []byte{0xff}},
	} {
		r.Key, r.Fence, r.Created, r.Updated = dedupe.Key{Scope: "orders", Key: "A-1"}, 1<<50, at, at
		b, err := proto.Marshal(&firestorepb.Document{Fields: s.encode(&r, nil, "c").fields})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var doc firestorepb.Document
		if proto.Unmarshal(b, &doc) != nil {
			return
		}
		k := dedupe.Key{Scope: doc.Fields[fieldScope].GetStringValue(), Key: doc.Fields[fieldKey].GetStringValue()}
		was := &dedupe.Record{}
		for range 2 { // what others have written may be finer than a microsecond
			st, err := s.decode(k, &doc)
			if err != nil || st.rec.Status == 0 {
				return
			}
			*was = st.rec
			doc.Fields = s.encode(&st.rec, nil, st.commit).fields
		}
		if st, err := s.decode(k, &doc); err != nil || !reflect.DeepEqual(&st.rec, was) {
			t.Errorf("%+v is read again as %+v, %v", was, st, err)
		}
	})
}
