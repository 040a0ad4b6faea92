package webonceq

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

// This file owns what goes on beside requests: the streams that tell browsers what has changed, and
// the goroutines of plans. A stream is its request's goroutine. life.mu guards what is told of
// plans, and that nothing begins after Close.

const (
	// streamFor is how long a stream lasts. A browser comes again by itself, and is asked anew who
	// it is.
	streamFor = 10 * time.Minute
	// beatEvery is how often a stream says that it is there.
	beatEvery = 10 * time.Second
	// writeFor bounds a write to a browser that does not read.
	writeFor = 15 * time.Second
)

// spawn does something beside the request that asked for it; false = the page is closed.
func (p *Page) spawn(do func(context.Context)) bool {
	p.life.mu.Lock()
	defer p.life.mu.Unlock()
	if p.life.closed {
		return false
	}
	p.life.all.Go(func() { do(p.life.base) })
	return true
}

// tell wakes the streams.
func (p *Page) tell() {
	p.life.mu.Lock()
	defer p.life.mu.Unlock()
	close(p.life.changed)
	p.life.changed = make(chan struct{})
}

func (l *life) change() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Close ends the streams, and stops what runs in order: letters that are held go back to their
// queue. It returns when nothing runs any more, or ctx has ended. Later requests get a 503.
func (p *Page) Close(ctx context.Context) error {
	p.life.mu.Lock()
	p.life.closed = true
	p.life.mu.Unlock()
	p.life.cut()
	err := errors.Join(p.running.Close(ctx), p.board.Close(ctx))
	done := make(chan struct{})
	go func() {
		p.life.all.Wait()
		close(done)
	}()
	select {
	case <-done:
		return err
	case <-ctx.Done():
		return errors.Join(err, context.Cause(ctx))
	}
}

// events tells a browser when the screen that it shows has changed. The screen's name is the query
// "live": board, letters:QUEUE, act:ID, or plan:ID. What is new the browser then asks for itself.
func (p *Page) events(a *ask) error {
	out := http.NewResponseController(a.w)
	topic := a.r.URL.Query().Get("live")
	if p.life.streams.Add(1) > MaxStreams {
		p.life.streams.Add(-1)
		a.w.Header().Set("Retry-After", "15")
		http.Error(a.w, "enough browsers are told already: ask again", http.StatusTooManyRequests)
		return nil
	}
	defer p.life.streams.Add(-1)
	h := a.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	ctx, cancel := context.WithTimeout(a.ctx(), streamFor)
	defer cancel()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	last := ""
	for {
		board, acts, plans := p.board.Changed(), p.running.Changed(), p.life.change()
		text := "event: beat\ndata:\n\n"
		state := p.stateOf(a, topic)
		s, _ := p.board.Look(ctx)
		if now := a.version(s, topic, state); now != last {
			data, _ := json.Marshal(map[string]string{"id": topic, "version": now})
			text, last = "event: part\ndata: "+string(data)+"\n\n", now
		}
		_ = out.SetWriteDeadline(time.Now().Add(writeFor)) // where the server cannot, its own timeout counts
		if _, err := a.w.Write([]byte(text)); err != nil {
			return nil
		}
		if out.Flush() != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.life.base.Done():
			return nil
		case <-beat.C:
		case <-board:
		case <-acts:
		case <-plans:
		}
	}
}

// stateOf is a name of what a topic is about, beside the board; "" = of nothing that he sees.
func (p *Page) stateOf(a *ask, topic string) string {
	kind, name, _ := strings.Cut(topic, ":")
	switch kind {
	case "board":
		return stateOfActs(a.actList())
	case "letters":
		if look, err := p.board.Letters(name); err == nil && a.who.sees(name) {
			return stateOfLook(look)
		}
	case "act":
		if x, ok := p.running.Act(name); ok && a.seesActOf(x.Queue) {
			return stateOfAct(&x)
		}
	case "plan":
		p.plans.mu.Lock()
		defer p.plans.mu.Unlock()
		if x := p.plans.m[name]; x != nil && a.who.sees(x.queue) {
			return x.state()
		}
	}
	return ""
}
