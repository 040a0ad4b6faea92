package dynamostore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
)

// TestLostClaim: the claim was written and its answer lost. The SDK sends the same again, which
// finds its own token, and wins at once, the same claim.
func TestLostClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, answer := range map[string]stubAnswer{"reset": {lost: errReset}, "silence": {silent: true}, "500": failing("InternalServerError", 500)} {
			table := &oneItem{tb: t}
			s, st := warmed(t, nil)
			st.answer = func(c stubCall) stubAnswer {
				a := table.answer(c)
				if c.n == 1 {
					return answer
				}
				return a
			}
			q := request("k")
			began := time.Now()
			c := claimAll(t, s, q)[0]
			fence := fieldOf(written(st.calls[0]), "fence")
			if c.Outcome != dedupe.Won || !c.Fresh || strconv.FormatUint(c.Lease.Fence, 10) != fence || fieldOf(table.item, "fence") != fence {
				t.Errorf("%s: answered %+v, want the claim with fence %s", name, c, fence)
			}
			if took := time.Since(began); took > 11*time.Second || len(st.of("PutItem")) != 3 {
				t.Errorf("%s: it took %v and %d writes, want 3", name, took, len(st.of("PutItem")))
			}
		}
	})
}

// TestRepeats: what goes away by itself is repeated within the call's time, and not beyond it.
func TestRepeats(t *testing.T) {
	calls := map[string]func(ctx context.Context, s *Store) error{
		"Claim": func(ctx context.Context, s *Store) error {
			cs, err := s.Claim(ctx, []dedupe.ClaimRequest{request("k")})
			if err != nil {
				return err
			}
			return cs[0].Err
		},
		"Renew": func(ctx context.Context, s *Store) error {
			rs, err := s.Renew(ctx, []dedupe.Renewal{{Key: request("k").Key, Token: newToken(), TTL: time.Minute}})
			if err != nil {
				return err
			}
			return rs[0].Err
		},
		"Settle": func(ctx context.Context, s *Store) error {
			as, err := s.Settle(ctx, []dedupe.Settlement{{Key: request("k").Key, Token: newToken(), To: dedupe.Done}})
			if err != nil {
				return err
			}
			return as[0].Err
		},
		"Commit": func(ctx context.Context, s *Store) error {
			return s.Commit(ctx, &job{Of: dedupe.Lease{Key: request("k").Key, Token: newToken(), Fence: 1}}, nil)
		},
	}
	for name, answer := range map[string]stubAnswer{
		"throttled":        failing("ThrottlingException", 400),
		"over its rate":    failing("ProvisionedThroughputExceededException", 400),
		"over the account": failing("RequestLimitExceeded", 400),
		"500":              failing("InternalServerError", 500),
		"503":              failing("ServiceUnavailable", 503),
		"reset":            {lost: errReset},
		"silence":          {silent: true},
	} {
		for call, do := range calls {
			synctest.Test(t, func(t *testing.T) {
				s, st := warmed(t, func(c stubCall) stubAnswer {
					if c.n <= 2 {
						return answer
					}
					return applied
				})
				began := time.Now()
				if err := do(within(t, 5*time.Second), s); err != nil {
					t.Errorf("%s, twice %s: %v", call, name, err)
				}
				if took := time.Since(began); took > 4*time.Second || len(st.calls) != 3 {
					t.Errorf("%s, twice %s: %v and %d calls, want 3", call, name, took, len(st.calls))
				}

				s, st = warmed(t, func(stubCall) stubAnswer { return answer })
				began = time.Now()
				err := do(within(t, 5*time.Second), s)
				if took := time.Since(began); err == nil || took > 5*time.Second || took < 2*time.Second {
					t.Errorf("%s, for ever %s: %v after %v; want an error before the call's 5 s are over, and not at once", call, name, err, took)
				}
				if took := time.Since(began); took == 5*time.Second && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, for ever %s: %v, want the context's error", call, name, err)
				}
				if errors.Is(err, dedupe.ErrBusy) || errors.Is(err, dedupe.ErrLeaseLost) {
					t.Errorf("%s, for ever %s: %v, which tells the record's state", call, name, err)
				}
				if n := len(st.calls); n < 3 || n > 12 {
					t.Errorf("%s, for ever %s: %d calls", call, name, n)
				}
			})
		}
	}
}

