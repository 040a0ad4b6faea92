package doing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// The store does not answer: the call ends, says that nothing ran, and that is so.
func TestDoWithoutAStore(t *testing.T) {
	for name, fault := range rig.Outages {
		t.Run(name, func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				d.Store.Set(func(s *rig.Store) { s.Fault = func(onceqtest.Call) faulty.Faults { return fault } })
				begin := time.Now()
				_, err := d.Do("a", nil, d.MustNot)
				d.Wants("the call", 0, err, 0, &onceq.NotRunError{})
				if took := time.Since(begin); took != 2*onceq.DefaultCallTimeout {
					t.Errorf("it took %v", took)
				}
				if name != "hang" && name != "panic" && !errors.Is(err, fault.Err()) || !strings.Contains(err.Error(), "repeating is safe") {
					t.Errorf("the error is %v", err)
				}
				rig.Pass(time.Minute)
				d.Store.Heals()
				v, err := d.Do("a", nil, rig.Gives(1, nil))
				d.Wants("after the outage", v, err, 1, nil)
			})
		})
	}
}

// All calls of one key end together when the first one finds the outage, not one after the other.
func TestDoWithoutAStoreTogether(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		d.Store.Fails(rig.ErrBoom, onceqtest.Claim)
		var all sync.WaitGroup
		begin := time.Now()
		for range 20 {
			all.Go(func() {
				_, err := d.Do("a", nil, d.MustNot)
				d.Wants("a call", 0, err, 0, &onceq.NotRunError{})
			})
		}
		all.Wait()
		if took := time.Since(begin); took > 2*onceq.DefaultCallTimeout {
			t.Errorf("they took %v", took)
		}
	})
}

// The caller does not wait for a claim that is on its way when its context ends. The claim is given
// back when it comes.
func TestDoCallerGoesDuringTheClaim(t *testing.T) {
	for name, c := range map[string]struct {
		fault  faulty.Faults
		status dedupe.Status
	}{
		"slow":       {faulty.Slow(3 * time.Second), dedupe.Released},
		"reply lost": {faulty.Lose(rig.ErrBoom), dedupe.Released},
		"slow, lost": {faulty.Slow(3 * time.Second).With(faulty.Lose(rig.ErrBoom)), dedupe.Released},
		"hangs":      {faulty.Hang(), 0},
		"error":      {faulty.Fail(rig.ErrBoom), 0},
	} {
		t.Run(name, func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				d.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Claim, 1000, c.fault) })
				gone := errors.New("the client is gone")
				ctx, cancel := context.WithTimeoutCause(d.Context(), time.Second, gone)
				defer cancel()
				begin := time.Now()
				_, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, nil, d.MustNot)
				d.Wants("the call", 0, err, 0, &onceq.NotRunError{})
				if took := time.Since(begin); took != time.Second || !errors.Is(err, gone) {
					t.Errorf("it took %v: %v", took, err)
				}
				if name == "error" && !errors.Is(err, rig.ErrBoom) {
					t.Errorf("the store's word is not in %v", err)
				}
				rig.Pass(10 * time.Second)
				d.Store.Heals()
				if rec := d.Record("a"); rec.Status != c.status || rec.Attempt != 0 {
					t.Errorf("the record is %+v", rec)
				}
				v, err := d.Do("a", nil, rig.Gives(1, nil))
				d.Wants("the next", v, err, 1, nil)
			})
		})
	}
}

// The caller may use its bytes again when it has its answer, also while the claim is on its way.
func TestDoFingerprintIsTheCallers(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		d.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Claim, 1, faulty.Slow(2*time.Second)) })
		buf := []byte("x")
		ctx, cancel := context.WithTimeout(d.Context(), time.Second)
		defer cancel()
		_, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, &onceq.DoOptions{Fingerprint: buf}, d.MustNot)
		d.Wants("the call", 0, err, 0, &onceq.NotRunError{})
		buf[0] = 'y'
		rig.Pass(time.Minute)
		v, err := d.Do("a", &onceq.DoOptions{Fingerprint: []byte("x")}, rig.Gives(1, nil))
		d.Wants("the next", v, err, 1, nil)
	})
}

