package steering

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mrand "math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns how a Worker obeys operators and shows itself to them, for one Run. Run calls
// ReadFirst before the first receive, then Start, and Stop after the drain. Three goroutines do the
// rest, so that none waits for another's call: one reads the rules, one obeys them (also their
// ends, while the store is away), one keeps the seat. s.mu guards what Health asks for; no store,
// flow or Observer is called under it.
//
// The seat shares nothing with the heartbeats of jobs: neither its calls nor its lease.

const (
	// refusedRules is for how long a store that answers other calls may refuse to tell the rules
	// before a Worker starts without them.
	refusedRules = 30 * time.Second
	// stampede bounds the random wait of a worker that may go on again.
	stampede = 5 * time.Second
	// leaveWait bounds how long Run waits for the seat to be given back.
	leaveWait = 2 * time.Second
)

// Steward is a Worker's for one Run. A nil one does nothing.
type Steward struct {
	c     Config
	book  *Rulebook
	every time.Duration
	seat  *controlstore.Seat
	out   engine.Outage // of the seat
	fails int           // beats in a row; the keeper's of the seat

	news   chan struct{} // the rules were read
	show   chan struct{} // the card has something to say at once
	halted context.CancelFunc
	ended  sync.WaitGroup // of those that read and obey
	left   chan struct{}  // closed when the seat is given back

	card   cards   // the keeper's of the seat
	around lookout // likewise

	seen    atomic.Uint64 // the version of the rules that is obeyed
	mu      sync.Mutex
	holds   control.Verdict // what the rules say of the queue; zero = nothing
	refused string          // why the worker has started without rules
	waits   string          // why it has not started yet
}

// New makes the steward of a Run; nil where no rules are read.
func New(c Config) *Steward {
	if !c.Book.IsOn() {
		return nil
	}
	every := c.Book.c.Every
	s := &Steward{
		c: c, book: c.Book, every: every, news: make(chan struct{}, 1), show: make(chan struct{}, 1), left: make(chan struct{}),
	}
	// A name that is too long for a seat is shortened: nobody may be unable to start for it.
	seat, err := controlstore.NewSeat(c.Book.store, controlstore.SeatOptions{
		Queue: seatText(c.Queue), Owner: seatText(c.Owner), TTL: max(controlstore.DefaultTTL, 3*every),
	})
	if err != nil {
		c.Logger.LogAttrs(c.Base, slog.LevelWarn, "onceq: the worker cannot be shown to operators", slog.Any("error", err))
	}
	s.seat = seat
	s.card.durations(c.Took, time.Now()) // what an earlier Run has counted is not this one's
	return s
}

// ReadFirst reads the rules before the first receive, until they are read or ctx ends. So a worker
// that starts during a pause runs nothing. A store that hangs and ignores its context does not keep
// Run from ending.
func (s *Steward) ReadFirst(ctx context.Context) {
	if s == nil {
		return
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		s.readFirstRules(ctx)
	}()
	select {
	case <-read:
	case <-ctx.Done():
	}
	if ctx.Err() == nil {
		s.obey(ctx, true)
	}
}

// readFirstRules reads the rules until they are read or ctx ends. Where the store answers other
// calls and refuses this one, the worker goes on without rules after a while, unless they are
// required. A store that is slow refuses nothing: a pause may be in force, so the worker waits for
// the answer.
func (s *Steward) readFirstRules(ctx context.Context) {
	s.setWaiting("the store has not answered yet")
	var refused time.Time
	for n := 1; ctx.Err() == nil; n++ {
		err := s.book.fetch(ctx)
		if err == nil {
			s.setWaiting("")
			s.book.logReading(ctx, nil)
			return
		}
		switch {
		case isSlow(err) || !s.answersOthers(ctx):
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		}
		if !refused.IsZero() && time.Since(refused) >= refusedRules && !s.book.c.Required && ctx.Err() == nil {
			s.startWithoutRules(ctx, err)
			return
		}
		s.setWaiting(err.Error())
		if n >= 3 {
			s.book.logReading(ctx, err)
		}
		retry.Rest(ctx, retry.Pause(n))
	}
}

