//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/rundir"
)

// This file owns the table of what goes wrong in a round, and the draw from it. A round has one
// fault that strikes a worker's process, and one that troubles what all workers stand on; the two
// fall together as it happens. The round's goroutine strikes. Another one troubles, and the round
// waits for it. So only the proxies, which have locks, and scene.troubled are for both.

// fault is a row of the table. It has either strike or trouble.
type fault struct {
	name string
	// on are the stores where it makes sense; "" = all.
	on string
	// lacks says why this machine does not have it; nil = it always does.
	lacks func(*scene) string
	// strike hits the process of a worker.
	strike func(s *scene, ctx context.Context, worker int)
	// trouble begins, lasts, and ends. It answers how often it was in somebody's way.
	trouble func(s *scene, ctx context.Context, d *draw) (touched int, err error)
}

const (
	servers = "postgres dynamodb firestore"
	files   = "sqlite postgres"
)

var faults = []fault{
	{name: "stopped past its lease", strike: func(s *scene, ctx context.Context, n int) { s.stop(ctx, s.crew[n]) }},
	{name: "kill -9", strike: func(s *scene, _ context.Context, n int) { s.kill(n) }},
	{name: "drained", strike: func(s *scene, _ context.Context, n int) { s.deploy(n) }},

	{name: "calm", trouble: func(*scene, context.Context, *draw) (int, error) { return 1, nil }},
	{name: "the way to the queue is cut", trouble: onWay(toQueue, cuts)},
	{name: "the queue's answers are lost", trouble: onWay(toQueue, loses)},
	{name: "the way to the queue stalls", trouble: onWay(toQueue, stalls)},
	{name: "the way to the queue is slow", trouble: onWay(toQueue, delays)},
	{name: "the way to the store is cut", on: servers, trouble: onWay(toStore, cuts)},
	{name: "the store's answers are lost", on: servers, trouble: onWay(toStore, loses)},
	{name: "the way to the store stalls", on: servers, trouble: onWay(toStore, stalls)},
	{name: "the way to the store is slow", on: servers, trouble: onWay(toStore, delays)},
	{name: "PostgreSQL is restarted", on: "postgres", lacks: noServer, trouble: restart},
	{name: "PostgreSQL is restored", on: "postgres", lacks: noServer, trouble: restore},
	{name: "the disk is full", on: files, lacks: noDisk, trouble: fillDisk},
	// DynamoDB's clock is in its answers. SQLite's is the host's, and Firestore's is where no proxy
	// reads: their stores' own tests put these off.
	{name: "a worker's clock is changed", on: "dynamodb", trouble: onWay(toStore, shifts)},
	{name: "PostgreSQL's clock is changed", on: "postgres", lacks: noClock, trouble: changeClock},
}

// draw is what a trouble is given.
type draw struct {
	after int           // handlers that have begun in the round
	then  time.Duration // later it begins
	lasts time.Duration
	whom  []int         // the workers whose way it is
	by    time.Duration // by how much a clock is changed
}

func newDraw(rng *rand.Rand) *draw {
	d := &draw{
		after: 1 + rng.IntN(orders/2),
		then:  time.Duration(rng.Int64N(int64(pause))),
		lasts: hold/4 + time.Duration(rng.Int64N(int64(2*hold))),
		whom:  rng.Perm(workers)[:1+rng.IntN(2)*(workers-1)], // one, or all
		by:    hold + time.Duration(rng.Int64N(int64(4*hold))),
	}
	if rng.IntN(2) == 0 {
		d.by = -d.by
	}
	return d
}

// deck deals the faults of a scene. Each trouble comes once before any comes again.
type deck struct {
	rng          *rand.Rand
	strikes, all []*fault // calm is the first of all
	left         []*fault
	lacks        []string
}

// newDeck has the faults that the scene can have, and in lacks what the machine does not have. That
// is named, as a back end is that is not there.
func newDeck(s *scene, rng *rand.Rand) *deck {
	d := &deck{rng: rng}
	for i := range faults {
		f := &faults[i]
		switch {
		case f.strike != nil:
			d.strikes = append(d.strikes, f)
			continue
		case f.on != "" && !slices.Contains(strings.Fields(f.on), s.mode.store):
			continue
		case f.lacks != nil:
			if why := f.lacks(s); why != "" {
				d.lacks = append(d.lacks, fmt.Sprintf("internal/tests/chaos: without %q on %s: %s", f.name, s.mode.store, why))
				continue
			}
		}
		d.all = append(d.all, f)
	}
	return d
}

// name has a line at the end of make test, and in the log.
func name(t *testing.T, line string) {
	t.Helper()
	t.Log(line)
	if dir := os.Getenv(rundir.Env); dir != "" {
		if err := rundir.Open(dir).Say(line); err != nil {
			t.Error(err)
		}
	}
}

