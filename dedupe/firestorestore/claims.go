package firestorestore

import (
	"crypto/rand"
	"maps"
	"sync"

	"github.com/onceq/onceq/dedupe"
)

// maxClaims bounds the claims that nobody settles.
const maxClaims = 10000

// claims are the documents of this store's own claims, as the store has written them. So a renewal
// and a settlement need no read. One that is forgotten costs that read, and nothing else.
type claims struct {
	mu sync.Mutex
	of map[dedupe.Token]*stored
}

// elided stands for saved steps that are too large to be remembered. What depends on them alone is
// whether they change. It is drawn, because nothing that a job saves may be taken for it.
var elided = []byte(rand.Text())

const maxRemembered = 1 << 10

func isElided(state []byte) bool { return len(state) == len(elided) && &state[0] == &elided[0] }

func (c *claims) remember(t dedupe.Token, st *stored) {
	if n := len(st.rec.State); n > maxRemembered {
		light := *st
		light.elided, light.rec.State = n, elided
		light.fields = maps.Clone(st.fields)
		light.fields[fieldState] = toValue(elided)
		st = &light
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || len(c.of) >= maxClaims {
		c.of = make(map[dedupe.Token]*stored)
	}
	c.of[t] = st
}

func (c *claims) recall(t dedupe.Token) *stored {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[t]
}

func (c *claims) forget(t dedupe.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, t)
}
