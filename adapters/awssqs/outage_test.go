package awssqs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/sqsfake"
)

// The letters of a large outage are grouped and planned with a receive and a hand-back for ten of
// them. Time is virtual, so only requests are counted; ONCEQ_LARGE=1 measures 10,000 of them over a
// socket.
func TestLettersOfAnOutage(t *testing.T) {
	if os.Getenv("ONCEQ_LARGE") != "" {
		srv := sqsfake.Start(t, nil)
		c := newClient(srv.URL)
		outage(t, 10_000, srv, makeBroker(t, c, makeQueue(t, c, false, nil), nil), makeBroker(t, c, makeQueue(t, c, false, nil), nil))
		return
	}
	synctest.Test(t, func(t *testing.T) {
		srv := fake(t, nil)
		c := fakeClient(srv)
		outage(t, 2000, srv, makeBroker(t, c, makeQueue(t, c, false, nil), nil), makeBroker(t, c, makeQueue(t, c, false, nil), nil))
	})
}

// Of 40,000 letters any number can be replayed: those that the plan lists, and no others. What else
// the act meets it holds beyond the first 15,000 for longer at a time, or the beats would be more
// requests than all the rest.
func TestReplayOfFewOfManyLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fake(t, nil)
		c := fakeClient(srv)
		dead, orders := makeBroker(t, c, makeQueue(t, c, false, nil), nil), makeBroker(t, c, makeQueue(t, c, false, nil), nil)
		const n, most = 40_000, 5000
		put(t, n, dead)
		letters := must.Get(dlq.New(dead, nil))
		<-time.After(time.Second)
		plan, err := letters.PlanReplay(t.Context(), dlq.ReplayOptions{To: orders, Filter: dlq.Filter{Max: most}})
		if err != nil || len(plan.Letters) != most {
			t.Fatal(err)
		}
		srv.ResetLog()
		before := requests(srv)
		rep, err := letters.Replay(t.Context(), dlq.ReplayOptions{To: orders, Plan: plan})
		if err != nil || rep.Replayed != most || rep.Missing != 0 {
			t.Errorf("%v, %v", err, rep)
		}
		if used := requests(srv) - before; used > 2*n/10+most/5+5000 {
			t.Errorf("%d requests", used)
		}
		d, err := dead.Depth(t.Context())
		if err != nil || d.Visible+d.InFlight != n-most {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

func outage(t *testing.T, n int, srv *sqsfake.Server, dead, orders broker.Broker) {
	ls := put(t, n, dead)
	letters := must.Get(dlq.New(dead, nil))
	srv.ResetLog()
	before := requests(srv)
	began := time.Now()
	gs, err := letters.Group(t.Context(), dlq.Filter{})
	took, used := time.Since(began), requests(srv)-before
	if err != nil || len(gs) != 3 || gs[0].Count != n*8/10 || used > 4100 || took > 15*time.Second {
		t.Errorf("%v, %v; %d requests, %v", gs, err, used, took)
	}
	t.Logf("grouped with %d requests in %v\n%v", used, took, gs)

	before, began = requests(srv), time.Now()
	plan, err := letters.PlanReplay(t.Context(), dlq.ReplayOptions{To: orders, Filter: dlq.Filter{Group: gs[0].Group}})
	took, used = time.Since(began), requests(srv)-before
	if err != nil || len(plan.Letters) != n*8/10 || used > 4100 || took > 15*time.Second {
		t.Fatalf("%v; %d requests, %v", err, used, took)
	}
	b, err := json.Marshal(plan)
	if err != nil || len(b) > 4<<20 {
		t.Errorf("the plan has %d bytes, %v", len(b), err)
	}
	t.Logf("planned with %d requests in %v; %d bytes", used, took, len(b))

	// A letter comes after the plan. It stays, and so do those of the other groups.
	late := ls[5]
	late.Meta = late.Meta.Clone()
	late.Meta.ID, late.Meta.Key, late.Meta.Dead.Key = "late", "late", "late"
	if _, err := dead.Send(t.Context(), []broker.Outgoing{late}); err != nil {
		t.Fatal(err)
	}
	before, began = requests(srv), time.Now()
	rep, err := letters.Replay(t.Context(), dlq.ReplayOptions{To: orders, Plan: plan})
	took, used = time.Since(began), requests(srv)-before
	if err != nil || rep.Replayed != n*8/10 || rep.Missing != 0 {
		t.Errorf("%v, %v", err, rep)
	}
	t.Logf("replayed with %d requests in %v: %v", used, took, rep)
	d, err := dead.(broker.Depther).Depth(t.Context())
	if err != nil || d.Visible+d.InFlight != int64(n*2/10+1) {
		t.Errorf("%+v, %v", d, err)
	}
}

// put puts n letters of three kinds of failures.
func put(t *testing.T, n int, dead broker.Broker) []broker.Outgoing {
	errs := []struct{ class, text string }{
		{"timeout", `Post "https://bank/charges/%d": context deadline exceeded`},
		{"timeout", "dial tcp 10.0.0.7:%d: i/o timeout"},
		{"permanent", "the bank refuses: 402 card expired, order %d"},
	}
	var ls []broker.Outgoing
	for i := range n {
		e := errs[min(i%10, 2)]
		key := fmt.Sprintf("0198c1f2-7d3a-7000-8000-%012d", i)
		ls = append(ls, broker.Outgoing{Body: fmt.Appendf(nil, `{"order":%d}`, i), Meta: &broker.Meta{
			ID: "j-" + key, Key: key, Type: "charge",
			Dead: &broker.Letter{
				Fence: uint64(i + 1), Class: e.class, LastErr: fmt.Sprintf(e.text, i+1000), Attempts: 3,
				Source: "orders", Scope: "orders:charge", Key: key, At: time.Now().Add(-time.Minute),
			},
		}})
	}
	for ten := range slices.Chunk(ls, 10) {
		if _, err := dead.Send(t.Context(), ten); err != nil {
			t.Fatal(err)
		}
	}
	return ls
}

func requests(srv *sqsfake.Server) (n int) {
	for _, m := range srv.Counts() {
		n += m
	}
	return n
}
