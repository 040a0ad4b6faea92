package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
)

// business is a user's table beside the records.
type business struct {
	*testing.T
	c      *dynamodb.Client
	s      *Store
	ledger string
}

func newBusiness(t *testing.T) *business {
	t.Helper()
	c := openClient(t)
	return &business{T: t, c: c, s: newStore(t, c, newTable(t)), ledger: newLedger(t, c)}
}

func (b *business) want(k dedupe.Key, st dedupe.Status, rows int) *dedupe.Record {
	b.Helper()
	r := get(b, b.s, k)
	if got := ledgerRows(b, b.c, b.ledger); r.Status != st || len(got) != rows {
		b.Errorf("the record is %v with the rows %q, want %v with %d", r.Status, got, st, rows)
	}
	return r
}

// TestCommit: the items and the completion are there, and the record is as a settlement would leave
// it.
func TestCommit(t *testing.T) {
	t.Parallel()
	b := newBusiness(t)
	q := request("1")
	claimOne(t, b.s, q)
	if st, err := settle(t, b.s, dedupe.Settlement{Key: q.Key, Token: q.Token, To: dedupe.Released, ErrClass: "a", ErrText: "b"}); st != dedupe.Released {
		t.Fatal(st, err)
	}
	q.Token = newToken()
	j := &job{Of: claimOne(t, b.s, q), Keep: time.Hour}
	if err := b.s.Commit(t.Context(), j, map[string]int{"row": 7}, line(b.ledger, "1"), line(b.ledger, "2")); err != nil {
		t.Fatal(err)
	}
	r := b.want(q.Key, dedupe.Done, 2)
	switch {
	case !j.Joined():
		t.Error("the job was not joined")
	case string(r.Result) != `{"row":7}`:
		t.Errorf("result %q", r.Result)
	case time.Since(r.Finished).Abs() > time.Minute, !r.Updated.Equal(r.Finished), !r.LeaseUntil.IsZero(), r.Expires.Sub(r.Finished) < time.Hour:
		t.Errorf("times: %+v", r)
	case r.ErrClass+r.FirstErr+r.LastErr != "":
		t.Errorf("a done record with an error: %+v", r)
	case r.Fence != j.Of.Fence || r.Attempt != 2 || r.Owner != q.Owner:
		t.Errorf("record %+v", r)
	}
	// The same again is the same; with other items, or another result, it is another effect, which
	// is not there.
	if err := b.s.Commit(t.Context(), j, map[string]int{"row": 7}, line(b.ledger, "1"), line(b.ledger, "2")); err != nil {
		t.Errorf("the same again: %v", err)
	}
	for name, err := range map[string]error{
		"other items":     b.s.Commit(t.Context(), j, map[string]int{"row": 7}, line(b.ledger, "3")),
		"another order":   b.s.Commit(t.Context(), j, map[string]int{"row": 7}, line(b.ledger, "2"), line(b.ledger, "1")),
		"no result":       b.s.Commit(t.Context(), j, nil, line(b.ledger, "1"), line(b.ledger, "2")),
		"another result":  b.s.Commit(t.Context(), j, map[string]int{"row": 8}, line(b.ledger, "1"), line(b.ledger, "2")),
		"no items at all": b.s.Commit(t.Context(), j, map[string]int{"row": 7}),
	} {
		if !errors.Is(err, dedupe.ErrLeaseLost) || !strings.Contains(err.Error(), "completed before") {
			t.Errorf("%s: %v, want ErrLeaseLost", name, err)
		}
	}
	b.want(q.Key, dedupe.Done, 2)
}

