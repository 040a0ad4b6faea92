package webonceq

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// The rule: who sees some queues does not learn how many records a table has that queues share: not
// by the price of a list, nor by what is listed, whatever the address asks for.
func TestSizeOfSharedTable(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All, "invoices")}).usual()
	n.card("invoices", "w-7/1", control.WorkerStatus{Scope: "bill", Types: []string{"send"}})
	must(n.store.Claim(t.Context(), []dedupe.ClaimRequest{{Key: dedupe.Key{Scope: "bill", Key: "mine"}, Token: dedupe.Token{9}, TTL: time.Minute, Owner: "w-7/1"}}))
	for _, queues := range [][]string{{"invoices"}, nil} {
		n.page.o.Access = who("ana", All, queues...)
		for _, path := range []string{"/keys?queue=invoices&status=done", "/keys?queue=invoices&status=claimed", "/keys?queue=invoices&status=done&scope=shop%3Acharge"} {
			if body := n.get(path).Body.String(); strings.Contains(body, "about ") != (queues == nil) || !strings.Contains(body, "no index answers this") {
				t.Errorf("%s: %v %s", path, queues, body)
			}
		}
	}
	n.page.o.Access = who("ana", All, "invoices")
	for _, f := range []url.Values{{"status": {"claimed"}}, {"status": {"done"}}, {"status": {"failed"}, "scope": {"shop:charge"}, "after-scope": {"shop"}}} {
		f.Set("queue", "invoices")
		body := n.post("/keys", f).Body.String()
		if strings.Contains(body, "order-") || strings.Contains(body, "done-1") || strings.Contains(body, ">mine<") != (f.Get("status") == "claimed") {
			t.Errorf("%v: %s", f, body)
		}
	}
}

// The rule: a letter that names a record of another queue does not tell how that record is.
func TestLetterOfAnothersRecord(t *testing.T) {
	n := newNight(t, nil).usual()
	n.card("orders", "w-1/1", control.WorkerStatus{Scope: "shop", Types: []string{"charge"}})
	k := dedupe.Key{Scope: "bill:send", Key: "secret"}
	c := must(n.store.Claim(t.Context(), []dedupe.ClaimRequest{{Key: k, Token: dedupe.Token{9}, TTL: time.Minute, Owner: "w-7/1"}}))[0]
	must(n.store.Settle(t.Context(), []dedupe.Settlement{{Key: k, Token: c.Lease.Token, To: dedupe.Done}}))
	must(n.dead.Send(t.Context(), []broker.Outgoing{{Body: []byte("{}"), Meta: &broker.Meta{ID: "forged", Type: "charge", Key: "secret", Created: time.Now(), Dead: &broker.Letter{
		Fence: 1, Class: "forged", LastErr: "x", Attempts: 1, Source: "shop:orders", Scope: k.Scope, Key: k.Key, At: time.Now(),
	}}}}))
	for _, queues := range [][]string{{"orders"}, nil} {
		n.open(&Options{Access: who("ana", All, queues...)})
		n.waitLetters()
		if body := n.get("/q/orders/letters/" + n.groupOf("forged")).Body.String(); strings.Contains(body, "done now") != (queues == nil) {
			t.Errorf("%v: %s", queues, body)
		}
		if body := n.get("/q/orders/letters/" + n.groupOf("timeout")).Body.String(); strings.Count(body, "failed now") != 5 {
			t.Errorf("the letters of his own queue, %v: %s", queues, body)
		}
	}
}

