package pubsubpush

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// This file owns Google's keys, and when they are fetched. The requests' goroutines call get. The
// lock mu has all that changes. One goroutine at most fetches, beside the requests that wait for
// it, and ends within fetchLimit.

const (
	// fetchLimit and fetchMost bound a fetch.
	fetchLimit = 5 * time.Second
	fetchMost  = 256 << 10
	// freshLeast, freshMost and freshElse bound for how long keys are taken without asking again:
	// the answer says it, mostly a few hours.
	freshLeast = time.Minute
	freshMost  = 24 * time.Hour
	freshElse  = time.Hour
	// reuse is how much longer they do while they cannot be fetched. Pub/Sub's pushes would all
	// fail otherwise. A key that Google has withdrawn is taken for that long.
	reuse = 6 * time.Hour
	// again is the least time between two fetches, whatever tokens come: also after a failure, and
	// for a key that is not among them.
	again = 30 * time.Second
)

var errUnknownKey = errors.New("pubsubpush: no key of that id")

// keys are a set of JSON Web Keys at an address.
type keys struct {
	url    string
	client *http.Client

	mu      sync.Mutex
	byID    map[string]*rsa.PublicKey
	fresh   time.Time     // until when they are taken without asking
	next    time.Time     // when they may be fetched again
	flight  chan struct{} // closed at the end of the fetch that is under way; nil = none is
	failure error         // of the last fetch
}

// get returns the key with an id. It is errUnknownKey where there is none, and another error where
// the keys cannot be had.
func (k *keys) get(ctx context.Context, id string) (*rsa.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for asked := false; ; asked = true {
		now := time.Now()
		key, stale := k.byID[id], !now.Before(k.fresh)
		if key != nil && !stale {
			return key, nil
		}
		// It is fetched once for this request, unless it was just now.
		if !asked && (k.flight != nil || !now.Before(k.next)) {
			if key != nil && k.failure != nil && now.Before(k.fresh.Add(reuse)) {
				k.begin() // a server that hangs would hold up each request that comes meanwhile
				return key, nil
			}
			if err := k.wait(ctx); err != nil {
				return nil, err
			}
			continue
		}
		switch {
		case stale && !now.Before(k.fresh.Add(reuse)):
			return nil, fmt.Errorf("pubsubpush: no keys: %w", k.failure)
		case key == nil && stale: // it may be a new one
			return nil, fmt.Errorf("pubsubpush: no keys: %w", k.failure)
		case key == nil:
			return nil, errUnknownKey
		}
		return key, nil
	}
}

// begin begins a fetch where none is under way.
func (k *keys) begin() {
	if k.flight == nil {
		k.flight = make(chan struct{})
		go k.fetch()
	}
}

// wait waits for a fetch, and begins one where none is under way. It gives up the lock meanwhile.
func (k *keys) wait(ctx context.Context) error {
	k.begin()
	flight := k.flight
	k.mu.Unlock()
	defer k.mu.Lock()
	select {
	case <-flight:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fetch asks for the keys. It belongs to no request, because others wait for it, too.
func (k *keys) fetch() {
	ctx, cancel := context.WithTimeout(context.Background(), fetchLimit)
	defer cancel()
	byID, fresh, err := k.ask(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.failure = err; err == nil {
		k.byID, k.fresh = byID, now.Add(fresh)
	}
	k.next = now.Add(again)
	close(k.flight)
	k.flight = nil
}

func (k *keys) ask(ctx context.Context) (byID map[string]*rsa.PublicKey, fresh time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, 0, err
	}
	res, err := k.client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("%s answers %s", k.url, res.Status)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, fetchMost+1))
	if err != nil {
		return nil, 0, err
	}
	if len(text) > fetchMost {
		return nil, 0, fmt.Errorf("%s answers more than %d bytes", k.url, fetchMost)
	}
	byID, err = readKeys(text)
	return byID, freshFor(res.Header), err
}

// readKeys reads a set of JSON Web Keys. What is no RSA key for signatures is left out.
func readKeys(text []byte) (map[string]*rsa.PublicKey, error) {
	var set struct {
		Keys []struct {
			Kid, Kty, Use, Alg, N, E string
		}
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("the keys cannot be read: %w", err)
	}
	byID := map[string]*rsa.PublicKey{}
	for _, j := range set.Keys {
		n, errN := base64.RawURLEncoding.DecodeString(j.N)
		e, errE := base64.RawURLEncoding.DecodeString(j.E)
		if errN != nil || errE != nil || j.Kid == "" || j.Kty != "RSA" || j.Use != "" && j.Use != "sig" || j.Alg != "" && j.Alg != "RS256" {
			continue
		}
		key := rsa.PublicKey{N: new(big.Int).SetBytes(n)}
		if exponent := new(big.Int).SetBytes(e); exponent.BitLen() < 32 {
			key.E = int(exponent.Int64())
		}
		if bits := key.N.BitLen(); bits < 2048 || bits > 8192 || key.E < 3 || key.E%2 == 0 {
			continue
		}
		byID[j.Kid] = &key
	}
	if len(byID) == 0 {
		return nil, errors.New("there is no RSA key among the keys")
	}
	return byID, nil
}

// freshFor is how long an answer holds, as it says itself, within bounds.
func freshFor(header http.Header) time.Duration {
	fresh := freshElse
	for part := range strings.SplitSeq(header.Get("Cache-Control"), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if seconds, err := strconv.Atoi(value); err == nil && strings.EqualFold(name, "max-age") {
			age, _ := strconv.Atoi(header.Get("Age"))
			seconds = min(max(0, seconds), int(freshMost/time.Second)) - max(0, age)
			fresh = time.Duration(max(0, seconds)) * time.Second
		}
	}
	return min(max(fresh, freshLeast), freshMost)
}