// TestCommitRefusals: each tells what is wrong, writes nothing and, where there is a job, has
// joined it.
func TestCommitRefusals(t *testing.T) {
	t.Parallel()
	b := newBusiness(t)
	l := claimOne(t, b.s, request("1"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	many := make([]types.TransactWriteItem, MaxCommitItems+1)
	for i := range many {
		many[i] = line(b.ledger, fmt.Sprint(i))
	}
	for name, c := range map[string]struct {
		ctx    context.Context
		lease  dedupe.Lease
		result any
		items  []types.TransactWriteItem
		want   error
		text   string
	}{
		"no store":       {lease: dedupe.Lease{Key: l.Key, Token: l.Token}, want: dedupe.ErrBadRequest, text: "not claimed in a store"},
		"a bad key":      {lease: dedupe.Lease{Key: dedupe.Key{Scope: "s", Key: "\x00"}, Token: l.Token, Fence: 1}, want: dedupe.ErrBadKey},
		"not JSON":       {lease: l, result: func() {}, text: "JSON"},
		"too many items": {lease: l, items: many, want: dedupe.ErrBadRequest, text: "the limit is 99"},
		"an empty item":  {lease: l, items: make([]types.TransactWriteItem, 1), text: "Commit"},
		"an item twice":  {lease: l, items: []types.TransactWriteItem{many[0], many[0]}, text: "Commit"},
		"the job's own record": {lease: l, items: []types.TransactWriteItem{{Delete: &types.Delete{
			TableName: &b.s.table, Key: keyOf(l.Key),
		}}}, text: "Commit"},
		"an ended context": {ctx: ended, lease: l, items: many[:1], want: context.Canceled},
	} {
		if c.ctx == nil {
			c.ctx = t.Context()
		}
		j := &job{Of: c.lease}
		err := b.s.Commit(c.ctx, j, c.result, c.items...)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v; want %v with %q", name, err, c.want, c.text)
		}
		if c.lease.Fence != 0 && !j.Joined() {
			t.Errorf("%s: not joined", name)
		}
	}
	for _, j := range []dedupe.Owned{nil, (*job)(nil)} {
		if err := b.s.Commit(t.Context(), j, nil); !errors.Is(err, dedupe.ErrBadRequest) {
			t.Errorf("no job: %v", err)
		}
		if _, err := b.s.CompleteItems(j, nil); !errors.Is(err, dedupe.ErrBadRequest) {
			t.Errorf("no job: %v", err)
		}
	}
	b.want(l.Key, dedupe.Claimed, 0)
	if err := b.s.Commit(t.Context(), &job{Of: l}, nil, many[:MaxCommitItems]...); err != nil {
		t.Errorf("%d items: %v", MaxCommitItems, err)
	}
	b.want(l.Key, dedupe.Done, MaxCommitItems)
	if err := errors.Join(b.s.Close(), b.s.Commit(t.Context(), &job{Of: l}, nil)); !errors.Is(err, dedupe.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestCommitError: a condition of the user's own names its item, shows what is there, and leaves
// the job as it was.
func TestCommitError(t *testing.T) {
	t.Parallel()
	b := newBusiness(t)
	l := claimOne(t, b.s, request("1"))
	if _, err := b.c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &b.ledger, Item: item{"row": text("2"), "by": text("another")}}); err != nil {
		t.Fatal(err)
	}
	taken := line(b.ledger, "2")
	taken.Put.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	err := b.s.Commit(t.Context(), &job{Of: l}, nil, line(b.ledger, "1"), taken, line(b.ledger, "3"))
	var ce *CommitError
	if !errors.As(err, &ce) || ce.Index != 1 || ce.Code != "ConditionalCheckFailed" || ce.Item["by"] == nil || !errors.As(err, new(*types.TransactionCanceledException)) {
		t.Errorf("Commit: %v, %+v", err, ce)
	}
	b.want(l.Key, dedupe.Claimed, 1)
	// The handler may choose other items then.
	if err := b.s.Commit(t.Context(), &job{Of: l}, nil, line(b.ledger, "1"), line(b.ledger, "3")); err != nil {
		t.Error(err)
	}
	b.want(l.Key, dedupe.Done, 3)
}

// TestCommitMistakes: what is wrong with an item of the user's is not said of the job's record, nor
// of its table.
func TestCommitMistakes(t *testing.T) {
	t.Parallel()
	b := newBusiness(t)
	l := claimOne(t, b.s, request("1"))
	keyless, large := line(b.ledger, "1"), line(b.ledger, "1")
	keyless.Put.Item = item{"x": text("y")}
	large.Put.Item["more"] = blob(make([]byte, maxItem))
	for name, c := range map[string]struct {
		item types.TransactWriteItem
		text string
	}{
		"no such table": {line(b.ledger+"-of-another-region", "1"), "the tables of all items"},
		"no key":        {keyless, "required key"},
		"too large":     {large, "one of the items"},
		"no expression": {types.TransactWriteItem{Update: &types.Update{TableName: &b.ledger, Key: item{"row": text("1")}, UpdateExpression: aws.String("SET")}}, "UpdateExpression"},
	} {
		err := b.s.Commit(t.Context(), &job{Of: l}, nil, c.item)
		if err == nil || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "nothing was written") ||
			strings.Contains(err.Error(), "another library") || strings.Contains(err.Error(), "CreateTable") || errors.Is(err, dedupe.ErrResultSize) {
			t.Errorf("%s: %v, want %q", name, err, c.text)
		}
	}
	b.want(l.Key, dedupe.Claimed, 0)
}

