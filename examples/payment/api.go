package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dlq"
)

// keysLive is how long the API knows a key.
const keysLive = 24 * time.Hour

// slowBank is how long the charge of slow takes: longer than the program waits for it.
const slowBank = 2*callTimeout + callTimeout/2

// api is a payment API as there are many. Some customers have a habit: slow's bank is slow, once;
// busy is told once to come back; poor's card is declined.
type api struct {
	mu      sync.Mutex
	answers map[string]answer // by idempotency key
	met     map[string]bool
	charges []order
}

type answer struct {
	at      time.Time
	status  int
	body    string
	running bool
}

func newAPI() *api { return &api{answers: make(map[string]answer), met: make(map[string]bool)} }

// ServeHTTP answers a charge.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	got := a.answer(key, o)
	if got.running {
		<-time.After(slowBank) // who asked may be gone by then; the charge is made all the same
		got = a.charge(key, o)
	}
	if got.status == http.StatusTooManyRequests || got.status == http.StatusConflict {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(got.status)
	fmt.Fprint(w, got.body)
}

// answer repeats what the API said to a key that it knows, and charges one that it does not know.
func (a *api) answer(key string, o order) answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := !a.met[o.Customer]
	a.met[o.Customer] = true
	known, ok := a.answers[key]
	switch {
	case ok && known.running:
		return answer{status: http.StatusConflict}
	case ok && time.Since(known.at) < keysLive:
		return known
	case o.Customer == "busy" && first:
		return answer{status: http.StatusTooManyRequests} // nothing happened: the key stays new
	case o.Customer == "poor":
		return a.keep(key, answer{status: http.StatusPaymentRequired})
	case o.Customer == "slow" && first:
		return a.keep(key, answer{running: true})
	}
	return a.chargeLocked(key, o)
}

func (a *api) charge(key string, o order) answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.chargeLocked(key, o)
}

func (a *api) chargeLocked(key string, o order) answer {
	a.charges = append(a.charges, o)
	return a.keep(key, answer{status: http.StatusOK, body: fmt.Sprintf(`{"Charge": "ch_%d"}`, len(a.charges))})
}

func (a *api) keep(key string, w answer) answer {
	w.at = time.Now()
	a.answers[key] = w
	return w
}

// count is how often the customer was charged.
func (a *api) count(customer string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.charges {
		if o.Customer == customer {
			n++
		}
	}
	return n
}

func (a *api) report(out io.Writer) {
	var counts []string
	for _, customer := range []string{"ann", "slow", "busy", "poor"} {
		c := fmt.Sprintf("%s %d", customer, a.count(customer))
		if a.count(customer) > 1 {
			c += " (TWICE!)"
		}
		counts = append(counts, c)
	}
	fmt.Fprintln(out, "  charged:", strings.Join(counts, ", "))
}

// line tells how a delivery ended, and why.
func line(_ context.Context, r *onceq.JobReport) string {
	text := fmt.Sprintf("  worker:  %-7s %s", dlq.Printable(r.Key.Key), r.Outcome)
	if r.Err != "" {
		_, why, found := strings.Cut(r.Err, `": `) // without the URL
		if !found {
			why = r.Err
		}
		text += "\n                   because " + dlq.Printable(why)
	}
	return text
}