// TestRepeatsEnd: a call whose context never ends is answered all the same.
func TestRepeatsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := stubbed(t, func(stubCall) stubAnswer { return failing("InternalServerError", 500) })
		began := time.Now()
		_, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("k")})
		if took := time.Since(began); err == nil || took > 2*time.Minute || took < 10*time.Second || len(st.calls) != maxTries {
			t.Errorf("%v after %v and %d calls", err, took, len(st.calls))
		}
	})
}

// TestOneOfABatch: an entry that has no answer does not take those of its neighbours. When none has
// one, nothing is known.
func TestOneOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad map[string]bool
		s, _ := stubbed(t, func(c stubCall) stubAnswer {
			it, _ := c.in["Item"].(object)
			if it == nil {
				it, _ = c.in["Key"].(object)
			}
			if k, _ := it["key"].(object)["S"].(string); bad[k] {
				return failing("ThrottlingException", 400)
			}
			return applied
		})
		qs := []dedupe.ClaimRequest{request("a"), request("b"), request("c")}
		for name, ctx := range map[string]func() context.Context{
			"for 5 s":            func() context.Context { return within(t, 5*time.Second) },
			"as often as it may": t.Context,
		} {
			bad = map[string]bool{"a": true}
			cs, err := s.Claim(ctx(), qs)
			if err != nil || cs[1].Outcome != dedupe.Won || cs[2].Outcome != dedupe.Won || cs[0].Err == nil || cs[0].Outcome != 0 {
				t.Errorf("one was tried %s: %+v, %v", name, cs, err)
			}
			bad = map[string]bool{"a": true, "b": true, "c": true}
			if cs, err := s.Claim(ctx(), qs); err == nil || cs != nil {
				t.Errorf("all were tried %s: %+v, %v; want an error of the whole call", name, cs, err)
			}
		}
	})
}

// TestConflicts: a transaction that is being committed holds the item. A plain write waits for
// milliseconds, then it is busy; a joined settlement waits as long as the call may.
func TestConflicts(t *testing.T) {
	conflict := failing("TransactionConflictException", 400)
	synctest.Test(t, func(t *testing.T) {
		k := request("k").Key
		for _, n := range []int{3, 1000} {
			for name, do := range map[string]func(ctx context.Context, s *Store) error{
				"Claim": func(ctx context.Context, s *Store) error {
					cs, err := s.Claim(ctx, []dedupe.ClaimRequest{request("k")})
					return errors.Join(err, cs[0].Err)
				},
				"Renew": func(ctx context.Context, s *Store) error {
					rs, err := s.Renew(ctx, []dedupe.Renewal{{Key: k, Token: newToken(), TTL: time.Minute}})
					return errors.Join(err, rs[0].Err)
				},
				"Settle": func(ctx context.Context, s *Store) error {
					as, err := s.Settle(ctx, []dedupe.Settlement{{Key: k, Token: newToken(), To: dedupe.Done}})
					return errors.Join(err, as[0].Err)
				},
			} {
				s, _ := warmed(t, func(c stubCall) stubAnswer {
					if c.n <= n {
						return conflict
					}
					return applied
				})
				began := time.Now()
				err := do(within(t, 5*time.Second), s)
				if took := time.Since(began); (n == 3) != (err == nil) || n != 3 && !errors.Is(err, dedupe.ErrBusy) || took > 300*time.Millisecond {
					t.Errorf("%s, %d conflicts: %v after %v", name, n, err, took)
				}
			}
		}
		for _, n := range []int{12, 1000} {
			s, _ := warmed(t, func(c stubCall) stubAnswer {
				if c.n <= n {
					return conflict
				}
				return applied
			})
			began := time.Now()
			as, err := s.Settle(within(t, 5*time.Second), []dedupe.Settlement{{Key: k, Token: newToken(), To: dedupe.Released, Joined: true}})
			if err = errors.Join(err, as[0].Err); (n == 12) != (err == nil) || n != 12 && (!errors.Is(err, dedupe.ErrBusy) || time.Since(began) < 4*time.Second) {
				t.Errorf("joined, %d conflicts: %v after %v", n, err, time.Since(began))
			}
		}
	})
}

