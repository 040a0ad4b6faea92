package dynamostore

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
)

func TestNew(t *testing.T) {
	c := dynamodb.New(dynamodb.Options{Region: region})
	for name, v := range map[string]struct {
		client *dynamodb.Client
		table  string
		o      *Options
		text   string
	}{
		"no client":           {nil, "records", nil, "client is nil"},
		"no table":            {c, "", nil, "3 to 255"},
		"a short table":       {c, "ab", nil, "3 to 255"},
		"a long table":        {c, strings.Repeat("a", 256), nil, "3 to 255"},
		"a table with spaces": {c, "my records", nil, "3 to 255"},
		"a queue's ARN":       {c, "arn:aws:sqs:us-east-1:123456789012:orders", nil, "ARN"},
		"a reserved TTL":      {c, "records", &Options{TTLAttribute: "lease_until"}, "Options.TTLAttribute"},
		"the key as TTL":      {c, "records", &Options{TTLAttribute: "key"}, "Options.TTLAttribute"},
		"a long TTL":          {c, "records", &Options{TTLAttribute: strings.Repeat("t", 256)}, "limit is 255"},
	} {
		if _, err := New(v.client, v.table, v.o); !errors.Is(err, dedupe.ErrBadRequest) || !strings.Contains(err.Error(), v.text) || !strings.Contains(err.Error(), "New") {
			t.Errorf("%s: %v, want ErrBadRequest with %q", name, err, v.text)
		}
	}
	for _, table := range []string{"abc", strings.Repeat("a", 255), "my.records_1-2", "arn:aws:dynamodb:us-east-1:123456789012:table/records"} {
		s, err := New(c, table, nil)
		if err != nil || s.ttl != DefaultTTLAttribute {
			t.Errorf("%s: %v", table, err)
		}
	}
}

// TestCreateTable: by many starters at once, and again.
func TestCreateTable(t *testing.T) {
	t.Parallel()
	c := openClient(t)
	table := newTable(t)
	var wg sync.WaitGroup
	for range 8 {
		s := must.Get(New(c, table, &Options{TTLAttribute: "gone at"}))
		wg.Go(func() {
			if err := s.CreateTable(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	d, err := c.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	if b := d.Table.BillingModeSummary; b == nil || b.BillingMode != types.BillingModePayPerRequest {
		t.Errorf("it is billed %+v", b)
	}
	ttl, err := c.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &table})
	if err != nil || deref(ttl.TimeToLiveDescription.AttributeName) != "gone at" {
		t.Errorf("the expiry is %+v, %v", ttl.TimeToLiveDescription, err)
	}
	s, err := New(c, table, &Options{TTLAttribute: "gone at"})
	if err := errors.Join(err, s.CreateTable(t.Context())); err != nil {
		t.Error(err)
	}
	l := claimOne(t, s, request("k"))
	settleOne(t, s, l, dedupe.Done)
	if it := rawItem(t, s, l.Key); it["gone at"] == nil {
		t.Errorf("the item is %v", it)
	}
	other, err := New(c, table, nil)
	if err := errors.Join(err, other.CreateTable(t.Context())); err == nil || !strings.Contains(err.Error(), "Options.TTLAttribute") {
		t.Errorf("with another TTL attribute: %v", err)
	}
	// A worker that does not call it finds out, too.
	cs, err := other.Claim(t.Context(), []dedupe.ClaimRequest{request("k")})
	if err != nil || cs[0].Err == nil || !strings.Contains(cs[0].Err.Error(), "TTLAttribute") {
		t.Errorf("a claim with another TTL attribute: %+v, %v", cs, err)
	}
}

// TestForeignTable: a table with another key is refused, by CreateTable and by the calls.
func TestForeignTable(t *testing.T) {
	t.Parallel()
	c := openClient(t)
	for name, key := range map[string][]string{"as Powertools": {"id"}, "turned round": {"scope", "key"}, "without a sort key": {"key"}} {
		table := newTable(t)
		in := &dynamodb.CreateTableInput{TableName: &table, BillingMode: types.BillingModePayPerRequest}
		for i, k := range key {
			in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &k, AttributeType: types.ScalarAttributeTypeS})
			in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &k, KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
		}
		if _, err := c.CreateTable(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		s := must.Get(New(c, table, nil))
		if err := s.CreateTable(t.Context()); err == nil || !strings.Contains(err.Error(), "made for something else") {
			t.Errorf("%s: CreateTable: %v", name, err)
		}
		if slices.Contains(key, "scope") {
			continue // DynamoDB takes the names in any order, and the records are as good
		}
		if _, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("k")}); err == nil || !strings.Contains(err.Error(), "another library") {
			t.Errorf("%s: Claim: %v", name, err)
		}
		if _, err := settleErr(t, s); err == nil || !strings.Contains(err.Error(), "another library") {
			t.Errorf("%s: Settle: %v", name, err)
		}
	}
	s := must.Get(New(c, newTable(t), nil))
	if _, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("k")}); err == nil || !strings.Contains(err.Error(), "CreateTable") ||
		!errors.As(err, new(*types.ResourceNotFoundException)) {
		t.Errorf("without a table: %v", err)
	}
}