// TestCommitBesideBeats: renewals and commits of many jobs at once, all of which change one
// counter: what conflicts is repeated, and each job counts once.
func TestCommitBesideBeats(t *testing.T) {
	t.Parallel()
	b := newBusiness(t)
	const jobs = 12
	var wg sync.WaitGroup
	for i := range jobs {
		l := claimOne(t, b.s, request(fmt.Sprint(i)))
		count := types.TransactWriteItem{Update: &types.Update{
			TableName: &b.ledger, Key: item{"row": text("counter")}, UpdateExpression: aws.String("ADD #n :one"),
			ExpressionAttributeNames: map[string]string{"#n": "n"}, ExpressionAttributeValues: item{":one": number(1)},
		}}
		over := make(chan struct{})
		wg.Go(func() {
			defer close(over)
			if err := b.s.Commit(t.Context(), &job{Of: l}, nil, count); err != nil {
				t.Errorf("job %d: %v", i, err)
			}
		})
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				rs, err := b.s.Renew(t.Context(), []dedupe.Renewal{{Key: l.Key, Token: l.Token, TTL: time.Minute}})
				switch {
				case err != nil:
					t.Errorf("renewal %d: %v", i, err)
					return
				case errors.Is(rs[0].Err, dedupe.ErrLeaseLost):
					if r := get(t, b.s, l.Key); r.Status != dedupe.Done {
						t.Errorf("renewal %d was lost while the job was %v", i, r.Status)
					}
					return
				case rs[0].Err != nil && !errors.Is(rs[0].Err, dedupe.ErrBusy):
					t.Errorf("renewal %d: %v", i, rs[0].Err)
				}
			}
		})
	}
	wg.Wait()
	out, err := b.c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &b.ledger, Key: item{"row": text("counter")}, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	if d := (decoder{it: out.Item}); d.integer("n") != jobs {
		t.Errorf("the counter is %d after %d jobs", d.integer("n"), jobs)
	}
}

// TestPrinter: what differs is printed differently.
func TestPrinter(t *testing.T) {
	put := func(v value) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{TableName: aws.String("t"), Item: item{"a": v}}}
	}
	kinds := []value{
		nil, text(""), text("1"), number(1), blob([]byte("1")), truth(true), truth(false), &types.AttributeValueMemberNULL{Value: true},
		&types.AttributeValueMemberSS{Value: []string{"1"}}, &types.AttributeValueMemberSS{Value: []string{"1", "2"}}, &types.AttributeValueMemberSS{Value: []string{"12"}},
		&types.AttributeValueMemberSS{Value: []string{"1", "23"}}, &types.AttributeValueMemberSS{Value: []string{"12", "3"}},
		&types.AttributeValueMemberNS{Value: []string{"1"}}, &types.AttributeValueMemberBS{Value: [][]byte{[]byte("1")}}, &types.AttributeValueMemberBS{},
		&types.AttributeValueMemberL{Value: []value{text("1")}}, &types.AttributeValueMemberL{Value: []value{number(1)}}, &types.AttributeValueMemberL{},
		&types.AttributeValueMemberM{Value: item{"b": text("1")}}, &types.AttributeValueMemberM{Value: item{"c": text("1")}}, &types.AttributeValueMemberM{},
	}
	var all [][]types.TransactWriteItem
	for _, v := range kinds {
		all = append(all, []types.TransactWriteItem{put(v)})
	}
	key, name, one := item{"k": text("1")}, aws.String("t"), aws.String("1")
	names := map[string]string{"#a": "a"}
	all = append(
		all, nil, []types.TransactWriteItem{{}}, []types.TransactWriteItem{{}, {}},
		[]types.TransactWriteItem{{Delete: &types.Delete{TableName: name, Key: key}}},
		[]types.TransactWriteItem{{Delete: &types.Delete{TableName: one, Key: key}}},
		[]types.TransactWriteItem{{Delete: &types.Delete{Key: key}}},
		[]types.TransactWriteItem{{Delete: &types.Delete{TableName: name, Key: key, ConditionExpression: one}}},
		[]types.TransactWriteItem{{Delete: &types.Delete{TableName: name, Key: key, ExpressionAttributeNames: names}}},
		[]types.TransactWriteItem{{Delete: &types.Delete{TableName: name, Key: key, ExpressionAttributeValues: key}}},
		[]types.TransactWriteItem{{ConditionCheck: &types.ConditionCheck{TableName: name, Key: key}}},
		[]types.TransactWriteItem{{Update: &types.Update{TableName: name, Key: key}}},
		[]types.TransactWriteItem{{Update: &types.Update{TableName: name, Key: key, UpdateExpression: one}}},
	)
	l := dedupe.Lease{Token: newToken()}
	seen := make(map[string]int)
	for i, items := range all {
		id := (&commit{lease: l, items: items}).identify()
		if j, ok := seen[id]; ok {
			t.Errorf("%d and %d are printed the same", i, j)
		}
		seen[id] = i
		if again := (&commit{lease: l, items: items}).identify(); again != id {
			t.Errorf("%d is printed in two ways", i)
		}
		if other := (&commit{lease: dedupe.Lease{Token: newToken()}, items: items}).identify(); other == id {
			t.Errorf("%d is the same under another claim", i)
		}
	}
}