// Under Park a start that is not confirmed keeps the caller no longer than a claim that is not
// answered.
func TestDoStartIsNotConfirmed(t *testing.T) {
	for name, fault := range rig.Outages {
		t.Run(name, func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				d.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Renew, 1000, fault) })
				begin := time.Now()
				_, err := d.Do("a", nil, d.MustNot)
				d.Wants("the call", 0, err, 0, &onceq.NotRunError{})
				if took := time.Since(begin); took < onceq.DefaultCallTimeout || took > 3*onceq.DefaultCallTimeout {
					t.Errorf("it took %v", took)
				}
				d.Store.Heals()
				v, err := d.Do("a", nil, rig.Gives(1, nil))
				d.Wants("after the outage", v, err, 1, nil)
			}, rig.Parks)
		})
	}
}

// A claim that failed once and then found the key done leaves nothing behind to give back.
func TestDoGivesNothingBackThatIsNotInDoubt(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		d.Do("a", nil, rig.Gives(1, nil))
		before := d.Store.Settles.Load()
		d.Store.Set(func(s *rig.Store) {
			s.Claims.Store(0)
			s.Fault = rig.Bads(onceqtest.Claim, 1, faulty.Fail(rig.ErrBoom))
		})
		v, err := d.Do("a", nil, d.MustNot)
		d.Wants("the call", v, err, 1, nil)
		rig.Pass(time.Minute)
		if n := d.Store.Settles.Load() - before; n != 0 {
			t.Errorf("%d settlements", n)
		}
	})
}

func TestDoContextOverBefore(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		ctx, cancel := context.WithCancel(d.Context())
		cancel()
		_, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, nil, d.MustNot)
		d.Wants("the call", 0, err, 0, &onceq.NotRunError{})
		if !errors.Is(err, context.Canceled) || d.Store.Claims.Load() != 0 {
			t.Errorf("%v after %d claims", err, d.Store.Claims.Load())
		}
	})
}

// One call that fails, whichever it is and however, changes nothing for the caller.
func TestDoOneFault(t *testing.T) {
	for _, op := range []onceqtest.Op{onceqtest.Claim, onceqtest.Renew, onceqtest.Settle} {
		for name, fault := range map[string]faulty.Faults{
			"error": faulty.Fail(rig.ErrBoom), "reply lost": faulty.Lose(rig.ErrBoom), "busy": faulty.Fail(dedupe.ErrBusy),
			"panic": faulty.Panic("store"), "hangs": faulty.Hang(), "full": faulty.Fail(dedupe.ErrFull),
		} {
			for how, options := range map[string][]rig.Option{
				"": nil, "park": {rig.Parks}, "direct": {rig.Direct}, "park, direct": {rig.Parks, rig.Direct},
			} {
				if strings.Contains(how, "direct") && rig.Waits(fault) {
					continue
				}
				t.Run(fmt.Sprint(op, " ", name, " ", how), func(t *testing.T) {
					rig.BubbleDo(t, func(d *rig.Doer) {
						for i, says := range []error{nil, rig.ErrBoom, onceq.Permanent(rig.ErrBoom)} {
							k := fmt.Sprint("a", i)
							d.Store.Set(func(s *rig.Store) {
								s.Claims.Store(0)
								s.Renews.Store(0)
								s.Settles.Store(0)
								s.Fault = rig.Bads(op, 1, fault)
							})
							v, err := d.Do(k, nil, func(context.Context, *onceq.Job) (int, error) { rig.Takes(15 * time.Second); return 1, says })
							var want error
							if says != nil {
								want = rig.ErrBoom
							}
							d.Wants("the call", v, err, 1, want)
							status := []dedupe.Status{dedupe.Done, dedupe.Released, dedupe.Failed}[i]
							if rec := d.Record(k); rec.Status != status || rec.Attempt != 1 || d.Seen.Started(k) != 1 {
								t.Errorf("%v: %d starts, the record is %+v", says, d.Seen.Started(k), rec)
							}
						}
					}, options...)
				})
			}
		}
	}
}

