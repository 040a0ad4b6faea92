package firestorestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/firestore/apiv1/admin/adminpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
)

// worst is the largest claim that the store takes.
func worst() dedupe.ClaimRequest {
	q := request(strings.Repeat("k", dedupe.MaxKey))
	q.Key.Scope = strings.Repeat("s", dedupe.MaxScope)
	q.Owner, q.MessageID, q.Fingerprint = strings.Repeat("o", 5000), strings.Repeat("m", 2000), bytes.Repeat([]byte{7}, 1000)
	return q
}

// TestLargest: the largest state, result, labels and errors fit together, over many attempts; what
// does not fit is refused before anything is written, and fails alone.
func TestLargest(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		q := worst()
		full := make([]byte, maxResult)
		for n := range 20 {
			q.Token = newToken()
			l := claimOne(t, s, q)
			if err := renewOne(t, s, dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: time.Minute, State: full, StateNo: n + 1}); err != nil {
				t.Fatalf("attempt %d: a state of %d bytes: %v", n, len(full), err)
			}
			if n == 19 {
				if st, err := settle(t, s, dedupe.Settlement{Key: q.Key, Token: q.Token, To: dedupe.Done, Result: full}); st != dedupe.Done {
					t.Fatal(err)
				}
				break
			}
			st, err := settle(t, s, dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Released, ErrClass: "class", ErrText: strings.Repeat("e", 64<<10)})
			if st != dedupe.Released {
				t.Fatalf("attempt %d: %v", n, err)
			}
			if c := getOne(t, s, q.Key); len(c.State) != maxResult || c.LastErr == "" {
				t.Fatalf("the state has %d bytes, the error %q", len(c.State), c.LastErr)
			}
		}
		if r := getOne(t, s, q.Key); len(r.Result) != maxResult {
			t.Errorf("the result has %d bytes", len(r.Result))
		}
		small, large := claimOne(t, s, request("small")), claimOne(t, s, request("large"))
		as, err := s.Settle(t.Context(), []dedupe.Settlement{
			{Key: large.Key, Token: large.Token, To: dedupe.Done, Result: make([]byte, maxResult+1)},
			{Key: small.Key, Token: small.Token, To: dedupe.Done},
		})
		if err != nil || !errors.Is(as[0].Err, dedupe.ErrResultSize) || as[1].Err != nil {
			t.Errorf("%v, %v", as, err)
		}
		// A parked record keeps its state, and a late word leaves room for nothing: the entry fails
		// alone.
		q = request("labels")
		q.Owner = strings.Repeat("o", maxLabels+1)
		if cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q, request("fits")}); err != nil || !errors.Is(cs[0].Err, dedupe.ErrBadRequest) || cs[1].Outcome != dedupe.Won {
			t.Errorf("%v, %v", cs, err)
		}
	})
}

// TestManyLarge: a batch beyond Firestore's limit on a request goes out in several.
func TestManyLarge(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		var qs []dedupe.ClaimRequest
		var ends []dedupe.Settlement
		for i := range 25 {
			qs = append(qs, request(fmt.Sprint(i)))
			ends = append(ends, dedupe.Settlement{Key: qs[i].Key, Token: qs[i].Token, To: dedupe.Done, Result: make([]byte, maxResult)})
		}
		claimAll(t, s, qs...)
		srv.ResetUsage()
		as, err := s.Settle(t.Context(), ends)
		for _, a := range as {
			err = errors.Join(err, a.Err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if u := srv.Usage(); u.Calls["BatchWrite"] != 3 || u.Writes != 25 {
			t.Errorf("%+v, want 3 requests", u)
		}
	})
}

// TestManyClaims: claims that nobody settles do not fill the memory, and those that are forgotten
// cost a read.
func TestManyClaims(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		l := claimOne(t, s, request("1"))
		for range maxClaims {
			s.claims.remember(newToken(), &stored{})
		}
		if n := len(s.claims.of); n > maxClaims {
			t.Errorf("%d are remembered", n)
		}
		srv.ResetUsage()
		settleOne(t, s, l, dedupe.Done)
		if u := srv.Usage(); u.Writes != 1 || u.Reads != 1 {
			t.Errorf("%+v", u)
		}
	})
}

