package main

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/onceq/onceq"
)

// press prints pages and keeps bookmarks. A real one keeps them in a database. A worker that dies
// between a page and its bookmark prints that page again: where that matters, write both in one
// transaction.
type press struct {
	out    io.Writer
	onPage func(page int)
	stop   func()
	left   int // reports that are not done yet

	mu        sync.Mutex
	printed   map[int]int    // how often, by page
	bookmarks map[string]int // the last page
	records   []onceq.JobReport
}

func newPress(out io.Writer) *press {
	return &press{out: out, onPage: func(int) {}, printed: make(map[int]int), bookmarks: make(map[string]int)}
}

func (p *press) bookmark(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bookmarks[id]
}

func (p *press) add(id string, page int) {
	p.mu.Lock()
	p.printed[page]++
	p.bookmarks[id] = page
	p.mu.Unlock()
	p.onPage(page)
}

func (p *press) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// JobStarted adds nothing to the context.
func (p *press) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	p.say("  a worker starts the report, attempt %d, behind page %d", j.Attempt, p.bookmark(j.EffectKey("pages")))
	return ctx
}

// JobEnded prints the job report: from it one reads whether a job outlived its timeout, and why
// that was no harm.
func (p *press) JobEnded(_ context.Context, r *onceq.JobReport) {
	heartbeat := "off"
	if r.Heartbeat {
		heartbeat = "on"
	}
	p.say("  %s after %.2f s: visibility %v, heartbeat %s, %d beats, delivery %d",
		r.Outcome, r.Process.Seconds(), r.Visibility, heartbeat, r.Beats, r.Receives)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, *r)
	if r.Outcome == onceq.OutcomeDone {
		p.left--
		p.stop()
	}
}

// count answers how many pages were printed, and how many of them more than once, or never.
func (p *press) count() (total, twice, missing int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for page := 1; page <= pages; page++ {
		n := p.printed[page]
		total += n
		switch {
		case n > 1:
			twice++
		case n == 0:
			missing++
		}
	}
	return total, twice, missing
}

func (p *press) report() {
	total, twice, missing := p.count()
	verdict := "each once"
	if twice+missing > 0 {
		verdict = fmt.Sprintf("%d TWICE, %d missing", twice, missing)
	}
	p.say("  printed: %d pages, %s", total, verdict)
}
