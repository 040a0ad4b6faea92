package webonceq

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// ended waits for the end of an act.
func (n *night) ended(path string) ops.RunningAct {
	n.t.Helper()
	id := path[strings.LastIndexByte(path, '/')+1:]
	for {
		changed := n.page.running.Changed()
		x, ok := n.page.running.Act(id)
		if !ok {
			n.t.Fatalf("no act %s", path)
		}
		if !x.Ended.IsZero() {
			return x
		}
		<-changed
	}
}

// begun sends a form that begins something, and gives the address to which the browser goes.
func (n *night) begun(path string, form url.Values) string {
	n.t.Helper()
	w := n.post(path, form)
	if w.Code != http.StatusSeeOther {
		n.t.Fatalf("POST %s: %d %s", path, w.Code, text(w.Body.String()))
	}
	return w.Header().Get("Location")
}

// groupOf is the group of the letters whose class it is.
func (n *night) groupOf(class string) string {
	n.t.Helper()
	n.waitLetters()
	l := must(n.page.board.Letters("orders"))
	for i := range l.Groups {
		if l.Groups[i].Class == class {
			return l.Groups[i].Group.Group
		}
	}
	n.t.Fatalf("no group of class %s", class)
	return ""
}

// The night as its screens have it: groups, a plan, canaries that are done, the rest, the audit.
func TestNight(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	ran := make(chan string, 100)
	n.work(func(_ context.Context, j *onceq.Job) error {
		ran <- j.Key().Key
		return nil
	})
	group := n.groupOf("timeout")
	plan := n.planned("plan", group)
	if screen := text(n.get(plan).Body.String()); !strings.Contains(screen, "to send 5 reopen their failure 5 done already: removed 0") {
		t.Errorf("the plan: %s", screen)
	}
	act := n.begun(plan+"/run", url.Values{"reason": {"the bank is back"}, "canary": {"2"}, "ramp": {"on"}, "rate": {"1000"}})
	x := n.ended(act)
	if x.Err != nil || x.Sent != 5 || len(x.Batches) == 0 || x.Batches[0].Done != 2 || x.By != "ana" {
		t.Errorf("the act: %+v", x)
	}
	var keys []string
	for range 5 {
		keys = append(keys, <-ran)
	}
	if slices.Sort(keys); !slices.Equal(keys, []string{"order-1", "order-2", "order-3", "order-4", "order-5"}) {
		t.Errorf("ran %v", keys)
	}
	if screen := text(n.get(act).Body.String()); !strings.Contains(screen, "5 of 5 sent") || !strings.Contains(screen, "It has ended") {
		t.Errorf("the act's screen: %s", screen)
	}
	if screen := text(n.get("/audit").Body.String()); !strings.Contains(screen, "replay of orders by ana") || !strings.Contains(screen, "the bank is back") {
		t.Errorf("the audit: %s", screen)
	}
	if screen := text(n.get("/key?queue=orders&scope=shop%3Acharge&key=order-1").Body.String()); !strings.Contains(screen, "replay by ana") {
		t.Errorf("the key's time line does not have the replay: %s", screen)
	}
}

// The rule: the filter is the plan. The button of a list carries the number, and plans all of it.
func TestPlanOfAFilter(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	if screen := n.waitLetters(); !strings.Contains(screen, "Plan a replay of all 7") {
		t.Errorf("%s", text(screen))
	}
	screen := n.get("/q/orders/letters?class=timeout").Body.String()
	if !strings.Contains(screen, "Plan a replay of all 5") || !strings.Contains(screen, `name="class" value="timeout"`) {
		t.Errorf("%s", text(screen))
	}
	plan := n.made(n.begun("/q/orders/plan", url.Values{"class": {"timeout"}}))
	if screen := text(n.get(plan).Body.String()); !strings.Contains(screen, "class timeout to send 5") {
		t.Errorf("the plan: %s", screen)
	}
	plan = n.made(n.begun("/q/orders/plan", nil))
	if screen := text(n.get(plan).Body.String()); !strings.Contains(screen, "all letters to send 7") {
		t.Errorf("the plan: %s", screen)
	}
}

// The rule: a plan is its maker's. Another one can neither see nor run it, whatever he may.
func TestPlanOfSomebodyElse(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	plan := n.planned("plan", n.groupOf("timeout"))
	n.page.o.Access = who("ben", All)
	if w := n.get(plan); w.Code != http.StatusForbidden {
		t.Errorf("seen by another: %d", w.Code)
	}
	if w := n.post(plan+"/run", url.Values{"reason": {"x"}}); w.Code != http.StatusForbidden || len(n.page.running.Acts()) > 0 {
		t.Errorf("run by another: %d, %v", w.Code, n.page.running.Acts())
	}
	n.page.o.Access = who("ana", All)
	if w := n.get(plan); w.Code != 200 {
		t.Errorf("seen by its maker: %d", w.Code)
	}
}