// TestForeign: a document that something else has written fails its own entry, and says why.
func TestForeign(t *testing.T) {
	for name, change := range map[string]func(f fields){
		"no status":      func(f fields) { delete(f, fieldStatus); delete(f, fieldFence) },
		"another status": func(f fields) { f[fieldStatus] = toValue("busy") },
		"a text fence":   func(f fields) { f[fieldFence] = toValue("7") },
		"no token":       func(f fields) { f["token"] = toValue("xyz") },
		"another key":    func(f fields) { f[fieldKey] = toValue("other") },
		"another TTL":    func(f fields) { f["ttl"] = f[DefaultTTLField]; delete(f, DefaultTTLField) },
		"a text expiry":  func(f fields) { f[DefaultTTLField] = toValue("tomorrow") },
		"a map":          func(f fields) { f["owner"] = toValue([]byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
				l := claimOne(t, s, request("1"))
				settleOne(t, s, l, dedupe.Failed)
				f := raw(t, s, l.Key).GetFields()
				change(f)
				putRaw(t, s, l.Key, f)
				cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("1"), request("2")})
				if err != nil || cs[0].Err == nil || !strings.Contains(cs[0].Err.Error(), "was not written by this store") || cs[1].Outcome != dedupe.Won {
					t.Errorf("%+v, %v", cs, err)
				}
				if _, err := s.Get(t.Context(), []dedupe.Key{l.Key}); err == nil {
					t.Error("Get says nothing")
				}
			})
		})
	}
}

// TestFieldsOfOthers: what somebody has added to a document stays through every change.
func TestFieldsOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		l := claimOne(t, s, request("1"))
		f := raw(t, s, l.Key).GetFields()
		f["note"] = toValue("theirs")
		putRaw(t, s, l.Key, f)
		settleOne(t, s, l, dedupe.Released)
		settleOne(t, s, claimOne(t, s, request("1")), dedupe.Done)
		if got := fromValue(raw(t, s, l.Key).GetFields()["note"]); got != "theirs" {
			t.Errorf("the note is %v", got)
		}
	})
}

