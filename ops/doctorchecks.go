package ops

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/ahead"
	"github.com/onceq/onceq/internal/controlstore"
)

// This file owns the checks of Doctor. Each reads answers of a patient and fills its report, in the
// goroutine of Doctor's caller; nothing is locked, and nothing is asked here.

type check struct {
	name string
	look func(*patient, *report)
}

var checks = []check{
	{"reach", (*patient).checkReach},
	{"clocks", (*patient).checkClocks},
	{"receives", (*patient).checkReceives},
	{"retention", (*patient).checkRetention},
	{"redrive", (*patient).checkRedrive},
	{"leases", (*patient).checkLeases},
	{"times", (*patient).checkTimes},
	{"drain", (*patient).checkDrain},
	{"seats", (*patient).checkSeats},
	{"settings", (*patient).checkSettings},
	{"table", (*patient).checkTable},
	{"failed", (*patient).checkFailed},
	{"obsolete", (*patient).checkObsolete},
	{"pauses", (*patient).checkPauses},
	{"rights", (*patient).checkRights},
}

const (
	// skewed is how far a clock may be off.
	skewed = time.Second
	// pausedFor is for how long a pause is taken to be known to everybody.
	pausedFor = time.Hour
	// shortLease is a lease that one slow call of the store uses up.
	shortLease = onceq.DefaultCallTimeout
)

// live are the cards of the workers that live.
func (p *patient) live() (cards []*control.WorkerStatus, err error) {
	seats, err := p.seats.get()
	for i := range seats {
		if s := &seats[i]; s.Alive() && s.Status != nil {
			cards = append(cards, s.Status)
		}
	}
	return cards, err
}

// judged are the cards whose settings are checked: the deployment's alone where there is one.
func (p *patient) judged() ([]*control.WorkerStatus, error) {
	if p.do.Card != nil {
		return []*control.WorkerStatus{p.do.Card}, nil
	}
	return p.live()
}

func (p *patient) checkReach(r *report) {
	var seen []string
	for _, part := range []struct {
		name string
		of   *answer[time.Duration]
	}{{"queue", p.depth}, {"dead-letter queue", p.dead}, {"store", p.clock}} {
		took, err := part.of.get()
		switch {
		case err == nil && part.of == p.clock:
			seen = append(seen, part.name)
		case err == nil:
			seen = append(seen, fmt.Sprintf("%s in %v", part.name, took.Round(time.Millisecond)))
		case errors.Is(err, broker.ErrUnsupported), errors.Is(err, ErrMissing):
			r.skip("%s: %v", part.name, err)
		default:
			r.found = append(r.found, Checkup{Check: r.name, State: CheckNotAsked, Text: "the " + part.name + " could not be reached", Err: err})
		}
	}
	if len(seen) > 0 {
		r.ok("%s", strings.Join(seen, ", "))
	}
}

func (p *patient) checkClocks(r *report) {
	off, err := p.clock.get()
	if !r.asked(err) {
		return
	}
	if off.Abs() > skewed {
		r.find("set this host's clock (chronyc makestep)", "the store's clock is %+.1fs off this host's: times that are shown here are wrong by that", off.Seconds())
	}
	seats, err := p.seats.get()
	if !r.asked(err) {
		return
	}
	for i := range seats {
		if s := &seats[i]; s.Alive() && s.Skew != nil && s.Skew.Abs() > skewed {
			r.find("set the clock of "+cmp.Or(s.Status.Host, s.Owner)+" (chronyc makestep)",
				"the clock of %s is %+.1fs off the store's: its not-before, pauses and the times in its logs are wrong by that", s.Owner, s.Skew.Seconds())
		}
	}
	if len(r.found) == 0 {
		r.ok("this host's is %+.2fs off the store's", off.Seconds())
	}
}

// maxAttempt is the MaxAttempts to check against; 0 = not known.
func (p *patient) maxAttempt() (most int, err error) {
	cards, err := p.judged()
	for _, c := range cards {
		if c.MaxAttempts < 0 || most >= 0 && c.MaxAttempts > most {
			most = c.MaxAttempts
		}
	}
	if p.do.Card == nil {
		most = cmp.Or(most, p.t.MaxAttempts)
	}
	return most, err
}