// isSlow reports whether a call failed because the store was slow, locked or throttled, as far as
// its error tells: by ours, by what the standard library's say of themselves, by the code of AWS's
// and by the SQLSTATE of PostgreSQL's.
func isSlow(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, dedupe.ErrBusy) {
		return true
	}
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() {
		return true
	}
	if c, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); ok {
		code := c.ErrorCode()
		return strings.HasPrefix(code, "Throttl") || strings.HasSuffix(code, "LimitExceeded") || strings.HasPrefix(code, "ProvisionedThroughputExceeded")
	}
	if p, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		switch class := p.SQLState(); class[:min(2, len(class))] {
		case "08", "40", "53", "55", "57": // connections, conflicts, resources, locks, an operator's intervention
			return true
		}
	}
	return false
}

// answersOthers reports whether the store answers another call than a read. That one changes
// nothing, because nobody has such a claim.
func (s *Steward) answersOthers(ctx context.Context) bool {
	n := dedupe.Renewal{Key: dedupe.Key{Scope: controlstore.ScopeWorker, Key: "nobody/0"}, TTL: time.Second}
	_, _ = rand.Read(n.Token[:])
	defer s.book.watchCall(ctx)()
	as, err := s.book.store.Renew(ctx, []dedupe.Renewal{n})
	return err == nil && len(as) == 1 && errors.Is(as[0].Err, dedupe.ErrLeaseLost)
}

func (s *Steward) startWithoutRules(ctx context.Context, err error) {
	s.mu.Lock()
	s.refused, s.waits = err.Error(), ""
	s.mu.Unlock()
	s.c.Logger.LogAttrs(ctx, slog.LevelError, "onceq: the store refuses to tell operators' rules and answers other calls; the worker starts without them, and no pause reaches it",
		slog.Any("error", err))
	s.c.Tell(s.c.Base, RulesRefused, err)
}

func (s *Steward) setWaiting(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = why
}

// Start begins to read, to obey and to keep the seat. What reads and obeys ends with receiving; the
// seat is kept until Stop, because a drain may be long.
func (s *Steward) Start(receiving context.Context) {
	if s == nil {
		return
	}
	s.ended.Go(func() { s.readLoop(receiving) })
	s.ended.Go(func() { s.obeyLoop(receiving) })
	sits, stop := context.WithCancel(s.c.Base)
	s.halted = stop
	go func() {
		defer close(s.left)
		s.keepSeat(sits)
	}()
}

// Stop gives the seat back. It waits for that for a moment, and never beyond late.
func (s *Steward) Stop(late time.Time) {
	if s == nil || s.halted == nil {
		return
	}
	s.halted()
	end := time.Now().Add(leaveWait)
	if late.Before(end) {
		end = late
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.ended.Wait()
		<-s.left
	}()
	until, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	select {
	case <-gone:
	case <-until.Done():
	}
}

// readLoop reads the rules each Every, a tenth of it earlier at the most.
func (s *Steward) readLoop(ctx context.Context) {
	began := time.Now()
	for retry.Rest(ctx, time.Until(began.Add(s.period()))) {
		began = time.Now()
		err := s.book.fetch(ctx)
		s.book.logReading(ctx, err)
		if err == nil {
			poke(s.news)
		}
	}
}

func (s *Steward) period() time.Duration { return s.every - mrand.N(s.every/10+1) }

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // somebody has said so already
	}
}

// obeyLoop does what the rules say, when they are read and when one of them ends.
func (s *Steward) obeyLoop(ctx context.Context) {
	for {
		next := s.obey(ctx, false)
		t := time.NewTimer(next)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-s.news:
		case <-t.C:
		}
		t.Stop()
	}
}

