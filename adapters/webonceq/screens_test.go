package webonceq

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template/parse"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

// The rule: the script brings up to date what is on the screen, so each part is there in each state
// of its screen. One below a condition would not come before somebody loads the screen anew.
func TestPartsAreAlwaysThere(t *testing.T) {
	seen := 0
	var walk func(where string, n parse.Node, under bool)
	walk = func(where string, n parse.Node, under bool) {
		switch n := n.(type) {
		case *parse.ListNode:
			if n != nil {
				for _, x := range n.Nodes {
					walk(where, x, under)
				}
			}
		case *parse.TextNode:
			if strings.Contains(string(n.Text), "data-part") {
				if seen++; under {
					t.Errorf("%s has a part below a condition: %s", where, n.Text)
				}
			}
		case *parse.IfNode:
			walk(where, n.List, true)
			walk(where, n.ElseList, true)
		case *parse.RangeNode:
			walk(where, n.List, true)
		case *parse.WithNode:
			walk(where, n.List, under || n.Pipe.String() != ".Data") // which each screen has
		}
	}
	for _, x := range templates().Templates() {
		if x.Tree != nil {
			walk(x.Name(), x.Tree.Root, false)
		}
	}
	if seen < 15 {
		t.Errorf("there are %d parts", seen)
	}
}

var field = regexp.MustCompile(`<(input|select|textarea)\b[^>]*>`)

// The rule: a screen that loads itself anew, where there is no script, has no field, because what
// somebody types there would be lost.
func TestScreensThatReloadHaveNoField(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	rule := must(n.ops.Limit(t.Context(), control.Rule{Queue: "orders", Slots: 9, Until: time.Now().Add(time.Hour), Reason: "r"}, &ops.RuleOptions{Follow: -1})).Rules[0]
	reload := 0
	look := func(path string) string {
		body := n.get(path).Body.String()
		if strings.Contains(body, `http-equiv="refresh"`) {
			reload++
			for _, f := range field.FindAllString(body, -1) {
				if !strings.Contains(f, `type="hidden"`) {
					t.Errorf("%s loads itself anew, and has %s", path, f)
				}
			}
		}
		return body
	}
	look("/q/orders/letters") // amid its first pass, as a plan is amid being made
	look(n.post("/q/orders/plan", url.Values{"class": {"timeout"}}).Header().Get("Location"))
	for _, path := range n.screens() {
		body := look(path)
		// Nobody works, so it waits for its canary.
		if run := regexp.MustCompile(`/plans/\w+/run"`).FindString(body); run != "" {
			body = look(n.post(strings.Trim(run, `"`), url.Values{"reason": {"r"}, "canary": {"1"}}).Header().Get("Location"))
			if !strings.Contains(body, "Stop in order") || !strings.Contains(body, "End it") {
				t.Errorf("an act that runs: %s", body)
			}
		}
	}
	if reload < 2 {
		t.Errorf("%d screens load themselves, so this cannot fail", reload)
	}
	to := "/q/orders?end=" + rule.ID
	if body := look("/"); !strings.Contains(body, `href="`+to+`"`) {
		t.Errorf("the banner of the first screen leads to no form: %s", body)
	}
	if body := look(to); !strings.Contains(body, `<details class="end" open>`) {
		t.Errorf("the form to which it leads is shut: %s", body)
	}
	n.page.o.Access = who("ben", Look)
	if body := look("/q/orders"); !strings.Contains(body, "refresh") {
		t.Error("who looks only sees no news of a queue without a script")
	}
}

// The rule: a screen has the version that its stream tells while nothing changes, so nobody loads
// it twice. One that was made while the rules could not be read has another: it is loaded anew as
// soon as they can, although the stream's version is then the one that it told before.
func TestScreenHasTheVersionOfItsStream(t *testing.T) {
	n := newNight(t, &Options{Access: who("ana", All)}).usual()
	live := regexp.MustCompile(`data-live="([^"]+)" data-version="([^"]+)"`)
	a := &ask{r: httptest.NewRequest("GET", "/", nil), who: Access{Name: "ana", May: All}, ops: n.ops, page: n.page}
	topics := map[string]bool{}
	for _, path := range n.screens() {
		for { // the board may look anew meanwhile
			s := must(n.page.board.Look(t.Context()))
			m := live.FindStringSubmatch(n.get(path).Body.String())
			if must(n.page.board.Look(t.Context())).Number != s.Number {
				continue
			}
			if m != nil {
				kind, _, _ := strings.Cut(m[1], ":")
				topics[kind] = true
				if told := a.version(s, m[1], n.page.stateOf(a, m[1])); told != m[2] {
					t.Errorf("%s: its stream tells %s, and it has %s", path, told, m[2])
				}
			}
			break
		}
	}
	if len(topics) < 3 {
		t.Errorf("topics are %v", topics)
	}
	rule := control.Rule{Queue: "orders", Until: time.Now().Add(time.Hour), Reason: "r"}
	if _, err := n.ops.Pause(t.Context(), rule, &ops.RuleOptions{Follow: -1}); err != nil {
		t.Fatal(err)
	}
	n.page.board.ReadRules(t.Context())
	v := a.view("plan", "")
	v.Live = "plan:x"
	made := func(s *ops.Snapshot) string {
		a.w = httptest.NewRecorder()
		a.frame(v, s)
		v.name = "trouble"
		a.show(http.StatusOK, v)
		return v.Version
	}
	known := *must(n.page.board.Look(t.Context()))
	unknown := known
	unknown.Queues = slices.Clone(known.Queues)
	unknown.Queues[0].Rules, unknown.Queues[0].Version = nil, 0
	if made(&known) == made(&unknown) {
		t.Error("a screen without its banners has the version of one with them")
	}
}

// The rule: a screen does not say that there is nothing where nobody knows.
func TestUnknownIsNotNothing(t *testing.T) {
	t.Parallel() // the store is asked for a while
	n := newNight(t, nil)
	s := &rig.Store{Store: n.store, T: t}
	s.Fails(errors.New(secret), onceqtest.Get, onceqtest.Claim)
	n.ops = must(ops.New([]ops.Target{{Name: "orders", Queue: n.orders, DeadLetters: n.dead, Store: s, Scopes: []string{"shop:charge"}}}, &ops.Options{By: "the program"}))
	n.open(&Options{Access: who("ana", All)})
	for path, wrong := range map[string]string{
		"/q/orders":                          "workers 0|No worker was seen|No card names|Nothing is paused",
		"/audit":                             "Nobody has acted",
		"/key?key=order-1":                   "never claimed",
		"/key?key=order-1&scope=shop:charge": "no record",
	} {
		if body := text(n.get(path).Body.String()); regexp.MustCompile(wrong).MatchString(body) {
			t.Errorf("%s: %s", path, body)
		}
	}
}