// The rule: a plan is for one kind of act, so that the table knows what its address needs.
func TestPlanOfAnotherAct(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	group := n.groupOf("timeout")
	for kind, wrong := range map[string][]string{"plan": {"purge", "run-edited"}, "edit": {"run", "purge"}, "purge": {"run", "run-edited"}} {
		plan := n.planned(kind, group)
		for _, x := range wrong {
			if w := n.post(plan+"/"+x, url.Values{"reason": {"x"}, "number": {"5"}}); w.Code != http.StatusNotFound {
				t.Errorf("a plan of %s by %s: %d", kind, x, w.Code)
			}
		}
	}
	if as := n.page.running.Acts(); len(as) > 0 {
		t.Errorf("it ran: %v", as)
	}
}

// The rule: a plan is used once. Of two clicks at once one begins the act, and both lead to it, or
// the second is told that it begins.
func TestDoubleClick(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	plan := n.planned("plan", n.groupOf("timeout"))
	var all sync.WaitGroup
	codes := make([]int, 8)
	for i := range codes {
		all.Go(func() { codes[i] = n.post(plan+"/run", url.Values{"reason": {"x"}}).Code })
	}
	all.Wait()
	for _, code := range codes {
		if code != http.StatusSeeOther && code != http.StatusConflict {
			t.Errorf("answered %v", codes)
		}
	}
	as := n.page.running.Acts()
	if len(as) != 1 || !slices.Contains(codes, http.StatusSeeOther) {
		t.Fatalf("%d acts, answered %v", len(as), codes)
	}
	n.ended(as[0].ID)
	if got := n.begun(plan+"/run", url.Values{"reason": {"x"}}); got != "/acts/"+as[0].ID {
		t.Errorf("a later click leads to %s", got)
	}
	if d := must(n.orders.Depth(t.Context())); d.Visible != 5 {
		t.Errorf("%d were sent, want 5", d.Visible)
	}
	if got := n.acts(); len(got) != 1 {
		t.Errorf("the audit has %v", got)
	}
}

// A plan that is older than it may be is refused on its own screen. Nothing is done, and what was
// typed is still there.
func TestOldPlan(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	plan := n.planned("plan", n.groupOf("timeout"))
	x := n.page.plans.m[plan[strings.LastIndexByte(plan, '/')+1:]]
	x.replay.Made = x.replay.Made.Add(-dlq.PlanTTL)
	act := n.post(plan+"/run", url.Values{"reason": {"<b>why</b>"}, "rate": {"7"}})
	if act.Code == http.StatusSeeOther {
		if x := n.ended(act.Header().Get("Location")); x.Err == nil || x.Sent > 0 {
			t.Errorf("an old plan was run: %+v", x)
		}
	} else if body := act.Body.String(); act.Code != http.StatusConflict || !strings.Contains(body, `role="alert"`) || !strings.Contains(body, `value="&lt;b&gt;why&lt;/b&gt;"`) {
		t.Errorf("an old plan: %d %s", act.Code, body)
	}
	if d := must(n.orders.Depth(t.Context())); d.Visible != 0 {
		t.Errorf("%d were sent", d.Visible)
	}
}