// obey does what the rules say now, and answers after what time to look again. A worker that may go
// on waits for a random time first, so that a fleet does not begin as one; at the start of a Run
// there is nothing to wait for.
func (s *Steward) obey(ctx context.Context, atStart bool) (next time.Duration) {
	now := time.Now()
	rs, known, _ := s.book.InForce()
	v, ok := rs.For(s.c.Queue, "", "", now)
	s.mu.Lock()
	s.holds = v
	if known {
		s.refused = ""
	}
	s.mu.Unlock()
	limit := 0
	if ok && v.Do == control.Limit {
		limit = v.Slots
	}
	s.c.Limit(limit)
	if ok && v.Do == control.Pause {
		s.c.Pause(engine.ByRules)
	} else if s.c.Paused()&engine.ByRules != 0 {
		if !atStart && !s.jitterHolds(ctx, &v) {
			return 0 // the rules have changed meanwhile
		}
		s.c.Resume(engine.ByRules)
	}
	if obeyed := s.seen.Swap(rs.Version); obeyed != rs.Version {
		poke(s.show)
		if rs.Version < obeyed {
			s.c.Past.versionBack(fmt.Errorf("onceq: the store has version %d of operators' rules, and had %d before", rs.Version, obeyed))
		}
	}
	// A timer stands still with its host, and knows nothing of a clock that was set. So nobody
	// relies on a long one for the end of a rule.
	if end := rs.Next(time.Now()); !end.IsZero() {
		return min(max(0, time.Until(end)), s.every)
	}
	return s.every
}

// jitterHolds waits for a random time, and reports whether the rules still say v then.
func (s *Steward) jitterHolds(ctx context.Context, v *control.Verdict) bool {
	t := time.NewTimer(mrand.N(min(s.every, stampede) + 1))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return true
		case <-t.C:
			return true
		case <-s.news:
			rs, _, _ := s.book.InForce()
			if now, _ := rs.For(s.c.Queue, "", "", time.Now()); now.Do != v.Do || now.Slots != v.Slots {
				return false
			}
		}
	}
}

// keepSeat keeps the seat until ctx ends, and then gives it back.
func (s *Steward) keepSeat(ctx context.Context) {
	if s.seat == nil {
		return
	}
	s.compareOthers(ctx) // before it may take the seat of one that has left
	for began := time.Now(); ; began = time.Now() {
		s.beat(ctx)
		s.compareOthers(ctx)
		t := time.NewTimer(time.Until(began.Add(s.period())))
		select {
		case <-ctx.Done():
			t.Stop()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.book.c.CallTimeout)
			_ = s.seat.Leave(last) // else its lease runs out
			cancel()
			return
		case <-s.show:
		case <-t.C:
		}
		t.Stop()
	}
}

// beat writes the card. Nobody waits for it, and no job depends on it.
func (s *Steward) beat(ctx context.Context) {
	err := s.sit(ctx)
	if errors.Is(err, controlstore.ErrSeatLost) {
		s.c.Logger.LogAttrs(ctx, slog.LevelWarn, "onceq: the worker's seat was taken; it takes another", slog.Any("error", err))
		s.c.Tell(s.c.Base, SeatLost, err)
		err = s.sit(ctx)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.fails++ // a busy store may refuse one
		if lasts, tell := s.out.Fails(engine.Whole, s.fails > 1); tell {
			s.c.Logger.LogAttrs(ctx, slog.LevelWarn, "onceq: the worker's card cannot be written, so operators do not see it", engine.ForSo(lasts), slog.Any("error", err))
		}
	default:
		s.fails = 0
		if lasted, tell := s.out.Succeeds(engine.Whole); tell {
			s.c.Logger.LogAttrs(ctx, slog.LevelInfo, "onceq: the worker's card is written again", engine.ForSo(lasted))
		}
	}
}

// sit beats once. The claim of a seat has a fence as that of a job has. So a worker without jobs
// notices, too, that the store went back behind it: its seat is gone, and the next one is older.
func (s *Steward) sit(ctx context.Context) error {
	known, had := s.c.Past.Fences.Known(), s.seat.Fence()
	err := s.seat.Beat(ctx, s.describe(s.c.Glance()))
	if got := s.seat.Fence(); got != had {
		s.c.Past.seatTaken(known, got)
	}
	return err
}

