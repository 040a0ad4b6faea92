// Package linear_test holds the stores to one order: whatever many callers do at once, and whatever
// answers are lost, there is an order of all calls in which each answer is that of the tables.
package linear_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	apiv1 "cloud.google.com/go/firestore/apiv1"
	"github.com/anishathalye/porcupine"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dynamostore"
	"github.com/onceq/onceq/dedupe/firestorestore"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/internal/storetest"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

var ops = flag.Int("ops", 0, "calls on each store; 0 = 1,000, and 100,000 in make proof")

// perKey is how many calls a key has: each key's history is looked at for itself, and what that
// costs grows quickly with its length.
const perKey = 50

// calls is how many of them are made on each store.
func calls(t *testing.T) int {
	const most = 100_000
	switch {
	case *ops > 0:
		return *ops
	case proof.Asked():
		return most
	}
	proof.Leave(t, "internal/tests/linear: 99,000 of 100,000 calls on each store")
	return 1000
}

// input is a call: a claim, a renewal or a settlement under token, or a read.
type input struct {
	key   int
	kind  string
	token dedupe.Token
	to    dedupe.Status
}

// output is what was answered; unknown = nothing.
type output struct {
	unknown bool
	outcome dedupe.Outcome
	status  dedupe.Status
	token   dedupe.Token
	fence   uint64
	lost    bool // ErrLeaseLost
}

// state is a record, as far as the calls depend on it.
type state struct {
	status  dedupe.Status
	token   dedupe.Token
	fence   uint64
	attempt int
	guessed bool // a claim without an answer has won: its fence is this or above
}

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// record is st while no lease and no retention ends.
func (st state) record() dedupe.Record {
	if st.status == 0 {
		return dedupe.Record{}
	}
	r := dedupe.Record{Status: st.status, Token: st.token, Fence: st.fence, Attempt: st.attempt}
	if st.status == dedupe.Claimed {
		r.LeaseUntil = now.Add(time.Hour)
	} else {
		r.Expires = now.Add(time.Hour)
	}
	return r
}

func of(r *dedupe.Record) state {
	return state{status: r.Status, token: r.Token, fence: r.Fence, attempt: r.Attempt}
}

// step is the tables' answer, and whether out may be it.
func step(from state, in input, out output) (bool, state) {
	if from.guessed && out.fence >= from.fence && (in.kind == "get" || from.token == in.token) {
		from.fence, from.guessed = out.fence, false
	}
	r, drawn := from.record(), false
	fits := true
	switch in.kind {
	case "claim":
		c, _ := machine.ApplyClaim(&r, &dedupe.ClaimRequest{Token: in.token, TTL: time.Hour}, now, func() uint64 {
			drawn = true
			return max(from.fence+1, out.fence)
		})
		fits = c.Outcome == out.outcome && (c.Outcome != dedupe.Won || r.Fence == out.fence)
	case "renew":
		fits = (machine.ApplyRenew(&r, &dedupe.Renewal{Token: in.token, TTL: time.Hour}, now) != nil) == out.lost
	case "settle":
		a, _ := machine.ApplySettle(&r, &dedupe.Settlement{Token: in.token, To: in.to, Retain: time.Hour}, now)
		fits = (a.Err != nil) == out.lost && a.Status == out.status
	default:
		fits = out.status == r.Status && out.token == r.Token && out.fence == r.Fence
	}
	to := of(&r)
	to.guessed = drawn && out.unknown || !drawn && from.guessed
	return out.unknown || fits, to
}