// TestNew: bad input is named, at construction.
func TestNew(t *testing.T) {
	_, w := fake(t)
	for _, c := range []struct {
		name, collection, want string
		none                   int // the client that is nil
		o                      *Options
	}{
		{name: "good", collection: "onceq"},
		{name: "nested", collection: "apps/shop/onceq"},
		{name: "no client", collection: "onceq", none: 1, want: "client is nil"},
		{name: "no api", collection: "onceq", none: 2, want: "api is nil"},
		{name: "a document", collection: "apps/shop", want: "collection"},
		{name: "empty", want: "collection"},
		{name: "reserved", collection: "__onceq__", want: "collection"},
		{name: "long", collection: strings.Repeat("c", 1501), want: "collection"},
		{name: "a field with a dot", collection: "onceq", o: &Options{TTLField: "a.b"}, want: "Options.TTLField"},
		{name: "a field of the store's", collection: "onceq", o: &Options{TTLField: "updated"}, want: "Options.TTLField"},
		{name: "another field of the store's", collection: "onceq", o: &Options{TTLField: "probe"}, want: "Options.TTLField"},
	} {
		client, api := w.client, w.api
		if c.none == 1 {
			client = nil
		} else if c.none == 2 {
			api = nil
		}
		s, err := New(client, api, c.collection, c.o)
		if c.want == "" && err != nil || c.want != "" && (s != nil || !errors.Is(err, dedupe.ErrBadRequest) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// setup is a database as its administrators see it.
type setup struct {
	kind    adminpb.Database_DatabaseType
	ttl     adminpb.Field_TtlConfig_State
	indexed map[string]bool
	err     error
}

func (a *setup) GetDatabase(context.Context, *adminpb.GetDatabaseRequest, ...gax.CallOption) (*adminpb.Database, error) {
	return &adminpb.Database{Type: a.kind}, a.err
}

func (a *setup) GetField(_ context.Context, in *adminpb.GetFieldRequest, _ ...gax.CallOption) (*adminpb.Field, error) {
	name := in.GetName()[strings.LastIndexByte(in.GetName(), '/')+1:]
	f := &adminpb.Field{IndexConfig: &adminpb.Field_IndexConfig{}}
	if name == DefaultTTLField && a.ttl != 0 {
		f.TtlConfig = &adminpb.Field_TtlConfig{State: a.ttl}
	}
	if a.indexed[name] {
		f.IndexConfig.Indexes = []*adminpb.Index{{}}
	}
	return f, nil
}

// TestCheck: a database that is set up as the page says passes, and each thing that is not is
// named, with the command that mends it.
func TestCheck(t *testing.T) {
	good := func() *setup {
		return &setup{kind: adminpb.Database_FIRESTORE_NATIVE, ttl: adminpb.Field_TtlConfig_ACTIVE, indexed: map[string]bool{fieldAttention: true}}
	}
	for _, c := range []struct {
		name   string
		change func(a *setup)
		fault  firestorefake.Fault
		want   []string
	}{
		{name: "as it should be"},
		{name: "the policy is new", change: func(a *setup) { a.ttl = adminpb.Field_TtlConfig_CREATING }},
		{name: "Datastore mode", change: func(a *setup) { a.kind = adminpb.Database_DATASTORE_MODE }, want: []string{"want FIRESTORE_NATIVE"}},
		{
			name: "nothing is set up", change: func(a *setup) { a.ttl, a.indexed = 0, map[string]bool{fieldUpdated: true} },
			want: []string{"fields ttls update expires_at", "update attention", "--disable-indexes"},
		},
		{name: "the policy broke", change: func(a *setup) { a.ttl = adminpb.Field_TtlConfig_NEEDS_REPAIR }, want: []string{"ttls update"}},
		{name: "no right to ask", change: func(a *setup) { a.err = status.Error(codes.PermissionDenied, "The caller does not have permission") }, want: []string{"does not have permission"}},
		{name: "no right to write", fault: firestorefake.Fault{Method: "BatchWrite", Code: codes.PermissionDenied, Message: "Missing or insufficient permissions."}, want: []string{"roles/datastore.user"}},
		{name: "no right to read", fault: firestorefake.Fault{Method: "BatchGetDocuments", Code: codes.PermissionDenied}, want: []string{"roles/datastore.user"}},
		{name: "a refusal that was none", fault: firestorefake.Fault{Method: "BatchWrite", Count: 1, Code: codes.ResourceExhausted, Applied: true}},
		{name: "no right to delete", fault: firestorefake.Fault{Method: "BatchWrite", Skip: 1, Code: codes.PermissionDenied, Entries: []int{0}}, want: []string{"roles/datastore.user"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
				s = second(t, s)
				a := good()
				s.sweeps, s.admin = false, a
				if c.change != nil {
					c.change(a)
				}
				srv.SetFaults(c.fault)
				err := s.Probe(t.Context())
				fs, asked := s.Check(t.Context())
				err = errors.Join(err, asked)
				for _, f := range fs {
					err = errors.Join(err, errors.New(f.Text+": "+f.Mend))
				}
				if (err != nil) != (c.want != nil) {
					t.Fatal(err)
				}
				for _, w := range c.want {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("%v, want %q", err, w)
					}
				}
			})
		})
	}
	bubble(t, func(t *testing.T, srv *firestorefake.Server, s *Store) {
		_, elsewhere := fake(t)
		s.client = elsewhere.client
		if err := s.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "of the same service") {
			t.Errorf("two services: %v", err)
		}
		if fs, err := s.Check(t.Context()); err == nil || fs != nil {
			t.Errorf("without an admin client: %v, %v", fs, err)
		}
		for r, err := range s.List(t.Context(), dedupe.Query{}) {
			t.Errorf("the probe is a record: %v, %v", r, err)
		}
	})
}
