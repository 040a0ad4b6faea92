package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
)

// This file owns what goes wrong around the end of a job: hosts that stand still, answers that are
// lost, rivals that come in between, and mistakes of the user's.

// transacted is answer for a transaction, too, whose last action is the completion, and for what
// asks for the item.
func (f *fleet) transacted(c stubCall) stubAnswer {
	if c.op == "GetItem" {
		return stubAnswer{out: object{"Item": maps.Clone(f.item)}}
	}
	if c.op != "TransactWriteItems" {
		a := f.answer(c)
		if a.code == "" && c.in["ReturnValues"] == string(types.ReturnValueAllNew) {
			a.out = object{"Attributes": maps.Clone(f.item)}
		}
		return a
	}
	all := c.in["TransactItems"].([]any)
	a := f.answer(stubCall{op: "UpdateItem", in: all[len(all)-1].(object)["Update"].(object)})
	if a.code == "" {
		return a
	}
	rs := make([]any, len(all))
	for i := range rs {
		rs[i] = "ConditionalCheckFailed"
	}
	rs[len(all)-1] = a.out["Item"]
	return reasons(rs...)
}

// losingFirst is answer, but the first write of what is lost is carried out and not answered. then
// is what others do meanwhile.
func losingFirst(op string, answer func(stubCall) stubAnswer, then func()) func(stubCall) stubAnswer {
	return func(c stubCall) stubAnswer {
		a := answer(c)
		if c.op == op && op != "" {
			op = ""
			then()
			return stubAnswer{lost: errReset}
		}
		return a
	}
}

// standStill is a host whose clocks both stood still while the service's went on.
func (s *stub) standStill(d time.Duration) {
	s.ahead += d
	s.calls = nil
}

// TestExpiryOfAHostThatStoodStill: a job that ends by the time of a host that stood still is kept
// for its whole retention: else its next delivery would run it again.
func TestExpiryOfAHostThatStoodStill(t *testing.T) {
	settles := func(to dedupe.Status) func(*testing.T, *Store, *job) error {
		return func(t *testing.T, s *Store, j *job) error {
			st, err := settle(t, s, dedupe.Settlement{Key: j.Of.Key, Token: j.Of.Token, To: to, Retain: j.Keep})
			if err == nil && st != to {
				t.Errorf("%v: answered %v", to, st)
			}
			return err
		}
	}
	joined := func(t *testing.T, s *Store, j *job) error {
		st, err := settle(t, s, dedupe.Settlement{Key: j.Of.Key, Token: j.Of.Token, To: dedupe.Done, Joined: true})
		if err == nil && st != dedupe.Done {
			t.Errorf("the joined settlement is answered %v", st)
		}
		return err
	}
	commits := func(t *testing.T, s *Store, j *job) error { return s.Commit(t.Context(), j, "r") }
	// What the user sends by another client tells the store no time.
	completes := func(t *testing.T, s *Store, j *job) error {
		items, err := s.CompleteItems(j, "r")
		if err != nil {
			return err
		}
		own := dynamodb.New(s.client.Options(), func(o *dynamodb.Options) { o.APIOptions = nil })
		_, err = own.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: items})
		return errors.Join(err, joined(t, s, j))
	}
	// The call ends before its answer; the worker asks what became of it.
	gives := func(t *testing.T, s *Store, j *job) error {
		if err := s.Commit(within(t, time.Second), j, "r"); err == nil {
			t.Error("a Commit whose answer never came is said to be written")
		}
		return joined(t, s, j)
	}
	for name, c := range map[string]struct {
		end  func(t *testing.T, s *Store, j *job) error
		lost string // the operation whose first answer is
		want dedupe.Outcome
		most int // calls
	}{
		"done":                       {end: settles(dedupe.Done), want: dedupe.AlreadyDone, most: 2},
		"done, the answer lost":      {end: settles(dedupe.Done), lost: "UpdateItem", want: dedupe.AlreadyDone, most: 3},
		"failed":                     {end: settles(dedupe.Failed), want: dedupe.AlreadyFailed, most: 2},
		"commit":                     {end: commits, want: dedupe.AlreadyDone, most: 2},
		"commit, the answer lost":    {end: commits, lost: "TransactWriteItems", want: dedupe.AlreadyDone, most: 3},
		"commit, no answer":          {end: gives, lost: "silent", want: dedupe.AlreadyDone, most: 4},
		"the user's own transaction": {end: completes, want: dedupe.AlreadyDone, most: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := &fleet{tb: t}
				s, st := stubbed(t, table.transacted)
				j := &job{Of: claimOne(t, s, request("k")), Keep: time.Hour}
				st.standStill(2 * time.Hour)
				st.answer = losingFirst(c.lost, table.transacted, func() {})
				if c.lost == "silent" {
					st.answer = func(c stubCall) stubAnswer {
						a := table.transacted(c)
						a.silent = c.op == "TransactWriteItems"
						return a
					}
				}
				if err := c.end(t, s, j); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if len(st.calls) > c.most {
					t.Errorf("%s: %d calls, want %d", name, len(st.calls), c.most)
				}
				left := time.Unix(numberOf(t, table.item, "expires_at"), 0).Sub(time.Now().Add(st.ahead))
				if (left - time.Hour).Abs() > margin {
					t.Errorf("%s: after %d calls the record expires in %v", name, len(st.calls), left)
				}
				if ended := timeOf(t, table.item, "finished").Sub(time.Now().Add(st.ahead)); ended.Abs() > margin {
					t.Errorf("%s: it ended %v ago", name, -ended)
				}
				rival, rst := stubbed(t, table.transacted)
				rst.ahead = st.ahead
				if got := claimAll(t, rival, request("k"))[0]; got.Outcome != c.want {
					t.Errorf("%s: the next delivery is %v", name, got.Outcome)
				}
				st.calls = nil
				if as, err := settle(t, s, dedupe.Settlement{Key: j.Of.Key, Token: j.Of.Token, To: dedupe.Done, Joined: c.want == dedupe.AlreadyDone}); err != nil || as.String() == "" || len(st.calls) > 1 {
					t.Errorf("%s: the settlement after it: %v, %v after %d calls", name, as, err, len(st.calls))
				}
			})
		})
	}
}

