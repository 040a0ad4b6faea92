package sqsfake

import (
	"context"
	"slices"
)

// call is one request on its way through the server.
type call struct {
	a        *account
	ctx      context.Context //nolint:containedctx // of one request, as in http.Request
	base     string          // scheme and host, as the client sees the server
	trace    string          // the request's X-Amzn-Trace-Id
	in       input
	q        *queue
	settings *settings // q's, when the call began
	fault    *Fault
	out      writer
	brought  int // messages, of a receive
}

// eachEntry applies f to the entries of a batch, and writes the answer.
func (c *call) eachEntry(f func(*entry) *apiError) {
	results := make([]*apiError, len(c.in.entries))
	for i := range c.in.entries {
		if results[i] = c.fault.entry(i); results[i] != nil && !c.fault.Applied {
			continue
		}
		if err := f(&c.in.entries[i]); results[i] == nil {
			results[i] = err
		}
	}
	c.writeBatch(results, shuffle(c.q.rnd, len(results)), nil)
}

// writeBatch writes a batch's answer, in the order that places has; more adds to that of an entry
// that succeeded. A list without entries is left out.
func (c *call) writeBatch(results []*apiError, order places, more func(w *writer, i int)) {
	w := &c.out
	list := func(key string, listed func(*apiError) bool, write func(i int)) {
		if !slices.ContainsFunc(results, listed) {
			return
		}
		w.key(key)
		w.open('[')
		for _, i := range order[:len(results)] {
			if listed(results[i]) {
				w.open('{')
				w.field("Id", c.in.entries[i].id)
				write(int(i))
				w.close('}')
			}
		}
		w.close(']')
	}
	w.open('{')
	list("Successful", func(err *apiError) bool { return err == nil }, func(i int) {
		if more != nil {
			more(w, i)
		}
	})
	list("Failed", func(err *apiError) bool { return err != nil }, func(i int) {
		err := results[i]
		w.key("SenderFault")
		w.boolean(err.fault() == "Sender")
		w.field("Code", err.code)
		w.field("Message", err.message)
	})
	w.close('}')
}