// reasons is a transaction that was cancelled for these reasons, by place.
func reasons(rs ...any) stubAnswer {
	var list []object
	for _, r := range rs {
		switch r := r.(type) {
		case string:
			code, message, _ := strings.Cut(r, ": ")
			list = append(list, object{"Code": code, "Message": message})
		case object:
			list = append(list, object{"Code": "ConditionalCheckFailed", "Message": "The conditional request failed", "Item": r})
		}
	}
	return stubAnswer{code: "TransactionCanceledException", out: object{"CancellationReasons": list}}
}

// TestCommitReasons: what each reason for which DynamoDB cancels a transaction means. Ours is the
// last.
func TestCommitReasons(t *testing.T) {
	lease := dedupe.Lease{Key: request("k").Key, Token: newToken(), Fence: 7}
	ledger := "ledger"
	items := []types.TransactWriteItem{line(ledger, "1"), line(ledger, "2")}
	record := func(token dedupe.Token, status string, more object) object {
		it := object{
			"key": object{"S": "k"}, "scope": object{"S": "orders"}, "status": object{"S": status}, "fence": object{"N": "7"}, "version": object{"N": "3"},
			"token": object{"S": token.Hex()}, "attempt": object{"N": "1"}, "policy": object{"S": "rerun"},
		}
		if status != "claimed" && status != "parked" {
			it["expires_at"] = object{"N": "4000000000"}
		}
		maps.Copy(it, more)
		return it
	}
	const none = "None"
	id := (&commit{lease: lease, items: items}).identify()
	for name, c := range map[string]struct {
		answers []stubAnswer // the last one for ever
		isNil   bool
		want    error
		index   int // of the CommitError; -1 none
		text    string
		commits int
		atLeast time.Duration
	}{
		"written":                   {answers: []stubAnswer{applied}, isNil: true, index: -1, commits: 1},
		"written, the answer lost":  {answers: []stubAnswer{{lost: errReset}, applied}, isNil: true, index: -1, commits: 2},
		"in progress":               {answers: []stubAnswer{failing("TransactionInProgressException", 400), applied}, isNil: true, index: -1, commits: 2},
		"a conflict, then written":  {answers: []stubAnswer{reasons(none, none, "TransactionConflict"), reasons("TransactionConflict", none, none), applied}, isNil: true, index: -1, commits: 3},
		"throttled within":          {answers: []stubAnswer{reasons("ThrottlingError", none, none), reasons(none, "ProvisionedThroughputExceeded", none), applied}, isNil: true, index: -1, commits: 3},
		"a conflict for ever":       {answers: []stubAnswer{reasons(none, none, "TransactionConflict")}, want: dedupe.ErrBusy, index: -1, atLeast: 4 * time.Second},
		"done by the same":          {answers: []stubAnswer{reasons("ConditionalCheckFailed", "ConditionalCheckFailed", record(lease.Token, "done", object{"commit": object{"S": id}}))}, isNil: true, index: -1, commits: 1},
		"done by others":            {answers: []stubAnswer{reasons(none, none, record(lease.Token, "done", object{"commit": object{"S": "other"}}))}, want: dedupe.ErrLeaseLost, index: -1, text: "completed before", commits: 1},
		"done without a Commit":     {answers: []stubAnswer{reasons(none, none, record(lease.Token, "done", nil))}, want: dedupe.ErrLeaseLost, index: -1, text: "completed before", commits: 1},
		"released":                  {answers: []stubAnswer{reasons(none, none, record(lease.Token, "released", nil))}, want: dedupe.ErrLeaseLost, index: -1, text: "released already", commits: 1},
		"another's":                 {answers: []stubAnswer{reasons("ConditionalCheckFailed", none, record(newToken(), "claimed", nil))}, want: dedupe.ErrLeaseLost, index: -1, text: "claimed anew", commits: 1},
		"another's, done":           {answers: []stubAnswer{reasons(none, none, record(newToken(), "done", object{"commit": object{"S": id}}))}, want: dedupe.ErrLeaseLost, index: -1, text: "claimed anew", commits: 1},
		"gone":                      {answers: []stubAnswer{reasons(none, none, "ConditionalCheckFailed")}, want: dedupe.ErrLeaseLost, index: -1, text: "its record is gone", commits: 1},
		"a condition of the user's": {answers: []stubAnswer{reasons(none, "ConditionalCheckFailed", none)}, index: 1, text: "item 1: ConditionalCheckFailed", commits: 1},
		"a conflict beside a condition of the user's": {answers: []stubAnswer{reasons("TransactionConflict", "ConditionalCheckFailed", none)}, index: 1, text: "item 1: ConditionalCheckFailed", commits: 1},
		// What an earlier try may have written, only the completion tells: while it is held, the
		// user's conditions say nothing.
		"a condition of the user's, conflicts":             {answers: []stubAnswer{reasons("ConditionalCheckFailed", none, "TransactionConflict"), reasons("ConditionalCheckFailed", none, none)}, index: 0, commits: 2},
		"a condition of the user's, then done by the same": {answers: []stubAnswer{reasons("ConditionalCheckFailed", none, "TransactionConflict"), reasons("ConditionalCheckFailed", none, record(lease.Token, "done", object{"commit": object{"S": id}}))}, isNil: true, index: -1, commits: 2},
		"a condition of the user's, for ever":              {answers: []stubAnswer{reasons("ConditionalCheckFailed", none, "TransactionConflict")}, want: dedupe.ErrBusy, index: -1, atLeast: 4 * time.Second},
		"a table of the user's is not there":               {answers: []stubAnswer{failing("ResourceNotFoundException", 400)}, index: -1, text: "the tables of all items", commits: 1},
		"an item of the user's is too large":               {answers: []stubAnswer{{code: "ValidationException", out: object{"message": "Item size has exceeded the maximum allowed size"}}}, index: -1, text: "one of the items would have more than 409600 bytes", commits: 2},
		"an invalid item of the user's":                    {answers: []stubAnswer{reasons("ValidationError", none, none)}, index: 0, text: "ValidationError", commits: 1},
		"no room":                                          {answers: []stubAnswer{reasons(none, none, "ValidationError: Item size to update has exceeded the maximum allowed size")}, want: dedupe.ErrResultSize, index: -1, commits: 2},
		"no room, but for the result":                      {answers: []stubAnswer{reasons(none, none, "ValidationError: Item size to update has exceeded the maximum allowed size"), applied}, isNil: true, index: -1, commits: 2},
		"an invalid completion":                            {answers: []stubAnswer{reasons(none, none, "ValidationError: what is this")}, index: -1, text: "TransactionCanceled", commits: 1},
		"no rights":                                        {answers: []stubAnswer{failing("AccessDeniedException", 400)}, index: -1, text: "AccessDenied", commits: 1},
		"no reasons":                                       {answers: []stubAnswer{failing("TransactionCanceledException", 400)}, index: -1, text: "TransactionCanceled", commits: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			answers := c.answers
			s, st := stubbed(t, func(c stubCall) stubAnswer {
				if c.op != "TransactWriteItems" {
					return applied
				}
				return answers[min(c.n, len(answers))-1]
			})
			j := &job{Of: lease}
			began := time.Now()
			err := s.Commit(within(t, 5*time.Second), j, nil, items...)
			ce := (*CommitError)(nil)
			switch {
			case c.isNil != (err == nil), c.want != nil && !errors.Is(err, c.want), err != nil && !strings.Contains(err.Error(), c.text):
				t.Errorf("%s: %v; want %v with %q", name, err, c.want, c.text)
			case errors.As(err, &ce) != (c.index >= 0), ce != nil && ce.Index != c.index:
				t.Errorf("%s: %v; want a CommitError of item %d", name, err, c.index)
			case ce != nil && !errors.As(err, new(*types.TransactionCanceledException)):
				t.Errorf("%s: %v; the SDK's error is out of reach", name, err)
			case ce != nil && errors.Is(err, dedupe.ErrLeaseLost):
				t.Errorf("%s: %v is no lost lease", name, err)
			case !j.Joined():
				t.Errorf("%s: not joined", name)
			case c.commits > 0 && len(st.of("TransactWriteItems")) != c.commits:
				t.Errorf("%s: %d transactions, want %d", name, len(st.of("TransactWriteItems")), c.commits)
			case time.Since(began) < c.atLeast, time.Since(began) > 5*time.Second:
				t.Errorf("%s: it took %v", name, time.Since(began))
			}
		})
	}
}