// TestWrittenCommits: what nobody settles is forgotten some day, and a Commit that was not written
// is not remembered.
func TestWrittenCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := true
		s, st := warmed(t, func(c stubCall) stubAnswer {
			if fails && c.op == "TransactWriteItems" {
				return reasons("ConditionalCheckFailed", "None")
			}
			return applied
		})
		j := &job{Of: dedupe.Lease{Key: request("k").Key, Token: newToken(), Fence: 7}}
		if err := s.Commit(t.Context(), j, nil, line("ledger", "1")); err == nil {
			t.Error("a cancelled transaction was written")
		}
		if s.written.take(j.Of.Token).written {
			t.Error("a Commit that failed is remembered")
		}
		fails = false
		for range maxWritten + 10 {
			j.Of.Token = newToken()
			s.written.note(j.Of.Token, ended{to: dedupe.Done, written: true})
		}
		if n := len(s.written.tokens); n > maxWritten || !s.written.take(j.Of.Token).written || s.written.take(j.Of.Token).written {
			t.Errorf("%d are remembered, and the last one not once", n)
		}
		if err := s.Commit(t.Context(), j, nil, line("ledger", "1")); err != nil || !s.written.take(j.Of.Token).written {
			t.Errorf("Commit: %v, and it is not remembered", err)
		}
		if n := len(st.of("UpdateItem")); n > 0 {
			t.Errorf("%d writes beside the transactions", n)
		}
	})
}

// TestCommitIdentity: the same items and the same result under one claim are the same Commit, and
// nothing else is. No result is another one than an empty one.
func TestCommitIdentity(t *testing.T) {
	l, items := dedupe.Lease{Token: newToken()}, []types.TransactWriteItem{line("ledger", "1")}
	id := func(l dedupe.Lease, result []byte, items []types.TransactWriteItem) string {
		return (&commit{lease: l, result: result, items: items}).identify()
	}
	same := id(l, nil, items)
	if again := id(l, nil, []types.TransactWriteItem{line("ledger", "1")}); again != same {
		t.Errorf("the same again is %s, and was %s", again, same)
	}
	seen := map[string]string{same: "no result"}
	for name, other := range map[string]string{
		"an empty result": id(l, []byte{}, items),
		"a result":        id(l, []byte{1}, items),
		"another claim":   id(dedupe.Lease{Token: newToken()}, nil, items),
		"another item":    id(l, nil, []types.TransactWriteItem{line("ledger", "2")}),
		"no items":        id(l, nil, nil),
	} {
		if as := seen[other]; as != "" {
			t.Errorf("%s has the id of %s", name, as)
		}
		seen[other] = name
	}
}