// The end cannot be recorded: the caller has the result and knows, and others wait for the lease.
func TestDoUnsettled(t *testing.T) {
	for _, c := range []struct {
		name    string
		applied bool
		says    error
		park    bool
		then    error // of a call when the lease has run out
	}{
		{name: "done"},
		{name: "done, reply lost", applied: true},
		{name: "failed", says: rig.ErrBoom},
		{name: "park", park: true, then: &onceq.ParkedError{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				if c.park {
					d.Cfg.Defaults.Interrupted = dedupe.Park
					d.P = d.Processor(d.Store)
				}
				d.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Settle, 1000, faulty.Err(rig.ErrBoom, c.applied)) })
				begin := time.Now()
				v, err := d.Do("a", nil, rig.Gives(8, c.says))
				d.Wants("the call", v, err, 8, &onceq.UnsettledError{})
				if took := time.Since(begin); took > onceq.DefaultSettleTimeout || took < time.Second {
					t.Errorf("it took %v", took)
				}
				if !errors.Is(err, rig.ErrBoom) || !strings.Contains(err.Error(), "not recorded") {
					t.Errorf("the error is %v", err)
				}
				d.Store.Heals()
				if !c.applied {
					if _, err = d.Do("a", nil, d.MustNot); !isInProgress(err) {
						t.Errorf("while the lease lives: %v", err)
					}
				}
				rig.Pass(onceq.DefaultLease)
				switch {
				case c.applied:
					v, err = d.Do("a", nil, d.MustNot)
					d.Wants("after the lease", v, err, 8, nil)
				case c.then != nil:
					v, err = d.Do("a", nil, d.MustNot)
					d.Wants("after the lease", v, err, 0, c.then)
				default:
					v, err = d.Do("a", nil, rig.Gives(9, nil))
					d.Wants("after the lease", v, err, 9, nil)
				}
			})
		})
	}
}

// What a call of Do has given back has no letter that would bring it: its caller comes again. So
// its late release frees a key that was parked meanwhile, and the next call runs.
func TestDoLateRelease(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		said := make(chan error, 1)
		go func() {
			_, err := d.Do("a", nil, func(context.Context, *onceq.Job) (int, error) {
				d.Store.Fails(rig.ErrBoom, onceqtest.Settle, onceqtest.Renew)
				rig.Takes(20 * time.Second)
				return 0, errNoEffect
			})
			said <- err
		}()
		rig.Pass(onceq.DefaultLease + 2*time.Second)
		q := dedupe.ClaimRequest{Key: rig.Key("a"), Token: dedupe.Token{9}, TTL: time.Minute, Policy: dedupe.Park}
		if cs, err := d.Store.Store.Claim(d.Context(), []dedupe.ClaimRequest{q}); err != nil || cs[0].Outcome != dedupe.IsParked {
			t.Fatalf("another process's claim: %+v, %v", cs, err)
		}
		d.Store.Heals()
		if err := <-said; !errors.Is(err, errNoEffect) {
			t.Errorf("the call: %v", err)
		}
		v, err := d.Do("a", nil, rig.Gives(9, nil))
		d.Wants("the next call", v, err, 9, nil)
	}, rig.Parks, rig.With(func(c *rig.Setup) { c.SettleTimeout = 30 * time.Second }))
}

var errNoEffect = errors.New("no effect")

// A process dies at each of its calls. The next one finds the result, runs f again, or is told that
// nobody knows.
func TestDoCrash(t *testing.T) {
	before := func(op onceqtest.Op) onceqtest.Fault { return onceqtest.Fault{Op: op, Kind: onceqtest.CrashBefore} }
	after := func(op onceqtest.Op) onceqtest.Fault { return onceqtest.Fault{Op: op, Kind: onceqtest.CrashAfter} }
	for _, c := range []struct {
		at       onceqtest.Fault
		park     bool
		effects  int  // in the end
		parked   bool // the second process is told so
		attempts int
	}{
		{before(onceqtest.Claim), false, 1, false, 1},
		{after(onceqtest.Claim), false, 1, false, 2},
		{before(onceqtest.Renew), false, 2, false, 2},
		{after(onceqtest.Renew), false, 2, false, 2},
		{before(onceqtest.Settle), false, 2, false, 2},
		{after(onceqtest.Settle), false, 1, false, 1},
		{before(onceqtest.Claim), true, 1, false, 1},
		{after(onceqtest.Claim), true, 1, false, 2},
		{before(onceqtest.Start), true, 1, false, 2},
		{after(onceqtest.Start), true, 0, true, 1},
		{before(onceqtest.Renew), true, 1, true, 1},
		{after(onceqtest.Renew), true, 1, true, 1},
		{before(onceqtest.Settle), true, 1, true, 1},
		{after(onceqtest.Settle), true, 1, false, 1},
	} {
		t.Run(fmt.Sprint(c.at, " park=", c.park), func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				effects := 0
				f := func(_ context.Context, j *onceq.Job) (int, error) {
					effects++
					rig.Takes(15 * time.Second)
					return j.Attempt, nil
				}
				if c.park {
					d.Cfg.Defaults.Interrupted = dedupe.Park
				}
				var process onceqtest.Process
				process.At(c.at)
				first := d.Processor(process.Store(d.Store.Store))
				go onceq.Do(d.Context(), first, dedupe.Key{Key: "a"}, nil, f)
				<-process.Dead()
				second := d.Processor(d.Store)
				var parked *onceq.ParkedError
				v, err := onceq.Do(d.Context(), second, dedupe.Key{Key: "a"}, &onceq.DoOptions{Wait: 2 * onceq.DefaultLease}, f)
				switch {
				case c.parked:
					if !errors.As(err, &parked) || parked.Class != onceq.ClassInterrupted || parked.Fence == 0 {
						t.Fatalf("answered %v, %v", v, err)
					}
				case err != nil || v != c.attempts:
					t.Errorf("answered %v, %v, want %v", v, err, c.attempts)
				}
				rig.Pass(time.Minute)
				if effects != c.effects {
					t.Errorf("%d effects, want %d", effects, c.effects)
				}
				if c.parked {
					v, err = onceq.Do(d.Context(), second, dedupe.Key{Key: "a"}, &onceq.DoOptions{Reopen: parked.Fence}, f)
					d.Wants("reopened", v, err, 1, nil)
				}
			})
		})
	}
}