var model = porcupine.Model{
	Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
		by := map[int][]porcupine.Operation{}
		for _, o := range all {
			k := o.Input.(input).key
			by[k] = append(by[k], o)
		}
		for _, p := range by {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() any { return state{} },
	Step: func(from, in, out any) (bool, any) { return step(from.(state), in.(input), out.(output)) },
}

// ask makes a call and loses some answers: of calls that were made, and of calls that were not.
func ask(ctx context.Context, s dedupe.Store, scope string, in input, r *rand.Rand) (out output) {
	lost := r.Float64()
	if lost < 0.04 {
		return output{unknown: true}
	}
	k := dedupe.Key{Scope: scope, Key: fmt.Sprint("key-", in.key)}
	var err error
	switch in.kind {
	case "claim":
		var cs []dedupe.Claim
		if cs, err = s.Claim(ctx, []dedupe.ClaimRequest{{Key: k, Token: in.token, TTL: time.Hour}}); err == nil {
			out.outcome, out.fence, err = cs[0].Outcome, cs[0].Lease.Fence, cs[0].Err
		}
	case "renew":
		var as []dedupe.Renewed
		if as, err = s.Renew(ctx, []dedupe.Renewal{{Key: k, Token: in.token, TTL: time.Hour}}); err == nil {
			err = as[0].Err
		}
	case "settle":
		var as []dedupe.Settled
		if as, err = s.Settle(ctx, []dedupe.Settlement{{Key: k, Token: in.token, To: in.to, Retain: time.Hour}}); err == nil {
			out.status, err = as[0].Status, as[0].Err
		}
	default:
		var rs []*dedupe.Record
		if rs, err = s.Get(ctx, []dedupe.Key{k}); err == nil && rs[0] != nil {
			out.status, out.token, out.fence = rs[0].Status, rs[0].Token, rs[0].Fence
		}
	}
	out.lost = errors.Is(err, dedupe.ErrLeaseLost)
	if err != nil && !out.lost || lost < 0.08 {
		return output{unknown: true} // also ErrBusy: it wrote nothing, which unknown allows
	}
	return out
}

// play lets eight callers loose on a few keys at a time.
func play(t *testing.T, handles []dedupe.Store, most int) []porcupine.Operation {
	t.Helper()
	var clock atomic.Int64
	var mu sync.Mutex
	var history []porcupine.Operation
	seed := proof.Seed(t)
	var done atomic.Int64
	scope := storetest.Token().Hex()
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c)))
			held := map[int]dedupe.Token{}
			var again *input
			for {
				n := int(done.Add(1))
				if n > most {
					return
				}
				in := input{key: n/(4*perKey)*4 + r.IntN(4), kind: [...]string{"claim", "claim", "renew", "settle", "settle", "get"}[r.IntN(6)]}
				in.to = [...]dedupe.Status{dedupe.Released, dedupe.Released, dedupe.Released, dedupe.Done, dedupe.Failed}[r.IntN(5)]
				if _, has := held[in.key]; in.kind == "claim" && (!has || r.IntN(3) > 0) {
					held[in.key] = storetest.Token()
				}
				if in.token = held[in.key]; in.token == (dedupe.Token{}) {
					in.kind = "get"
				}
				if again != nil && again.key/4 == in.key/4 { // as a worker does
					in = *again
				}
				call := clock.Add(1)
				out := ask(t.Context(), handles[c%len(handles)], scope, in, r)
				back := clock.Add(1)
				again = nil
				if out.unknown {
					back = math.MaxInt64
					if r.IntN(2) == 0 {
						again = &in
					}
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: c, Input: in, Call: call, Output: out, Return: back})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}

func check(t *testing.T, most int, handles ...dedupe.Store) {
	t.Helper()
	history := play(t, handles, most)
	unknown, won := 0, 0
	for _, o := range history {
		if out := o.Output.(output); out.unknown {
			unknown++
		} else if out.outcome == dedupe.Won {
			won++
		}
	}
	if r := porcupine.CheckOperationsTimeout(model, history, 2*time.Minute); r != porcupine.Ok {
		t.Errorf("%d calls, %d of them without an answer: %s: no order of them explains the answers", len(history), unknown, r)
		for _, part := range model.Partition(history) {
			if porcupine.CheckOperationsTimeout(model, part, time.Minute) == porcupine.Ok {
				continue
			}
			slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
			for _, o := range part {
				t.Logf("%d to %d: %+v: %+v", o.Call, o.Return, o.Input, o.Output)
			}
		}
	}
	if won == 0 || unknown == 0 {
		t.Errorf("%d claims won, %d answers lost: the history tells nothing", won, unknown)
	}
	t.Logf("%d calls, %d claims won, %d answers lost", len(history), won, unknown)
}

