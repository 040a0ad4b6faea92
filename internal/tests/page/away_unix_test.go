//go:build unix

package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/chromium"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/sqlitewriter"
	"github.com/onceq/onceq/internal/storecall"
	"github.com/onceq/onceq/internal/testserver"
)

// This file owns who goes away amid an act: the browser, and the process that serves the page.

// placeEnv makes this program serve the page of a place, until it is killed.
const placeEnv = "ONCEQ_PAGE_PLACE"

func TestMain(m *testing.M) {
	if text := os.Getenv(placeEnv); text != "" {
		ctx := child.Follow(context.Background())
		if err := serveAlone(ctx, text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := testserver.Together(8); err != nil { // they wait for each other's looks, and compute little
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func serveAlone(ctx context.Context, text string) error {
	var p place
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	w, _, err := p.open(ctx)
	if err != nil {
		return err
	}
	if os.Getenv(measureEnv) != "" {
		return measure(ctx, w)
	}
	_, h, err := handler(w.ops, nil)
	if err != nil {
		return err
	}
	child.Tell("%s", httptest.NewServer(h).URL)
	<-ctx.Done()
	return nil
}

// alone serves the page of the scene in a process of its own.
func (s *scene) alone() (url string, c *child.Child) {
	s.Helper()
	text := must.Get(json.Marshal(s.place))
	exe, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env, cmd.Stderr = append(os.Environ(), placeEnv+"="+string(text)), os.Stderr
	urls := make(chan string, 1)
	if c, err = child.Start(cmd, func(line string) { urls <- line }); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Kill(); <-c.Done() })
	select {
	case url = <-urls:
	case <-c.Done():
		s.Fatal("the page's process has ended: ", c.Err())
	}
	return url, c
}

// replay plans a replay of the one group of orders, and begins it.
func replay(p *chromium.Page, url string, rate string) (plan string) {
	p.Go(url + "/q/orders/letters")
	p.Until("document.querySelector('article.group') && !document.querySelector('#pass .busy')")
	p.Follow("article.group:first-of-type h2 a")
	p.Follow("=Plan a replay")
	p.See("reopen their failure")
	p.Eval("document.querySelector('[name=rate]').value = "+rate, nil)
	p.Eval("location.href", &plan)
	run(p)
	return plan
}

// run begins the plan that is shown.
func run(p *chromium.Page) {
	p.Type("form[action*='/plans/'] [name=reason]", "INC-312")
	p.Follow("form[action*='/plans/'] button")
}

// browserGoes: the act goes on, and is there for the next one who looks.
func browserGoes(t *testing.T, b *chromium.Browser) {
	s := newScene(t, nil)
	f := timeout
	f.n = 30
	s.fail(f)
	s.work("orders", "w-1")
	p := s.enter(t, b, "ana", phone)
	replay(p, s.url, "25")
	p.See("5 sent")
	p.Close()
	s.once(f.n)
	again := s.enter(t, b, "ben", phone)
	again.See("replay of orders")
	again.Follow("=replay of orders")
	again.See("It has ended")
	if acts := s.acts(); len(acts) != 1 || acts[0].By != "ana" || acts[0].Ended.IsZero() {
		t.Errorf("%+v", acts)
	}
}

// serverGoes: letters come back, the audit says that the end is not known, and a second plan
// finishes. Each job has run once.
func serverGoes(t *testing.T, b *chromium.Browser) {
	s := newScene(t, nil)
	f := timeout
	f.n = 30
	s.fail(f)
	s.stay = make(chan struct{}) // so the second batch is never done
	s.work("orders", "w-1")
	s.Hold = 5 * time.Second // the dead one's letters are waited for
	url, process := s.alone()
	p := b.Person(t).Tab(t, phone)
	p.Go(url + "/?as=ana")
	replay(p, url, "0")
	p.See("10 sent")
	process.Kill()
	<-process.Done()
	p.Until("document.querySelector('#live').matches('.stale')")
	p.Close()
	p.Wrong() // that nobody answered
	close(s.stay)
	left := s.depth(s.dead["orders"])
	if acts := s.acts(); len(acts) != 1 || !acts[0].Ended.IsZero() || left != int64(f.n)-15 {
		t.Errorf("%d letters are left, and the audit has %+v", left, acts)
	}
	// The dead one's lock ends when the test says so, however slow this is.
	lock := func(do string, args ...any) {
		t.Helper()
		if _, err := s.db.ExecContext(s.Context(), do+" WHERE scope = ?", append(args, storecall.ScopeOnce)...); err != nil {
			t.Fatal(err)
		}
	}
	lock("UPDATE onceq_dedupe SET lease_until = ?", sqlitewriter.TimeText(time.Now().Add(time.Hour)))
	p = s.enter(t, b, "ben", phone)
	p.Follow("=Audit")
	p.See("its end is not known")
	s.until("letters that come back", func() bool {
		d, err := s.dead["orders"].Depth(s.Context())
		return err == nil && d.InFlight == 0
	})
	plan := replay(p, s.url, "0")
	p.See("ana began a replay")
	p.See("should he have died, they are free in") // so long the dead one is waited for
	lock("DELETE FROM onceq_dedupe")
	p.Go(plan)
	run(p)
	p.See("It has ended")
	s.once(f.n)
}