func settleErr(t *testing.T, s *Store) ([]dedupe.Settled, error) {
	return s.Settle(t.Context(), []dedupe.Settlement{{Key: request("k").Key, Token: newToken(), To: dedupe.Done}})
}

// TestForeignItem: what another tool has written under a key is an error of that entry, and is not
// touched.
func TestForeignItem(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	l := claimOne(t, s, request("good"))
	good := rawItem(t, s, l.Key)
	for name, spoil := range map[string]func(it item){
		"nothing but the key":  func(it item) { clear(it) },
		"no status":            func(it item) { delete(it, attrStatus) },
		"another status":       func(it item) { it[attrStatus] = text("INPROGRESS") },
		"a number as status":   func(it item) { it[attrStatus] = number(1) },
		"no fence":             func(it item) { delete(it, attrFence) },
		"a fence of text":      func(it item) { it[attrFence] = text("1") },
		"a fence below 0":      func(it item) { it[attrFence] = number(-1) },
		"a fence in parts":     func(it item) { it[attrFence] = &types.AttributeValueMemberN{Value: "1.5"} },
		"no version":           func(it item) { delete(it, attrVersion) },
		"no token":             func(it item) { delete(it, attrToken) },
		"a short token":        func(it item) { it[attrToken] = text("abc") },
		"a token of no digits": func(it item) { it[attrToken] = text(strings.Repeat("z", 32)) },
		"another policy":       func(it item) { it[attrPolicy] = text("maybe") },
		"a result of text":     func(it item) { it[attrResult] = text("x") },
		"an owner of bytes":    func(it item) { it[attrOwner] = blob([]byte("x")) },
		"started as text":      func(it item) { it[attrStarted] = text("true") },
		"an expiry too many":   func(it item) { it[s.ttl] = number(4000000000) },
	} {
		k := request(name).Key
		it := make(item)
		maps.Copy(it, good)
		spoil(it)
		it[attrKey], it[attrScope] = text(k.Key), text(k.Scope)
		putRaw(t, s, it)
		want := func(call string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "was not written by this store") || !strings.Contains(err.Error(), k.Key) {
				t.Errorf("%s: %s: %v", name, call, err)
			}
		}
		token := newToken()
		cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{{Key: k, Token: token, TTL: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		want("Claim", cs[0].Err)
		want("Renew", renewOne(t, s, dedupe.Renewal{Key: k, Token: token, TTL: time.Minute}))
		_, err = settle(t, s, dedupe.Settlement{Key: k, Token: token, To: dedupe.Done})
		want("Settle", err)
		_, err = s.Get(t.Context(), []dedupe.Key{k})
		want("Get", err)
		errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: k, Fence: 1}})
		if err != nil {
			t.Fatal(err)
		}
		want("Forget", errs[0])
		want("Commit", s.Commit(t.Context(), &job{Of: dedupe.Lease{Key: k, Token: token, Fence: 1}}, nil))
		if is := rawItem(t, s, k); len(is) != len(it) {
			t.Errorf("%s: the item became %v", name, is)
		}
		deleteRaw(t, s, k)
	}
}

// TestStepsAside: an operator of another scope never meets these keys: the same key in two scopes,
// and a scope and key that would be the same if they were joined.
func TestScopes(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	keys := []dedupe.Key{{Scope: "a:b", Key: "c"}, {Scope: "a", Key: "b:c"}, {Scope: "a", Key: "c"}, {Scope: "b", Key: "c"}, {Scope: "c", Key: "a"}}
	for i, k := range keys {
		q := request("")
		q.Key = k
		l := claimOne(t, s, q)
		if st, err := settle(t, s, dedupe.Settlement{Key: k, Token: l.Token, To: dedupe.Done, Result: []byte{byte(i)}}); st != dedupe.Done {
			t.Fatal(st, err)
		}
	}
	for i, k := range keys {
		if r := get(t, s, k); r.Key != k || r.Result[0] != byte(i) {
			t.Errorf("under %v is %+v", k, r)
		}
	}
	out, err := s.client.Scan(t.Context(), &dynamodb.ScanInput{TableName: &s.table, ConsistentRead: aws.Bool(true)})
	if err != nil || len(out.Items) != len(keys) {
		t.Errorf("the table has %d items, %v", len(out.Items), err)
	}
}