// Where f completes the job in a transaction, the transaction decides.
func TestDoJoined(t *testing.T) {
	for _, c := range []struct {
		name    string
		says    error
		commits bool
		park    bool
		v       int
		class   string // of the error
		status  dedupe.Status
	}{
		{name: "committed", commits: true, v: 1, status: dedupe.Done},
		{name: "committed, and an error", commits: true, says: rig.ErrBoom, v: 77, status: dedupe.Done},
		{name: "not committed", v: 1, class: onceq.ClassTxNotCommitted, status: dedupe.Released},
		{name: "not committed, and an error", says: rig.ErrBoom, v: 1, class: onceq.ClassError, status: dedupe.Released},
		{name: "not committed, park", park: true, v: 1, class: onceq.ClassTxNotCommitted, status: dedupe.Parked},
		{name: "not committed, permanent", says: onceq.Permanent(rig.ErrBoom), v: 1, class: onceq.ClassPermanent, status: dedupe.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig.BubbleDo(t, func(d *rig.Doer) {
				o := &onceq.DoOptions{Wait: time.Minute}
				if c.park {
					o.Interrupted = dedupe.Park
				}
				var all sync.WaitGroup
				if c.commits {
					all.Go(func() { // who waits gets what is stored
						rig.Takes(time.Second)
						v, err := d.Do("a", o, d.MustNot)
						d.Wants("a waiting call", v, err, 77, nil)
					})
				}
				v, err := d.Do("a", o, func(_ context.Context, j *onceq.Job) (int, error) {
					rig.Takes(2 * time.Second)
					j.Join()
					if l := j.Lease(); c.commits {
						d.Store.EndClaim(t, dedupe.ClaimRequest{Key: l.Key, Token: l.Token}, dedupe.Settlement{To: dedupe.Done, Result: []byte("77")})
					}
					return 1, c.says
				})
				if v != c.v || onceq.ClassOf(err) != c.class {
					t.Errorf("answered %v, %v", v, err)
				}
				d.WantStatus("a", c.status)
				all.Wait()
			})
		})
	}
}

// The transaction has committed, f has returned an error, and then the store cannot be read. Do's
// error says so.
func TestDoJoinedUnreadable(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		p := d.Processor(unreadable{d.Store})
		_, err := onceq.Do(d.Context(), p, dedupe.Key{Key: "a"}, nil, func(_ context.Context, j *onceq.Job) (int, error) {
			j.Join()
			l := j.Lease()
			d.Store.EndClaim(t, dedupe.ClaimRequest{Key: l.Key, Token: l.Token}, dedupe.Settlement{To: dedupe.Done, Result: []byte("77")})
			return 0, rig.ErrBoom
		})
		if err == nil || !strings.Contains(err.Error(), "is done") || !errors.Is(err, rig.ErrBoom) || !errors.Is(err, errUnread) {
			t.Errorf("answered %v", err)
		}
	})
}

var errUnread = errors.New("unreadable")

type unreadable struct{ dedupe.Store }

func (unreadable) Get(context.Context, []dedupe.Key) ([]*dedupe.Record, error) { return nil, errUnread }