func (p *patient) checkReceives(r *report) {
	policy, err := p.policy.get()
	if !r.asked(err) {
		return
	}
	if d := p.do.NotBefore; d > 0 {
		q := ahead.Queue{Keeps: policy.Retention, Receives: policy.MaxReceives, Hop: p.t.Queue.Limits().MaxNack}
		if most, bounded := q.Longest(); bounded && d > most {
			r.find("WorkerConfig.Carry, which sends such a job anew in time; or a longer retention and a higher maxReceiveCount",
				"a job may be due %s ahead, and is lost to the dead letters (too-early) above %s: the queue keeps messages for %s and gives them up after %s receives",
				ahead.Days(d), ahead.Days(most), forever(policy.Retention), unlimited(policy.MaxReceives))
		}
	}
	most, err := p.maxAttempt()
	switch n := policy.MaxReceives; {
	case n == 0:
		r.ok("the queue gives up no message by itself")
	case most == 0 && !r.asked(err):
	case most == 0:
		r.skip("MaxAttempts is not known: no worker has said it")
	case most < 0:
		r.find(p.setting(`remove the redrive policy`, "--clear-dead-letter-policy", 0),
			"the queue moves a message to %s after %d receives, and attempts are unlimited", last(policy.Target), n)
	case n < 2*most:
		r.find(p.setting(fmt.Sprintf("set maxReceiveCount to %d or more", 2*most), fmt.Sprintf("--max-delivery-attempts=%d", min(100, 2*most)), 2*most),
			"the queue moves a message to %s after %d receives, and MaxAttempts is %d: a receive that never starts a handler counts, too", last(policy.Target), n, most)
	default:
		r.ok("%d receives for %d attempts", n, most)
	}
}

// setting is how the queue is set: in AWS's and Google's command, else in words.
func (p *patient) setting(words, pubsub string, receives int) string {
	d, _ := broker.As[broker.Describer](p.t.Queue)
	if d == nil {
		return words
	}
	policy, _ := p.policy.get()
	switch of := d.Describe(); of.System {
	case "aws_sqs":
		value := ""
		if receives > 0 {
			value = fmt.Sprintf(`{\"deadLetterTargetArn\":\"%s\",\"maxReceiveCount\":\"%d\"}`, policy.Target, min(1000, receives))
		}
		return fmt.Sprintf(`aws sqs set-queue-attributes --queue-url %s --attributes '{"RedrivePolicy":"%s"}'`, of.Address, value)
	case "gcp_pubsub":
		return "gcloud pubsub subscriptions update " + of.Name + " " + pubsub
	}
	return words
}

func forever(d time.Duration) string {
	if d == 0 {
		return "ever"
	}
	return ahead.Days(d)
}

func kept(d time.Duration) string {
	if d == 0 {
		return "for ever"
	}
	return ahead.Days(d)
}

func unlimited(n int) string {
	if n == 0 {
		return "any number of"
	}
	return fmt.Sprint(n)
}

// last is the name at the end of an ARN or a path.
func last(s string) string { return s[strings.LastIndexAny(s, ":/")+1:] }

func (p *patient) checkRetention(r *report) {
	policy, err := p.policy.get()
	if !r.asked(err) {
		return
	}
	letters, err := p.deadPolicy.get()
	if err != nil && !errors.Is(err, broker.ErrUnsupported) && !r.asked(err) {
		return
	}
	least, dead, ever := policy.Retention+letters.Retention, kept(letters.Retention), ""
	if err != nil {
		dead = "for a time that is not known"
	}
	if policy.Retention == 0 || err == nil && letters.Retention == 0 {
		ever = ": no retention is long enough for a queue that keeps for ever, and what is older than the keys becomes a letter of class " + onceq.ClassUnproven + ", and does not run"
	}
	cards, err := p.judged()
	keys := time.Duration(0)
	for _, c := range cards {
		if c.Retention > 0 && (keys == 0 || c.Retention < keys) {
			keys = c.Retention
		}
	}
	if p.do.Card == nil {
		keys = cmp.Or(keys, p.t.Retention)
	}
	switch {
	case keys == 0 && !r.asked(err):
	case keys == 0:
		r.skip("how long keys are kept is not known: no worker has said it")
	case keys < least:
		r.find("ProcessorConfig.Retention: "+least.String()+" or more",
			"keys are kept for %s, and a message may be %s in the queue and its letter %s in the dead-letter queue: what comes later is unproven, or done again",
			ahead.Days(keys), kept(policy.Retention), dead)
	default:
		r.ok("messages %s, letters %s, keys %s%s", kept(policy.Retention), dead, ahead.Days(keys), ever)
	}
}