// Each act that is refused is a 409 on its screen, with a sentence at its form, and the form still
// has what was typed.
func TestRefusalsStandAtTheButton(t *testing.T) {
	n := newNight(t, &Options{Title: "prod", Protected: true, Access: who("ana", All)}).usual()
	group := n.groupOf("timeout")
	plan := n.planned("plan", group)
	parked := url.Values{"queue": {"orders"}, "scope": {"shop:charge"}, "key": {"parked-1"}, "fence": {"1"}}
	for name, c := range map[string]struct {
		path, want string
		form       url.Values
	}{
		"no reason":        {"/q/orders/pause", "say why", url.Values{"for": {"1h"}, "profile": {"prod"}}},
		"no name":          {"/q/orders/pause", "the name of this installation", url.Values{"for": {"1h"}, "reason": {"typed text"}}},
		"another name":     {"/q/orders/limit", "the name of this installation", url.Values{"for": {"1h"}, "reason": {"typed text"}, "slots": {"3"}, "profile": {"Prod"}}},
		"no time":          {"/q/orders/pause", "for: want how long", url.Values{"reason": {"typed text"}, "profile": {"prod"}}},
		"too long":         {"/q/orders/pause", "for: want how long", url.Values{"for": {"721h"}, "reason": {"typed text"}, "profile": {"prod"}}},
		"no slots":         {"/q/orders/limit", "handlers: want a whole number from 1", url.Values{"for": {"1h"}, "reason": {"typed text"}, "slots": {"0"}, "profile": {"prod"}}},
		"a long reason":    {"/q/orders/limit", "256", url.Values{"for": {"1h"}, "reason": {strings.Repeat("typed text", 30)}, "slots": {"3"}, "profile": {"prod"}}},
		"a patch":          {"/q/orders/edit", "the patch is not JSON", url.Values{"group": {group}, "patch": {"{typed text"}}},
		"a patch's kind":   {"/q/orders/edit", "no JSON object", url.Values{"group": {group}, "patch": {`["typed text"]`}}},
		"a run for no why": {plan + "/run", "say why", url.Values{"profile": {"prod"}, "canary": {"4"}}},
		"canaries":         {plan + "/run", "canary: want a whole number", url.Values{"profile": {"prod"}, "reason": {"typed text"}, "canary": {"many"}}},
		"a rate":           {plan + "/run", "rate: want a whole number", url.Values{"profile": {"prod"}, "reason": {"typed text"}, "rate": {"-1"}}},
		"resolve":          {"/key/resolve", "want done or failed", with(parked, "profile", "prod", "reason", "typed text", "to", "released")},
		"another fence":    {"/key/resolve", "parked-1", with(parked, "profile", "prod", "reason", "typed text", "to", "done")},
		"forget a fence":   {"/key/forget", "parked-1", with(parked, "profile", "prod", "reason", "typed text")},
	} {
		t.Run(name, func(t *testing.T) {
			w := n.post(c.path, c.form)
			body := w.Body.String()
			_, said, _ := strings.Cut(body, `role="alert">`)
			said, _, _ = strings.Cut(said, "</p>")
			if w.Code != http.StatusConflict || !strings.Contains(said, c.want) {
				t.Errorf("%d %q, want %q", w.Code, said, c.want)
			}
			if strings.Contains(c.form.Encode(), "typed") && !strings.Contains(body, "typed text") {
				t.Errorf("what was typed is gone: %s", text(body))
			}
			if strings.Contains(body, "data-live") || strings.Contains(body, `http-equiv="refresh"`) {
				t.Error("the screen would be replaced, with what was typed")
			}
		})
	}
	for _, e := range n.acts() {
		if !strings.Contains(e, "typed text") { // those that the store refused have an entry with their error
			t.Errorf("the audit has %s", e)
		}
	}
}

func with(of url.Values, pairs ...string) url.Values {
	v := url.Values{}
	maps.Copy(v, of)
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

// A pause that the queue cannot pay, or canaries that nobody would run, are refused with the
// reason.
func TestPausedTypeMakesCanariesVacuous(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	n.begun("/q/orders/pause", url.Values{"type": {"charge"}, "for": {"1h"}, "reason": {"bank down"}})
	plan := n.planned("plan", n.groupOf("timeout"))
	if screen := text(n.get(plan).Body.String()); !strings.Contains(screen, "paused") {
		t.Errorf("the plan does not say that the type is paused: %s", screen)
	}
	if w := n.post(plan+"/run", url.Values{"reason": {"x"}, "canary": {"5"}}); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "paused") {
		t.Errorf("%d %s", w.Code, text(w.Body.String()))
	}
	if as := n.page.running.Acts(); len(as) > 0 {
		t.Errorf("it ran: %v", as)
	}
}

// Stop ends an act in order: it sends no letter more, and the others are in their queue.
func TestStop(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	hold := make(chan struct{})
	n.work(func(ctx context.Context, _ *onceq.Job) error {
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return nil
	})
	defer close(hold)
	plan := n.planned("plan", n.groupOf("timeout"))
	act := n.begun(plan+"/run", url.Values{"reason": {"x"}, "canary": {"2"}})
	id := act[strings.LastIndexByte(act, '/')+1:]
	for {
		changed := n.page.running.Changed()
		if x, _ := n.page.running.Act(id); x.Watched != nil && x.Sent == 2 {
			break
		}
		<-changed
	}
	screen := n.get(act).Body.String()
	if !strings.Contains(screen, act+"/stop") || strings.Contains(screen, act+"/step") {
		t.Errorf("the screen: %s", text(screen))
	}
	n.page.o.Access = who("ben", Look|Replay)
	n.begun(act+"/stop", nil)
	x := n.ended(act)
	if x.Sent != 2 || x.StoppedBy != "ben" {
		t.Errorf("%+v", x)
	}
	if d := must(n.dead.Depth(t.Context())); d.Visible+d.InFlight != 5 { // three of the plan, and two others
		t.Errorf("the dead letters are %+v, want 5", d)
	}
	if w := n.post(act+"/stop", nil); w.Code != http.StatusConflict {
		t.Errorf("stopped again: %d", w.Code)
	}
	if screen := text(n.get(act).Body.String()); !strings.Contains(screen, "Stopped in order by ben") || !strings.Contains(screen, "2 sent · 0 done") {
		t.Errorf("the screen: %s", screen)
	}
}