// Words are what Health says of rules and seat.
func (s *Steward) Words() (rules uint64, seat string, reasons []string) {
	if s == nil {
		return 0, "", nil
	}
	if s.seat != nil {
		seat = s.seat.Name()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.holds.Do == control.Pause:
		reasons = append(reasons, fmt.Sprintf("rule %s by %s: %s", s.holds.Rule, s.holds.By, s.holds.Reason))
	case s.holds.Do == control.Limit:
		reasons = append(reasons, fmt.Sprintf("limited to %d slots by rule %s by %s: %s", s.holds.Slots, s.holds.Rule, s.holds.By, s.holds.Reason))
	}
	if why := cmp.Or(s.refused, s.book.failing()); why != "" {
		reasons = append(reasons, "operators' rules cannot be read: "+why)
	}
	if s.waits != "" {
		reasons = append(reasons, "nothing is received before operators' rules are read: "+s.waits)
	}
	return s.seen.Load(), seat, reasons
}

// describe is the worker's card.
func (s *Steward) describe(g Glance) *control.WorkerStatus {
	now := time.Now()
	if s.card.began.IsZero() {
		s.card.began = now
	}
	js, more := s.c.Jobs()
	s.card.head(js)
	c := &control.WorkerStatus{
		Host: hostName(), PID: os.Getpid(), Version: version(), Scope: s.c.Scope, Types: s.c.Types, Scopes: s.c.Scopes,
		Started: s.card.began, At: now, Slots: g.Slots, Busy: g.Busy, Held: g.Held, State: g.State,
		Rules: s.seen.Load(), HeadWait: s.card.headWait(now), Outcomes: g.Outcomes,
		Outage: g.Outage, OutageSince: g.Since, Paused: g.Paused, LimitedBy: g.LimitedBy, Limiters: g.Limiters,
	}
	c.FullSince = fullSince(&g, js)
	c.Retention, c.Interrupted = s.c.Retention, s.c.Interrupted
	c.MaxAttempts, c.Timeout, c.Timeouts, c.DrainTimeout = s.c.MaxAttempts, s.c.Timeout, s.c.Timeouts, s.c.DrainTimeout
	total := uint64(0)
	for _, n := range g.Outcomes {
		total += n
	}
	c.Rate = s.card.rate(now, total)
	c.Durations = s.card.durations(s.c.Took, now)
	ran, byType, byClass := s.card.minute(s.c.Took, now)
	c.Minute, c.MinuteTypes, c.MinuteErrors = &ran, byType, byClass
	s.mu.Lock()
	c.NoRules = cmp.Or(s.refused, s.book.failing())
	if s.holds.Do == control.Pause {
		c.PausedBy = []string{s.holds.Rule}
	}
	s.mu.Unlock()
	shown := min(len(js), s.c.ShownJobs)
	c.More = more + len(js) - shown
	for i := range shown {
		c.Jobs = append(c.Jobs, cardJob(&js[i], s.c.NoKeys))
	}
	return c
}

// This part owns how a Worker looks at the others of its queue. Workers that differ in their Scope
// do each job once for each scope, and no message or record shows it. Run asks strictly before the
// first receive; later the goroutine that keeps the seat calls compareOthers. Nothing is locked.

const (
	// soonAgain is when a worker looks for the second time: workers that start together have no
	// seats yet at the first.
	soonAgain = 2 * time.Minute
	// lookAround is how often it looks after that. A look reads 128 numbers and 64 more for each 64
	// workers.
	lookAround = time.Hour
)

// The words of what a worker tells of one that has gone.
const (
	hadBefore = "onceq: a worker that the queue had before has "
	doneAgain = ": what it has done is done again if it comes again"
)

// ErrWorkersDiffer is wrapped by the error of a [Worker.Run] that ControlOptions.Strict has
// refused.
var ErrWorkersDiffer = errors.New("onceq: another worker of the queue has other settings")