func (p *patient) checkRedrive(r *report) {
	letters, err := p.deadPolicy.get()
	if !r.asked(err) {
		return
	}
	dead := ownName(p.t.DeadLetters)
	if letters.MaxReceives > 0 {
		r.find("remove the redrive policy of the dead-letter queue", "%s moves a letter to %s after %d receives, and each look at letters is one: letters go where nobody looks for them",
			dead, last(letters.Target), letters.MaxReceives)
	}
	policy, err := p.policy.get()
	if err == nil && policy.Target != "" && dead != "" && !strings.Contains(policy.Target, "/topics/") && last(policy.Target) != dead {
		r.find("let the redrive policy name "+dead+", or remove it", "the queue moves messages to %s after %d receives, and letters are looked for in %s", last(policy.Target), policy.MaxReceives, dead)
	}
}

func (p *patient) checkLeases(r *report) {
	left, err := p.held.get()
	if !r.asked(err) {
		return
	}
	short := 0
	for _, d := range left {
		if d < shortLease {
			short++
		}
	}
	switch {
	case len(left) == 0:
		r.skip("no card names a job that runs")
	case short > 0:
		r.find("ProcessorConfig.Lease and WorkerConfig.Visibility: 30s or more; if they are, look why the store is slow (lease_margin_seconds)",
			"%d of %d claims that live workers hold end within %v (one in %v): one slow call of the store, and another worker takes the job over",
			short, len(left), shortLease, slices.Min(left).Round(time.Second))
	default:
		r.ok("%d claims, each for %v more at least", len(left), slices.Min(left).Round(time.Second))
	}
}

// durations are the live workers' times by type, the longest of each.
func (p *patient) durations() (map[string]control.Quantiles, error) {
	cards, err := p.live()
	if p.do.Card != nil {
		cards = append(cards, p.do.Card)
	}
	all := map[string]control.Quantiles{}
	for _, c := range cards {
		for typ, q := range c.Durations {
			was := all[typ]
			all[typ] = control.Quantiles{P50: max(was.P50, q.P50), P95: max(was.P95, q.P95), Max: max(was.Max, q.Max)}
		}
	}
	if len(all) > 0 {
		err = nil
	}
	return all, err
}

// nearly is from which part of its Timeout on a job's time is a finding.
const nearly = 0.8

// checkTypes calls look for the times of each type beside the settings of each card, until it
// has found something for the type.
func (p *patient) checkTypes(r *report, look func(c *control.WorkerStatus, typ string, q control.Quantiles) (found bool)) {
	took, err := p.durations()
	cards, cerr := p.judged()
	if !r.asked(cmp.Or(err, cerr)) {
		return
	}
	if len(took) == 0 {
		r.skip("no job has ended in the last five minutes")
	}
	for _, typ := range slices.Sorted(maps.Keys(took)) {
		_ = slices.ContainsFunc(cards, func(c *control.WorkerStatus) bool { return look(c, typ, took[typ]) })
	}
}

func (p *patient) checkTimes(r *report) {
	p.checkTypes(r, func(c *control.WorkerStatus, typ string, q control.Quantiles) bool {
		limit := c.Timeout
		if own, ok := c.Timeouts[typ]; ok {
			limit = own
		}
		if limit <= 0 || float64(q.P95) < nearly*float64(limit) {
			return false
		}
		r.find(fmt.Sprintf("JobOptions.Timeout: %v or more; or make the jobs shorter", (2*q.P95).Round(time.Second)),
			"95 of 100 jobs%s take up to %v, and Timeout is %v", ofType(typ), q.P95.Round(time.Millisecond), limit)
		return true
	})
}

func (p *patient) checkDrain(r *report) {
	p.checkTypes(r, func(c *control.WorkerStatus, typ string, q control.Quantiles) bool {
		drain := max(0, c.DrainTimeout)
		share := over(q, drain)
		if c.DrainTimeout == 0 || share < 0.01 {
			return false
		}
		comes := "they run again"
		if c.Interrupted == "park" {
			comes = "they are parked"
		}
		r.find(fmt.Sprintf("WorkerConfig.DrainTimeout: %v or more, and the orchestrator's grace 7s above it; or save steps, so that the rest goes on elsewhere", q.Max.Round(time.Second)),
			"a deploy would cut %.0f %% of the jobs%s, and %s: they take up to %v (p95 %v), and DrainTimeout is %v",
			100*share, ofType(typ), comes, q.Max.Round(time.Millisecond), q.P95.Round(time.Millisecond), drain)
		return true
	})
}