// TestCommitWithoutEnd: a call whose context has no end gives up on a conflict all the same, and
// one whose context has ended says that the outcome is not known.
func TestCommitWithoutEnd(t *testing.T) {
	lease := dedupe.Lease{Key: request("k").Key, Token: newToken(), Fence: 7}
	synctest.Test(t, func(t *testing.T) {
		s, st := stubbed(t, func(c stubCall) stubAnswer {
			if c.op != "TransactWriteItems" || c.n > 2*patientTries {
				return applied
			}
			return reasons("TransactionConflict", "None")
		})
		err := s.Commit(context.Background(), &job{Of: lease}, nil, line("ledger", "1"))
		if n := len(st.of("TransactWriteItems")); !errors.Is(err, dedupe.ErrBusy) || n != patientTries {
			t.Errorf("%d transactions, %v; want ErrBusy after %d", n, err, patientTries)
		}
		ctx, cancel := context.WithCancel(t.Context())
		s, _ = stubbed(t, func(c stubCall) stubAnswer {
			if c.op == "TransactWriteItems" {
				cancel()
				return stubAnswer{lost: errReset}
			}
			return applied
		})
		err = s.Commit(ctx, &job{Of: lease}, nil, line("ledger", "1"))
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the outcome is unknown") {
			t.Errorf("the context has ended: %v", err)
		}
	})
}

// TestCommitToken: repeats of a Commit have one ClientRequestToken, with other items another, and
// it is what DynamoDB takes.
func TestCommitToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := stubbed(t, func(c stubCall) stubAnswer {
			if c.op == "TransactWriteItems" && c.n == 1 {
				return stubAnswer{lost: errReset}
			}
			return applied
		})
		j := &job{Of: dedupe.Lease{Key: request("k").Key, Token: newToken(), Fence: 7}}
		for _, row := range []string{"1", "2"} {
			if err := s.Commit(t.Context(), j, nil, line("ledger", row)); err != nil {
				t.Fatal(err)
			}
		}
		var tokens []string
		for _, c := range st.of("TransactWriteItems") {
			tokens = append(tokens, c.in["ClientRequestToken"].(string))
		}
		if len(tokens) != 3 || tokens[0] != tokens[1] || tokens[1] == tokens[2] || len(tokens[0]) != 32 {
			t.Errorf("the tokens are %q", tokens)
		}
		if slices.Contains(tokens, j.Of.Token.Hex()) {
			t.Error("a token is the claim's own: other items under it would be a mismatch for ten minutes")
		}
	})
}