// No more acts run at once than the limit: one more is a 429 on its screen, and its plan is good
// later.
func TestMostActs(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)})
	var targets []ops.Target
	for i := range MaxActs + 1 {
		name := fmt.Sprint("q", i)
		live, dead := must(membroker.New(&membroker.Options{Name: name})), must(membroker.New(&membroker.Options{Name: name + "-dead"}))
		n.dead = dead
		n.fail(name+"-a", "timeout", "x", "{}")
		n.fail(name+"-b", "timeout", "x", "{}")
		letters := must(dlq.New(dead, &dlq.Options{Wait: 5 * time.Millisecond}))
		targets = append(targets, ops.Target{Name: name, Queue: live, DeadLetters: dead, Letters: letters, Store: n.store})
	}
	n.ops = must(ops.New(targets, nil))
	n.open(&Options{Access: who("ana", All)})
	run, first := "", ""
	for i := range MaxActs + 1 {
		plan := n.made(n.begun(fmt.Sprintf("/q/q%d/plan", i), url.Values{"class": {"timeout"}}))
		form := url.Values{"reason": {"x"}, "canary": {"1"}}
		if i == MaxActs {
			run = plan + "/run"
			if w := n.post(run, form); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), `role="alert"`) {
				t.Errorf("one more: %d", w.Code)
			}
			break
		}
		first = n.begun(plan+"/run", form)
	}
	n.begun(first+"/stop", nil)
	n.ended(first)
	n.begun(run, url.Values{"reason": {"x"}, "canary": {"1"}})
}

// Plans that are being made are bounded, too.
func TestMostPlans(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	group := n.groupOf("timeout")
	n.page.plans.mu.Lock()
	n.page.plans.making = MaxActs
	n.page.plans.mu.Unlock()
	if w := n.post("/q/orders/plan", url.Values{"group": {group}}); w.Code != http.StatusTooManyRequests {
		t.Errorf("answered %d", w.Code)
	}
	n.page.plans.mu.Lock()
	n.page.plans.making = 0
	n.page.plans.mu.Unlock()
	for range maxPlans + 3 {
		n.planned("plan", group)
	}
	if got := len(n.page.plans.m); got > maxPlans {
		t.Errorf("%d plans are kept", got)
	}
}

// An edit changes what the patch names, and the job that failed runs with it.
func TestEditedReplay(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	got := make(chan string, 10)
	n.work(func(_ context.Context, j *onceq.Job) error {
		got <- string(j.Message.Body)
		return nil
	})
	group := n.groupOf("permanent")
	plan := n.begun("/q/orders/edit", url.Values{"group": {group}, "patch": {`{"currency": "EUR"}`}})
	n.made(plan)
	if screen := text(n.get(plan).Body.String()); !strings.Contains(screen, `{ - "cents": 1 + "cents": 1, + "currency": "EUR" }`) {
		t.Errorf("the plan does not show what it makes: %s", screen)
	}
	n.ended(n.begun(plan+"/run-edited", url.Values{"reason": {"the currency was missing"}}))
	if body := <-got; body != `{"cents":1,"currency":"EUR"}` {
		t.Errorf("the job got %s", body)
	}
	for e, err := range n.ops.Audit(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)) {
		if err != nil || e.Detail["edit"] != `merge patch {"currency": "EUR"}` {
			t.Errorf("the audit has %+v, %v", e, err)
		}
	}
}