func ofType(typ string) string {
	if typ == "" {
		return ""
	}
	return " of type " + typ
}

// over is about what part of the jobs takes longer than d. Between two quantiles the logarithm of
// the time is taken to rise evenly.
func over(q control.Quantiles, d time.Duration) float64 {
	between := func(low, high time.Duration, from, to float64) float64 {
		if low <= 0 || low >= high {
			return to
		}
		return from + (to-from)*math.Log(float64(high)/float64(d))/math.Log(float64(high)/float64(low))
	}
	switch {
	case d >= q.Max:
		return 0
	case d >= q.P95:
		return between(q.P95, q.Max, 0, 0.05)
	case d >= q.P50 && d > 0:
		return between(q.P50, q.P95, 0.05, 0.5)
	}
	return 1
}

func (p *patient) checkSeats(r *report) {
	seats, err := p.seats.get()
	if !r.asked(err) {
		return
	}
	live := 0
	for i := range seats {
		s := &seats[i]
		switch c := s.Status; {
		case s.State == StateDead:
			r.find("onceq jobs stalled "+p.t.label(), "worker %s has not been seen for %v, and may have left jobs", s.Owner, s.Ago.Round(time.Second))
		case !s.Alive():
		case c == nil:
			live++
		default:
			live++
			if c.Outage != "" {
				r.find("look at the "+c.Outage+", and at the worker's way to it", "worker %s: the %s does not answer, since %s", s.Owner, c.Outage, c.OutageSince.UTC().Format(time.RFC3339))
			}
			if c.NoRules != "" {
				r.find("give its role the right to read the store's records of scope :control", "worker %s cannot read operators' rules, so no pause reaches it: %s", s.Owner, c.NoRules)
			}
		}
	}
	switch {
	case live == 0 && p.do.Card == nil:
		r.find("start a worker", "no worker has a seat: none runs, or it has none (Lambda, Control.Every < 0)")
	case len(r.found) == 0:
		r.ok("%d live", live)
	}
}

// checkSettings finds what the live workers, and the deployment, do not agree on.
func (p *patient) checkSettings(r *report) {
	seats, err := p.seats.get()
	if !r.asked(err) {
		return
	}
	if p.do.Card != nil {
		c := *p.do.Card
		c.Partial = c.Partial || len(c.Types) == 0 // the file of a card has no list of types
		seats = append(slices.Clone(seats), WorkerState{Owner: "the new deployment", State: string(onceq.StateRunning), Status: &c})
	}
	w := SumUp(seats)
	const one = "give all workers of the queue one "
	differ(r, "Scope", w.Scopes, one+"ProcessorConfig.Scope: until then each job may be done once for each")
	differ(r, "Retention", w.Retentions, one+"ProcessorConfig.Retention")
	differ(r, "Defaults.Interrupted", w.Interrupted, one+"policy for interrupted jobs")
	if p.do.Card != nil {
		return // a deployment is there to change the others
	}
	bounds := map[string][]string{}
	for i := range seats {
		if s := &seats[i]; s.Alive() && s.Status != nil && s.Status.MaxAttempts != 0 {
			k := fmt.Sprintf("%d, %v, %v", s.Status.MaxAttempts, s.Status.Timeout, s.Status.DrainTimeout)
			bounds[k] = append(bounds[k], s.Owner)
		}
	}
	const end = "end the deployment, or start the workers anew that it has left out"
	differ(r, "MaxAttempts, Timeout and DrainTimeout", bounds, end)
	differ(r, "version", w.Versions, end)
}

func differ[K cmp.Ordered](r *report, what string, by map[K][]string, mend string) {
	if len(by) < 2 {
		return
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%q (%d: %s)", fmt.Sprint(k), len(by[k]), slices.Min(by[k])))
	}
	r.find(mend, "workers differ in %s: %s", what, strings.Join(parts, ", "))
}

func (p *patient) checkTable(r *report) { r.tell(p.table) }

