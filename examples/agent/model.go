package main

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// This file owns the provider: a server that answers in the place of a language model, and bills
// each call. Its requests come in a goroutine each, and mu guards all that they change.

// model bills a call when it begins, as those do who count what they have computed. A caller who is
// gone by then pays all the same. Where a call has an idempotency key that the model knows, it
// gives the first answer again, unpaid.
type model struct {
	think time.Duration // how long a call takes, about
	most  int           // so many calls at once; more get a 429. 0 = any number
	began func(r *http.Request, paid int)

	mu     sync.Mutex
	known  map[string]*call // by key
	runs   int              // at the moment
	ledger ledger
}

// ledger is what the model has billed, and what it has not.
type ledger struct {
	Paid     map[string]int // by what the call was for
	Sum      int
	Repeated int // came again under a key that was known, and were not paid
	Refused  int // 429, and 409 while the first call with the key still ran
}

// call is one that has a key.
type call struct {
	done bool
	text string
}

func newModel(think time.Duration, most int) *model {
	return &model{think: think, most: most, known: map[string]*call{}, ledger: ledger{Paid: map[string]int{}}}
}

// ServeHTTP answers a call.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c, status, paid := m.begin(r.Header.Get("Idempotency-Key"), q)
	switch {
	case status != http.StatusOK:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(status)
		return
	case paid > 0:
		if m.began != nil {
			m.began(r, paid)
		}
		<-time.After(m.think/2 + rand.N(m.think)) // it goes on when its caller is gone
		m.answered(c)
	}
	_ = json.NewEncoder(w).Encode(c.text)
}

// begin bills a call. paid is 0 for a repeated one, else how many calls were paid by now.
func (m *model) begin(key string, q request) (c *call, status, paid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch c = m.known[key]; {
	case c != nil && c.done:
		m.ledger.Repeated++
		return c, http.StatusOK, 0
	case c != nil:
		m.ledger.Refused++
		return nil, http.StatusConflict, 0
	case m.most > 0 && m.runs >= m.most:
		m.ledger.Refused++
		return nil, http.StatusTooManyRequests, 0
	}
	c = &call{text: "an answer to " + q.For}
	if key != "" {
		m.known[key] = c
	}
	m.runs++
	m.ledger.Paid[q.For]++
	m.ledger.Sum++
	return c, http.StatusOK, m.ledger.Sum
}

func (m *model) answered(c *call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs--
	c.done = true
}

// bill is the ledger by now.
func (m *model) bill() ledger {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.ledger
	l.Paid = maps.Clone(l.Paid)
	return l
}