// deal answers the faults of round n. The first two rounds stop a process and kill one, because
// only these show what the mode is there for. So does a round that is added, in calm: the rounds
// before have not shown it.
func (d *deck) deal(n int, added bool) (strike, trouble *fault) {
	switch {
	case added:
		return d.strikes[n%2], d.all[0]
	case n < 2:
		strike = d.strikes[n]
	default:
		strike = d.strikes[d.rng.IntN(len(d.strikes))]
	}
	if len(d.left) == 0 {
		d.left = slices.Clone(d.all)
		d.rng.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	trouble, d.left = d.left[0], d.left[1:]
	return strike, trouble
}

// troubles is what a round asks of its trouble.
type troubles struct {
	on   atomic.Bool
	done chan struct{}
}

// meet lets a trouble begin when it is time.
func (s *scene) meet(ctx context.Context, f *fault, d *draw) *troubles {
	s.touch(s.toQueue)
	s.touch(s.toStore)
	t := &troubles{done: make(chan struct{})}
	s.Cleanup(func() { <-t.done })
	began := s.log.progress()
	go func() {
		defer close(t.done)
		for s.log.progress() < began+d.after && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
		<-time.After(d.then)
		t.on.Store(true)
		defer t.on.Store(false)
		touched, err := f.trouble(s, ctx, d)
		if err == nil && touched == 0 {
			err = errors.New("it was in nobody's way: the round proves nothing")
		}
		if err != nil && ctx.Err() == nil { // else the round itself has failed
			s.Errorf("%s: %v", f.name, err)
		}
	}()
	return t
}

// touch answers how often the proxies were in somebody's way since the last call.
func (s *scene) touch(ps []*proxy) (n int) {
	for _, p := range ps {
		n += p.take()
	}
	return n
}

func toQueue(s *scene) []*proxy { return s.toQueue }
func toStore(s *scene) []*proxy { return s.toStore }

// onWay is bad weather between some workers and a server. It lasts until it has met somebody.
func onWay(to func(*scene) []*proxy, w weather) func(*scene, context.Context, *draw) (int, error) {
	return func(s *scene, ctx context.Context, d *draw) (touched int, _ error) {
		for _, n := range d.whom {
			to(s)[n].set(w, d.by)
		}
		defer func() {
			for _, n := range d.whom {
				to(s)[n].set(clear, 0)
			}
		}()
		<-time.After(d.lasts)
		for ; touched == 0 && ctx.Err() == nil; <-time.After(hold / 20) {
			touched = s.touch(to(s)) // a worker that has just been started is not on its way yet
		}
		return touched, nil
	}
}

func noServer(s *scene) string { return s.noServer }
func noDisk(s *scene) string   { return s.noDisk }

func noClock(s *scene) string {
	if s.server != nil && s.server.clock == "" {
		return "no libfaketime"
	}
	return s.noServer
}

// restart is a crash of the server, which comes back.
func restart(s *scene, ctx context.Context, d *draw) (int, error) {
	if err := s.server.stop(syscall.SIGQUIT); err != nil {
		return 0, err
	}
	<-time.After(d.lasts / 4)
	return 1, s.server.start(ctx)
}

// restore takes a backup, and a while later puts it in the server's place, beside workers that run.
// What was recorded meanwhile is forgotten, with its payments. The round sends its orders again, as
// docs/restore.md has an operator do.
func restore(s *scene, ctx context.Context, d *draw) (int, error) {
	backup := s.server.data + ".backup"
	if err := s.server.stop(syscall.SIGINT); err != nil {
		return 0, err
	}
	if err := s.server.copyTo(s.server.data, backup); err != nil {
		return 0, err
	}
	if err := s.server.start(ctx); err != nil {
		return 0, err
	}
	<-time.After(d.lasts)
	if err := s.server.stop(syscall.SIGQUIT); err != nil {
		return 0, err
	}
	if err := s.server.copyTo(backup, s.server.data); err != nil {
		return 0, err
	}
	s.restored.Store(true)
	return 1, s.server.start(ctx)
}

// resume ends the pause by which workers meet a store that went back in time.
func (s *scene) resume(ctx context.Context) {
	_, err := controlstore.Change(ctx, s.books.store(), func(rs *controlstore.Rules) error {
		s.pauses += len(rs.Rules)
		rs.Rules = nil
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
}

// fillDisk leaves no byte on the database's disk. A server that has ended by that is started again,
// as an operator would.
func fillDisk(s *scene, ctx context.Context, d *draw) (int, error) {
	n, err := s.disk.fill()
	if err != nil {
		return 0, err
	}
	<-time.After(d.lasts)
	if err := s.disk.free(); err != nil {
		return 0, err
	}
	if s.server != nil && !s.server.runs() {
		return n, s.server.start(ctx)
	}
	return n, nil
}

// changeClock changes the clock of the server, and changes it back.
func changeClock(s *scene, _ context.Context, d *draw) (int, error) {
	if err := s.server.setClock(d.by); err != nil {
		return 0, err
	}
	<-time.After(d.lasts)
	return 1, s.server.setClock(0)
}

// TestDeck: what is dealt follows from the seed, and each fault that can be had is dealt.
func TestDeck(t *testing.T) {
	s := &scene{T: t, mode: mode{store: "postgres"}, noServer: "none", noDisk: "none"}
	dealt := func() (names []string) {
		d := newDeck(s, rand.New(rand.NewPCG(1, 2)))
		for n := range 40 {
			strike, trouble := d.deal(n, false)
			names = append(names, strike.name, trouble.name)
		}
		return names
	}
	a := dealt()
	if b := dealt(); !slices.Equal(a, b) {
		t.Errorf("one seed deals\n%q and\n%q", a, b)
	}
	for _, f := range faults {
		fits := f.lacks == nil && (f.on == "" || strings.Contains(f.on, "postgres"))
		lacks := f.lacks != nil && strings.Contains(strings.Join(newDeck(s, nil).lacks, ""), f.name)
		if slices.Contains(a, f.name) != fits || lacks != (f.lacks != nil) {
			t.Errorf("%q: dealt in forty rounds is %v, want %v", f.name, !fits, fits)
		}
	}
}
