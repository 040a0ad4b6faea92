package sdkhttp

import "net/http"

// A Pool is how many idle connections a client keeps at least to a host, as many as callers are at
// once; in all, twice as many.
type Pool int

// Widen lets t keep as many. Where it keeps more, or any number in all, that stays.
func (p Pool) Widen(t *http.Transport) {
	t.MaxIdleConnsPerHost = max(t.MaxIdleConnsPerHost, int(p))
	if t.MaxIdleConns != 0 {
		t.MaxIdleConns = max(t.MaxIdleConns, 2*int(p))
	}
}

// Separate is a copy of c with connections of its own, as many as p says. What the user has built
// otherwise is shared.
func (p Pool) Separate(c *http.Client) *http.Client {
	t, ok := Transport(c)
	if !ok {
		return c
	}
	own := *c
	t = t.Clone()
	p.Widen(t)
	own.Transport = t
	return &own
}

// Transport is what sends the client's requests, where that is known: without a Transport it is the
// default one, which keeps two connections.
func Transport(c *http.Client) (*http.Transport, bool) {
	rt := c.Transport
	if rt == nil {
		rt = http.DefaultTransport
	}
	t, ok := rt.(*http.Transport)
	return t, ok && t != nil
}