// differing are the live workers of the queue that differ, and in what; and those that it had
// before, as far as seats show them, whose jobs have their keys elsewhere.
func (s *Steward) differing(ctx context.Context) (live, before map[string]string, err error) {
	call := engine.CallContext(ctx, s.book.c.CallTimeout)
	defer call.Close()
	seats, err := controlstore.Seats(call, s.book.store, seatText(s.c.Queue))
	if err != nil {
		return nil, nil, err
	}
	own := s.settings()
	owner, now := seatText(s.c.Owner), time.Now()
	live, before = make(map[string]string), make(map[string]string)
	for i := range seats {
		t := &seats[i]
		switch text, keys := unlike(own, t.Status); {
		case text == "" || t.Owner == owner && t.Live(now): // its own, or that of its last Run
		case t.Live(now) && keys:
			live[t.Owner] = text + ": each job may be done by both"
		case t.Live(now):
			live[t.Owner] = text
		case keys:
			before[t.Owner] = text + doneAgain
		}
	}
	return live, before, nil
}

// settings are what others compare with theirs.
func (s *Steward) settings() *control.WorkerStatus {
	return &control.WorkerStatus{Scope: s.c.Scope, Types: s.c.Types, Scopes: s.c.Scopes, Retention: s.c.Retention, Interrupted: s.c.Interrupted}
}

// CheckStrict is the error of a Run that is not to start, because another worker differs. It reads
// the seats until they are read or ctx ends.
func (s *Steward) CheckStrict(ctx context.Context) error {
	if s == nil || !s.c.Strict {
		return nil
	}
	for n := 1; ctx.Err() == nil; n++ {
		live, _, err := s.differing(ctx)
		if err == nil {
			s.setWaiting("")
			for owner, text := range live {
				return fmt.Errorf("%w: %s has %s (ProcessorConfig.Control.Strict)", ErrWorkersDiffer, owner, text)
			}
			return nil
		}
		s.setWaiting("the seats of the other workers: " + err.Error())
		retry.Rest(ctx, retry.Pause(n))
	}
	s.setWaiting("")
	return nil
}

// A lookout is what a worker knows of the others. Only the goroutine that keeps the seat has it.
type lookout struct {
	next time.Time
	told map[string]string
}

// compareOthers compares this worker with the others, where it is time for that, and tells of each
// difference once.
func (s *Steward) compareOthers(ctx context.Context) {
	l, now := &s.around, time.Now()
	if now.Before(l.next) || ctx.Err() != nil {
		return
	}
	first := l.told == nil
	live, before, err := s.differing(ctx)
	if err != nil {
		return // with the next card
	}
	if l.next = now.Add(lookAround); first {
		l.next = now.Add(soonAgain)
	}
	found := make(map[string]string)
	for what, some := range map[string]map[string]string{"onceq: another live worker of the queue has ": live, hadBefore: before} {
		for owner, text := range some {
			if l.told[owner] != text {
				s.c.Logger.LogAttrs(ctx, slog.LevelError, what+text, slog.String("worker", owner), slog.String("queue", s.c.Queue))
			}
			found[owner] = text
		}
	}
	for _, text := range s.longBefore(ctx) {
		if !slices.ContainsFunc(slices.Collect(maps.Values(found)), func(t string) bool { return strings.HasPrefix(t, text) }) {
			s.c.Logger.LogAttrs(ctx, slog.LevelError, hadBefore+text+doneAgain, slog.String("queue", s.c.Queue))
		}
	}
	l.told = found
}

// longBefore says of workers that no seat shows any more, and whose keys are kept, where they had
// them, if it was elsewhere. A store that does not answer is asked again in an hour.
func (s *Steward) longBefore(ctx context.Context) (texts []string) {
	call := engine.CallContext(ctx, s.book.c.CallTimeout)
	defer call.Close()
	own := s.settings()
	others, _ := controlstore.ShowScopes(call, s.book.store, seatText(s.c.Queue), own, s.c.Retention, func(c *control.WorkerStatus) bool {
		_, keys := unlike(own, c)
		return keys
	})
	for _, c := range others {
		text, _ := unlike(own, c)
		texts = append(texts, text)
	}
	return texts
}
