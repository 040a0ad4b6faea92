//go:build unix

package chaos

import (
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	headerOrder = "Order"
	headerFence = "Fence"
	headerKey   = "Idempotency-Key"
)

// api is a payment service. It pays once for a key, and at each call without one.
type api struct {
	mu      sync.Mutex
	keys    map[string]bool
	effects map[string][]uint64 // the fences of the payments of each order
	repeats int                 // calls with a key that was known
}

func newAPI() *api { return &api{keys: map[string]bool{}, effects: map[string][]uint64{}} }

// ServeHTTP answers a while after it has paid, so that its caller may be gone by then.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fence, err := strconv.ParseUint(r.Header.Get(headerFence), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.pay(r.Header.Get(headerOrder), r.Header.Get(headerKey), fence)
	<-time.After(rand.N(20 * time.Millisecond))
}

func (a *api) pay(order, key string, fence uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if key != "" && a.keys[key] {
		a.repeats++
		return
	}
	if key != "" {
		a.keys[key] = true
	}
	a.effects[order] = append(a.effects[order], fence)
}

// paid are the effects so far, and how many calls were repeated.
func (a *api) paid() (effects map[string][]uint64, repeats int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	effects = maps.Clone(a.effects)
	for order, fences := range effects {
		effects[order] = slices.Clone(fences)
	}
	return effects, a.repeats
}