// The rule: the audit has a queue's name as its workers have it. Who sees a target of that name
// does not read the acts of another one that is known so, such as the one that was there before it.
func TestActsOfOneKnownSo(t *testing.T) {
	n := newNight(t, nil)
	n.ops = must(ops.New([]ops.Target{{Name: "orders", Known: "orders-2", Queue: n.orders, Store: n.store}, {Name: "old", Known: "orders", Store: n.store}}, nil))
	n.open(nil)
	for queue, reason := range map[string]string{"orders": "mine", "old": "the vault burns"} {
		must(n.ops.As("zoe").Pause(t.Context(), control.Rule{Queue: queue, Until: time.Now().Add(time.Hour), Reason: reason}, unfollowed))
	}
	n.page.o.Access = who("ana", All, "orders")
	for _, path := range []string{"/audit", "/audit?queue=orders", "/api/audit.json", "/q/orders", "/api/queues.json"} {
		if body := n.get(path).Body.String(); strings.Contains(body, "vault") || !strings.Contains(body, "mine") {
			t.Errorf("%s: %s", path, body)
		}
	}
}

// The rule: the keys of a queue are its own, though its store has those of others, and each key in
// a list of all leads to its queue, where its letter is. A queue whose scopes nobody knows hides
// nothing.
func TestKeysOfAQueue(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	n.card("orders", "w-1/1", control.WorkerStatus{Scope: "shop", Types: []string{"charge"}})
	n.card("invoices", "w-7/1", control.WorkerStatus{Scope: "bill", Types: []string{"send"}})
	k := dedupe.Key{Scope: "bill:send", Key: "bill-1"}
	c := must(n.store.Claim(t.Context(), []dedupe.ClaimRequest{{Key: k, Token: dedupe.Token{9}, TTL: time.Minute, Owner: "w-7/1"}}))[0]
	must(n.store.Settle(t.Context(), []dedupe.Settlement{{Key: k, Token: c.Lease.Token, To: dedupe.Failed}}))
	own, other := "/key?key=bill-1&amp;queue=invoices&amp;scope=bill%3Asend", "/key?key=order-1&amp;queue=orders&amp;scope=shop%3Acharge"
	for query, want := range map[string][2]bool{"": {true, true}, "&queue=": {true, true}, "&queue=invoices": {true, false}, "&queue=orders": {false, true}} {
		body := n.get("/keys?status=failed" + query).Body.String()
		for i, link := range []string{own, other} { // of a key under its queue, or not at all
			key, _, _ := strings.Cut(link, ";")
			if strings.Contains(body, key) != want[i] || strings.Contains(body, link) != want[i] {
				t.Errorf("%s: %s, want %v: %s", query, link, want[i], body)
			}
		}
	}
	n.ops = must(ops.New([]ops.Target{{Name: "orders", Queue: n.orders, Store: n.store}, {Name: "mails", Queue: n.orders, Store: n.store}}, nil))
	n.open(&Options{Access: who("ana", All)})
	if body := n.get("/keys?status=failed&queue=mails").Body.String(); strings.Count(body, "queue=mails") < 6 {
		t.Errorf("of a queue without scopes: %s", body)
	}
}

// The rule: a link of the program's leads to a server by https alone, tells it nothing of the page,
// and a key in it stays within its place.
func TestLinks(t *testing.T) {
	n := newNight(t, nil)
	n.fail(`a"b&c=/../d`, "timeout", "x", "{}")
	n.ops = must(ops.New([]ops.Target{{Name: "orders", Queue: n.orders, DeadLetters: n.dead, Store: n.store, Scopes: []string{"shop:charge"}}}, &ops.Options{Links: map[string]string{
		"logs": "https://logs.example/?q={key}", "script": "javascript:alert({key})", "plain": "http://plain.example/{key}", "data": "data:text/html,{key}", "bare": "//bare.example/{key}",
	}}))
	n.open(&Options{Access: who("ana", All)})
	body := n.get("/key?queue=orders&scope=shop%3Acharge&key=" + url.QueryEscape(`a"b&c=/../d`)).Body.String()
	if want := `href="https://logs.example/?q=a%22b%26c%3D%2F..%2Fd" rel="noopener noreferrer"`; !strings.Contains(body, want) || strings.Count(body, "noopener") != 1 {
		t.Errorf("want %s alone: %s", want, body)
	}
}