func (p *patient) checkFailed(r *report) {
	failed, err := p.failed.get()
	if e := (*ScanError)(nil); errors.As(err, &e) {
		r.skip("%v", e)
		return
	}
	if !r.asked(err) {
		return
	}
	if len(failed) == 0 {
		r.ok("no key has failed")
		return
	}
	seen, err := p.letters.get()
	if !p.looked(r, seen, err) {
		return
	}
	var lost []string
	for _, f := range failed {
		if max(seen.of[f.Key], seen.of[dedupe.Key{Key: f.Key.Key}]) < f.Fence { // older letters name no scope
			lost = append(lost, f.Key.String())
		}
	}
	if len(lost) > 0 {
		r.find("onceq reconcile "+p.t.label()+" --expect FILE --effects LEDGER --letters --resend",
			"%d of %d failed keys have no dead letter (%s): nothing brings these jobs back, unless somebody has removed the letters on purpose", len(lost), len(failed), some(lost))
		return
	}
	r.ok("each of %d failed keys has its letter", len(failed))
}

// looked reports whether the letters were all seen.
func (p *patient) looked(r *report, seen lettersSeen, err error) bool {
	switch {
	case errors.Is(err, dlq.ErrIncomplete):
		r.skip("there are more than %d letters", seen.n)
		return false
	case !r.asked(err):
		return false
	case !seen.asked:
		r.skip("a look gives each letter one receive more: --letters")
	}
	return seen.asked
}

func (p *patient) checkObsolete(r *report) {
	seen, err := p.letters.get()
	if !errors.Is(err, dlq.ErrIncomplete) && !p.looked(r, seen, err) {
		return
	}
	done, err := p.obsolete.get()
	if !r.asked(err) {
		return
	}
	if len(done) > 0 {
		ks := make([]string, len(done))
		for i, k := range done {
			ks[i] = k.String()
		}
		r.find("onceq dlq replay "+p.t.label()+" --key "+done[0].Key+", and so for each: a replay removes the letter of a done job, and sends nothing",
			"%d of %d letters are of jobs that are done (%s): they keep the alarm on", len(done), min(len(seen.of), sampled), some(ks))
	}
	if seen.other > 0 {
		r.find("onceq dlq show "+p.t.label()+" ID, somebody decides which payload is right, then onceq dlq purge "+p.t.label()+" --class "+onceq.ClassMismatch,
			"%d of %d letters have another payload than the job that has their key: no replay runs them", seen.other, seen.n)
	}
	if len(done) == 0 && seen.other == 0 {
		r.ok("%d letters", seen.n)
	}
}

// some are the first few names.
func some(names []string) string {
	text := strings.Join(names[:min(3, len(names))], ", ")
	if len(names) > 3 {
		text += ", …"
	}
	return text
}

func (p *patient) checkPauses(r *report) {
	q, err := p.rules.get()
	if !r.asked(err) {
		return
	}
	for _, rule := range q.Rules {
		switch d := time.Since(rule.Made); {
		case strings.HasPrefix(rule.Reason, controlstore.WentBack):
			r.find("onceq reconcile "+p.t.label()+" --expect FILE --effects LEDGER tells what was lost and what ran twice; then onceq queue resume "+p.t.label()+" "+rule.ID+" --reason …",
				"paused by %s at %s: %s. What the store has forgotten may run again", rule.By, rule.Made.UTC().Format(time.RFC3339), rule.Reason)
		case rule.Do == control.Pause && d > pausedFor:
			r.find("onceq queue resume "+p.t.label()+" "+rule.ID+" --reason …", "paused for %v by %s: %s; it ends at %s",
				d.Round(time.Minute), rule.By, rule.Reason, rule.Until.UTC().Format(time.RFC3339))
		}
	}
	if len(r.found) == 0 {
		r.ok("%d rules in force", len(q.Rules))
	}
}

// checkRights asks for the caller's own rights, where that has no effect.
func (p *patient) checkRights(r *report) {
	_, err := p.renew.get()
	if _, away := p.clock.get(); err != nil && away == nil && !errors.Is(err, errSilent) {
		r.skip("this caller may look, and not change the store: %v; those of the workers' role are not asked", err)
	} else if r.asked(err) {
		r.ok("this caller may read and change the store (a renewal of a claim that nobody has); those of the workers' role are not asked")
	}
	_, err = p.write.get()
	switch {
	case errors.Is(err, ErrMissing):
	case !p.do.Write:
		r.skip("to claim and to remove keys: --write; to receive, send and delete: no service tells that without an effect")
	case r.asked(err):
		r.ok("this caller may claim, finish and remove a key")
	}
}