// A parked key is run again by its letter, and by nothing else; without one there is no button.
func TestParked(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	ran := make(chan string, 1)
	n.work(func(_ context.Context, j *onceq.Job) error {
		ran <- j.Key().Key
		return nil
	})
	key := url.Values{"queue": {"orders"}, "scope": {"shop:charge"}, "key": {"parked-1"}}
	screen := n.get("/key?" + key.Encode()).Body.String()
	if strings.Contains(screen, ">Run again<") || !strings.Contains(screen, "Its dead letter was not looked for yet") {
		t.Errorf("before the look: %s", text(screen))
	}
	screen = n.post("/key/look", key).Body.String()
	fence := regexp.MustCompile(`name="fence" value="(\d+)"`).FindStringSubmatch(screen)
	if !strings.Contains(screen, ">Run again<") || fence == nil {
		t.Fatalf("after the look: %s", text(screen))
	}
	plan := n.made(n.begun("/key/plan", with(key, "fence", fence[1])))
	if x := n.ended(n.begun(plan+"/run", url.Values{"reason": {"it had no effect"}})); x.Err != nil || x.Sent != 1 {
		t.Errorf("%+v", x)
	}
	if got := <-ran; got != "parked-1" {
		t.Errorf("%s ran", got)
	}
}

// A word on a key holds for the record that was shown: resolve and forget name its fence.
func TestResolveAndForget(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	key := url.Values{"queue": {"orders"}, "scope": {"shop:charge"}, "key": {"parked-1"}}
	of := func() *dedupe.Record {
		return must(n.store.Get(t.Context(), []dedupe.Key{{Scope: "shop:charge", Key: "parked-1"}}))[0]
	}
	fence := fmt.Sprint(of().Fence)
	n.begun("/key/resolve", with(key, "fence", fence, "to", "done", "reason", "the bank says paid"))
	if r := of(); r.Status != dedupe.Done {
		t.Errorf("it is %v", r.Status)
	}
	n.begun("/key/forget", with(key, "fence", fence, "reason", "a test's key"))
	if r := of(); r != nil {
		t.Errorf("it is %v", r)
	}
	if got := n.acts(); !slices.Equal(got, []string{"resolve by ana: the bank says paid", "forget by ana: a test's key"}) {
		t.Errorf("the audit has %v", got)
	}
}

// A purge asks for the number, gives each letter to Keep, and removes those of the plan alone.
func TestPurge(t *testing.T) {
	var kept []string
	var mu sync.Mutex
	n := newNight(t, &Options{Access: who("ana", All), Keep: func(e dlq.Entry) error {
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, e.Ref().Key)
		return nil
	}}).usual()
	plan := n.planned("purge", n.groupOf("timeout"))
	if w := n.post(plan+"/purge", url.Values{"reason": {"x"}, "number": {"4"}}); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "type 5, the number of letters") {
		t.Errorf("with another number: %d %s", w.Code, text(w.Body.String()))
	}
	if x := n.ended(n.begun(plan+"/purge", url.Values{"reason": {"a test's orders"}, "number": {"5"}})); x.Err != nil || x.Purged != 5 {
		t.Errorf("%+v", x)
	}
	if slices.Sort(kept); len(kept) != 5 || kept[0] != "order-1" {
		t.Errorf("kept %v", kept)
	}
	if d := must(n.dead.Depth(t.Context())); d.Visible != 2 {
		t.Errorf("%d letters are left, want 2", d.Visible)
	}
}

// A rule is ended by its id; the others stay.
func TestEndOneRule(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	n.begun("/q/orders/pause", url.Values{"type": {"charge"}, "for": {"1h"}, "reason": {"one"}})
	n.begun("/q/orders/pause", url.Values{"for": {"1h"}, "reason": {"two"}})
	rules := must(n.ops.Rules(t.Context(), "orders"))
	if len(rules) != 2 {
		t.Fatalf("%v", rules)
	}
	n.begun("/rules/"+rules[0].ID+"/end", url.Values{"queue": {"orders"}, "reason": {"over"}})
	left := must(n.ops.Rules(t.Context(), "orders"))
	if len(left) != 1 || left[0].ID != rules[1].ID {
		t.Errorf("left are %v, ended was %s", left, rules[0].ID)
	}
	if w := n.post("/rules/"+rules[0].ID+"/end", url.Values{"queue": {"orders"}, "reason": {"over"}}); w.Code != http.StatusNotFound {
		t.Errorf("ended again: %d", w.Code)
	}
}

// A body that is too large is refused before anything is done.
func TestLargeRequest(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)})
	if w := n.post("/q/orders/pause", url.Values{"for": {"1h"}, "reason": {strings.Repeat("x", MaxRequest)}}); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("answered %d", w.Code)
	}
}

// After Close nothing begins, and what ran has stopped.
func TestClose(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	group := n.groupOf("timeout")
	if err := n.page.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*httptest.ResponseRecorder{n.get("/"), n.post("/q/orders/plan", url.Values{"group": {group}})} {
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("answered %d", w.Code)
		}
	}
}