// TestRivalAfterALostAnswer: a write is carried out, its answer is lost, and the key is another's
// before the repeat: nobody may say that nothing was written. Who asks again learns it.
func TestRivalAfterALostAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(ctx context.Context, s *Store, l dedupe.Lease) (error, error)
		lost string
		free bool // the key is, by the write itself
	}{
		"a release": {lost: "UpdateItem", free: true, do: func(ctx context.Context, s *Store, l dedupe.Lease) (error, error) {
			as, err := s.Settle(ctx, []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Released}})
			return append(as, dedupe.Settled{})[0].Err, err
		}},
		"a renewal": {lost: "UpdateItem", do: func(ctx context.Context, s *Store, l dedupe.Lease) (error, error) {
			rs, err := s.Renew(ctx, []dedupe.Renewal{{Key: l.Key, Token: l.Token, TTL: time.Minute}})
			return append(rs, dedupe.Renewed{})[0].Err, err
		}},
		"a removal": {lost: "PutItem", free: true, do: func(ctx context.Context, s *Store, l dedupe.Lease) (error, error) {
			errs, err := s.Forget(ctx, []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence, Force: true}})
			return append(errs, nil)[0], err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := &fleet{tb: t}
				s, st := stubbed(t, table.transacted)
				l := claimOne(t, s, request("k"))
				var next dedupe.Lease
				st.answer = losingFirst(c.lost, table.transacted, func() {
					if !c.free {
						table.item["lease_until"] = object{"N": "1"}
					}
					rival, _ := stubbed(t, table.transacted)
					next = claimOne(t, rival, request("k"))
				})
				one, whole := c.do(t.Context(), s, l)
				if err := cmp.Or(one, whole); err == nil || errors.Is(err, dedupe.ErrLeaseLost) || !strings.Contains(err.Error(), "unknown") {
					t.Errorf("%v, want an error that leaves the outcome open", err)
				}
				if one, whole = c.do(t.Context(), s, l); whole != nil || !errors.Is(one, dedupe.ErrLeaseLost) {
					t.Errorf("asked again: %v, %v", one, whole)
				}
				if fieldOf(table.item, "token") != next.Token.Hex() {
					t.Errorf("the item is %v", table.item)
				}
			})
		})
	}
}

// TestCommitMeetsItself: a transaction is written, its answer lost, and DynamoDB, which has
// forgotten its ClientRequestToken, finds the user's own rows and the completion: the job is done.
func TestCommitMeetsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &fleet{tb: t}
		s, st := stubbed(t, table.transacted)
		l := claimOne(t, s, request("k"))
		st.answer = losingFirst("TransactWriteItems", table.transacted, func() {})
		st.calls = nil
		if err := s.Commit(t.Context(), &job{Of: l}, nil, line("ledger", "1")); err != nil || len(st.calls) != 2 {
			t.Errorf("%v after %d calls", err, len(st.calls))
		}
		if status := fieldOf(table.item, "status"); status != "done" {
			t.Errorf("the record is %v", status)
		}
	})
}

// TestCommitOfBadItems: what the client itself refuses, or cannot write down, is told at once, and
// not as a busy record.
func TestCommitOfBadItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, it := range map[string]types.TransactWriteItem{
			"no table": {Put: &types.Put{Item: item{"row": text("1")}}},
			"no item":  {Put: &types.Put{TableName: aws.String("ledger")}},
			"no key":   {Update: &types.Update{TableName: aws.String("ledger"), UpdateExpression: aws.String("SET a = b")}},
		} {
			began := time.Now()
			s, st := warmed(t, nil)
			st.answer = func(c stubCall) stubAnswer {
				return stubAnswer{code: "ValidationException", out: object{"message": "Supplied AttributeValue is empty"}}
			}
			err := s.Commit(t.Context(), &job{Of: dedupe.Lease{Key: request("k").Key, Token: newToken(), Fence: 7}}, nil, it)
			if err == nil || errors.Is(err, dedupe.ErrBusy) || errors.Is(err, dedupe.ErrLeaseLost) || len(st.calls) > 1 || time.Since(began) > 0 {
				t.Errorf("%s: %v after %d calls and %v", name, err, len(st.calls), time.Since(began))
			}
		}
	})
}