// TestLinear: the calls on each store have an order in which every answer is that of the tables.
func TestLinear(t *testing.T) {
	most := calls(t)
	t.Run("memory", func(t *testing.T) {
		s, err := memstore.New(nil)
		must(t, err)
		check(t, most, s)
	})
	t.Run("sqlite", func(t *testing.T) {
		var handles []dedupe.Store
		path := filepath.Join(t.TempDir(), "keys.db")
		for range 2 {
			// No machine loses its power here, so nothing waits for the disk.
			db, err := sql.Open("sqlite", strings.Replace(sqlitestore.DSN(path), "_synchronous=FULL", "_synchronous=OFF", 1))
			must(t, err)
			t.Cleanup(func() { _ = db.Close() })
			s, err := sqlitestore.New(db, nil)
			must(t, err)
			t.Cleanup(func() { _ = s.Close() })
			must(t, s.Migrate(t.Context()))
			handles = append(handles, s)
		}
		check(t, most, handles...)
	})
	t.Run("postgres", func(t *testing.T) {
		s, err := pgstore.New(pgtest.Pool(t), nil)
		must(t, err)
		must(t, s.Migrate(t.Context()))
		check(t, most, s)
	})
	t.Run("dynamodb", func(t *testing.T) {
		db := testaws.NewDynamoDB(t)
		s, err := dynamostore.New(db.Client(t), db.TableName(t, "records"), nil)
		must(t, err)
		must(t, s.CreateTable(t.Context()))
		check(t, most, s)
	})
	t.Run("firestore", func(t *testing.T) {
		_, conn := firestorefake.Conn(t, &firestorefake.Options{Faults: []firestorefake.Fault{
			{Method: "BatchWrite", Rate: 0.03, Code: codes.Unavailable, Applied: true},
			{Method: "BatchWrite", Rate: 0.03, Code: codes.Internal, Entries: []int{0}},
			{Method: "BatchWrite", Rate: 0.03, Code: codes.Aborted, Entries: []int{0}},
		}})
		client, err := firestore.NewClient(t.Context(), "p", option.WithGRPCConn(conn))
		must(t, err)
		api, err := apiv1.NewClient(t.Context(), option.WithGRPCConn(conn))
		must(t, err)
		var handles []dedupe.Store
		for range 2 {
			s, err := firestorestore.New(client, api, "onceq", nil)
			must(t, err)
			handles = append(handles, s)
		}
		check(t, most, handles...)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestModelSees: the check finds what a broken store would answer.
func TestModelSees(t *testing.T) {
	a, b := storetest.Token(), storetest.Token()
	op := func(call, back int64, in input, out output) porcupine.Operation {
		return porcupine.Operation{Input: in, Call: call, Output: out, Return: back}
	}
	won := func(fence uint64) output { return output{outcome: dedupe.Won, fence: fence} }
	for name, c := range map[string]struct {
		history []porcupine.Operation
		want    bool
	}{
		"two winners":  {[]porcupine.Operation{op(1, 2, input{kind: "claim", token: a}, won(1)), op(3, 4, input{kind: "claim", token: b}, won(2))}, false},
		"a lost claim": {[]porcupine.Operation{op(1, math.MaxInt64, input{kind: "claim", token: a}, output{unknown: true}), op(3, 4, input{kind: "claim", token: b}, output{outcome: dedupe.InProgress})}, true},
		"a late done":  {[]porcupine.Operation{op(1, 2, input{kind: "claim", token: a}, won(1)), op(3, 4, input{kind: "settle", token: b, to: dedupe.Done}, output{status: dedupe.Done})}, false},
		"a fence that fell": {[]porcupine.Operation{
			op(1, 2, input{kind: "claim", token: a}, won(5)), op(3, 4, input{kind: "settle", token: a, to: dedupe.Released}, output{status: dedupe.Released}),
			op(5, 6, input{kind: "claim", token: b}, won(4)),
		}, false},
	} {
		if got := porcupine.CheckOperations(model, c.history); got != c.want {
			t.Errorf("%s: linearizable is %v", name, got)
		}
	}
}
