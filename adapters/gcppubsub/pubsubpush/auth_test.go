package pubsubpush_test

import (
	"bytes"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubpush"
	"github.com/onceq/onceq/internal/must"
	rigs "github.com/onceq/onceq/internal/rig"
)

// This file owns who may push: tokens, and the server that has Google's keys. The server's lock
// guards its answers, because the handler fetches them in a goroutine of its own.

const (
	audience = "https://orders.run.app/push"
	account  = "pusher@p.iam.gserviceaccount.com"
)

// newKey makes a key; each costs a while, so tests share three.
func newKey(bits int) *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return k
}

var ours = sync.OnceValue(func() [3]*rsa.PrivateKey { return [3]*rsa.PrivateKey{newKey(2048), newKey(2048), newKey(2048)} })

// certs plays the server that publishes the keys.
type certs struct {
	mu     sync.Mutex
	asked  int
	keys   map[string]*rsa.PrivateKey
	header http.Header
	fault  func(*http.Request) (*http.Response, error)
}

func (c *certs) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.fault != nil {
		return c.fault(r)
	}
	type jwk map[string]string
	var set struct {
		Keys []jwk `json:"keys"`
	}
	for id, k := range c.keys {
		set.Keys = append(set.Keys, jwk{"kid": id, "kty": "RSA", "use": "sig", "alg": "RS256", "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())})
	}
	text, err := json.Marshal(set)
	return reply(http.StatusOK, c.header, text), err
}

func reply(status int, header http.Header, body []byte) *http.Response {
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: header, Body: io.NopCloser(bytes.NewReader(body))}
}

// set changes the server.
func (c *certs) set(f func(c *certs)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// fetches is how often it was asked since the last time.
func (c *certs) fetches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.asked
	c.asked = 0
	return n
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// claims of a token that is good now.
func good() map[string]any {
	now := time.Now().Unix()
	return map[string]any{"iss": "https://accounts.google.com", "aud": audience, "iat": now, "exp": now + 3600, "email": account, "email_verified": true, "sub": "1"}
}

// sign makes a token.
func sign(key *rsa.PrivateKey, head, claims map[string]any) string {
	h, err := json.Marshal(head)
	if err != nil {
		panic(err)
	}
	c, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	return signed(key, string(h), string(c))
}

// signed makes a token of texts.
func signed(key *rsa.PrivateKey, head, claims string) string {
	text := b64([]byte(head)) + "." + b64([]byte(claims))
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return text + "." + b64(sig)
}

func rs256(kid string) map[string]any {
	return map[string]any{"alg": "RS256", "kid": kid, "typ": "JWT"}
}

// secured is a rig whose endpoint wants a token.
func secured(t *testing.T, f func(r *rig, c *certs)) {
	t.Helper()
	keys := ours()
	bubble(t, new(runs).Handle, func(r *rig) {
		c := &certs{keys: map[string]*rsa.PrivateKey{"k1": keys[0]}, header: http.Header{"Cache-Control": {"public, max-age=7200, must-revalidate"}, "Age": {"1200"}}}
		r.o.Auth = pubsubpush.OIDC{Audience: audience, ServiceAccount: account, Client: &http.Client{Transport: c}}
		f(r, c)
	})
}

// answerFor is a request with a token.
func (r *rig) answerFor(token string) int {
	return r.serve(with(post(job("ok")), "Authorization", "Bearer "+token)).Code
}

// TestTokens: one kind of token does, and each other is refused.
func TestTokens(t *testing.T) {
	keys := ours()
	but := func(name string, value any) map[string]any {
		c := good()
		if c[name] = value; value == nil {
			delete(c, name)
		}
		return c
	}
	// also is a token with members that encoding/json cannot write: one that comes twice.
	also := func(members string) string {
		text := must.Get(json.Marshal(good()))
		return signed(keys[0], `{"alg":"RS256","kid":"k1"}`, string(text[:len(text)-1])+","+members+"}")
	}
	tamper := func(token string) string {
		parts := strings.Split(token, ".")
		c := must.Get(json.Marshal(but("email", account+"x")))
		return parts[0] + "." + b64(c) + "." + parts[2]
	}
	for _, c := range []struct {
		name   string
		token  func() string
		status int
		reason string
		fetch  int
	}{
		{"good", func() string { return sign(keys[0], rs256("k1"), good()) }, 204, "", 1},
		{"the other spelling of Google", func() string { return sign(keys[0], rs256("k1"), but("iss", "accounts.google.com")) }, 204, "", 1},
		{"expired within the leeway", func() string { return sign(keys[0], rs256("k1"), but("exp", time.Now().Unix()-29)) }, 204, "", 1},
		{"made within the leeway", func() string { return sign(keys[0], rs256("k1"), but("iat", time.Now().Unix()+29)) }, 204, "", 1},
		{"forged", func() string { return sign(keys[1], rs256("k1"), good()) }, 401, "the token's signature is wrong", 1},
		{"tampered", func() string { return tamper(sign(keys[0], rs256("k1"), good())) }, 401, "the token's signature is wrong", 1},
		{"unknown key", func() string { return sign(keys[1], rs256("k2"), good()) }, 401, "the token is signed with an unknown key", 1},
		{"no key id", func() string { return sign(keys[0], map[string]any{"alg": "RS256"}, good()) }, 401, "the token is signed with an unknown key", 1},
		{"expired", func() string { return sign(keys[0], rs256("k1"), but("exp", time.Now().Unix()-30)) }, 401, "the token has expired", 0},
		{"never expires", func() string { return sign(keys[0], rs256("k1"), but("exp", nil)) }, 401, "the token has expired", 0},
		{"of tomorrow", func() string { return sign(keys[0], rs256("k1"), but("iat", time.Now().Unix()+31)) }, 401, "the token was made in the future", 0},
		{"from tomorrow on", func() string { return sign(keys[0], rs256("k1"), but("nbf", time.Now().Unix()+31)) }, 401, "the token was made in the future", 0},
		{"not before, within the leeway", func() string { return sign(keys[0], rs256("k1"), but("nbf", time.Now().Unix()+29)) }, 204, "", 1},
		{"the address in capitals beside another", func() string {
			c := but("email", "x@evil.iam.gserviceaccount.com")
			c["EMAIL"] = account
			return sign(keys[0], rs256("k1"), c)
		}, 403, "the token is of another service account", 1},
		{"the audience in capitals", func() string {
			c := but("aud", nil)
			c["AUD"] = audience
			return sign(keys[0], rs256("k1"), c)
		}, 401, "the token was made for another audience", 0},
		{"the address twice", func() string { return also(`"email":"` + account + `"`) }, 401, "the token cannot be read", 0},
		{"a claim of others twice", func() string { return also(`"sub":"2"`) }, 401, "the token cannot be read", 0},
		{"claims that are a list", func() string { return signed(keys[0], `{"alg":"RS256","kid":"k1"}`, `[]`) }, 401, "the token cannot be read", 0},
		{"claims with more behind them", func() string { return signed(keys[0], `{"alg":"RS256","kid":"k1"}`, `{} {}`) }, 401, "the token cannot be read", 0},
		{"claims that end early", func() string { return signed(keys[0], `{"alg":"RS256","kid":"k1"}`, `{"aud":"x"`) }, 401, "the token cannot be read", 0},
		{"wrong audience", func() string { return sign(keys[0], rs256("k1"), but("aud", "https://other.run.app")) }, 401, "the token was made for another audience", 0},
		{"no audience", func() string { return sign(keys[0], rs256("k1"), but("aud", nil)) }, 401, "the token was made for another audience", 0},
		{"audiences", func() string { return sign(keys[0], rs256("k1"), but("aud", []string{audience})) }, 401, "the token cannot be read", 0},
		{"wrong issuer", func() string { return sign(keys[0], rs256("k1"), but("iss", "https://accounts.google.com.example")) }, 401, "the token has another issuer than Google", 0},
		{"no issuer", func() string { return sign(keys[0], rs256("k1"), but("iss", nil)) }, 401, "the token has another issuer than Google", 0},
		{"wrong account", func() string {
			return sign(keys[0], rs256("k1"), but("email", "x@evil.iam.gserviceaccount.com"))
		}, 403, "the token is of another service account, or of an unverified address", 1},
		{"no account", func() string { return sign(keys[0], rs256("k1"), but("email", nil)) }, 403, "the token is of another service account", 1},
		{"unverified", func() string { return sign(keys[0], rs256("k1"), but("email_verified", false)) }, 403, "the token is of another service account", 1},
		{"not said to be verified", func() string { return sign(keys[0], rs256("k1"), but("email_verified", nil)) }, 403, "the token is of another service account", 1},
		{"verified as a text", func() string { return sign(keys[0], rs256("k1"), but("email_verified", "true")) }, 401, "the token cannot be read", 0},
		{"alg none", func() string {
			token := sign(keys[0], map[string]any{"alg": "none", "kid": "k1"}, good())
			return token[:strings.LastIndex(token, ".")+1]
		}, 401, "the token is signed in another way than RS256", 0},
		{"alg HS256 with the public key", func() string {
			parts := strings.Split(sign(keys[0], map[string]any{"alg": "HS256", "kid": "k1"}, good()), ".")
			mac := hmac.New(sha256.New, keys[0].N.Bytes())
			mac.Write([]byte(parts[0] + "." + parts[1]))
			return parts[0] + "." + parts[1] + "." + b64(mac.Sum(nil))
		}, 401, "the token is signed in another way than RS256", 0},
		{"alg ES256, short", func() string { return sign(keys[0], map[string]any{"alg": "ES256", "kid": "k1"}, good())[:400] }, 401, "the token", 0},
		{"alg in small letters", func() string { return sign(keys[0], map[string]any{"alg": "rs256", "kid": "k1"}, good()) }, 401, "the token is signed in another way than RS256", 0},
		{"critical extensions", func() string {
			return sign(keys[0], map[string]any{"alg": "RS256", "kid": "k1", "crit": []string{"b64"}}, good())
		}, 401, "the token is signed in another way than RS256", 0},
		{"two parts", func() string { return "a.b" }, 401, "the token is no signed JWT", 0},
		{"four parts", func() string { return sign(keys[0], rs256("k1"), good()) + ".x" }, 401, "the token is no signed JWT", 0},
		{"no base64", func() string { return "?.?.?" }, 401, "the token cannot be read", 0},
		{"padded", func() string { return sign(keys[0], rs256("k1"), good()) + "=" }, 401, "the token cannot be read", 0},
		{"no JSON", func() string { return b64([]byte("x")) + "." + b64([]byte("y")) + "." }, 401, "the token cannot be read", 0},
		{"empty", func() string { return "" }, 401, "the token is no signed JWT", 0},
		{"huge", func() string { return strings.Repeat("a", 16<<10+1) }, 401, "the request has no bearer token", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			secured(t, func(r *rig, s *certs) {
				w := r.serve(with(post(job("ok")), "Authorization", "Bearer "+c.token()))
				if w.Code != c.status || !strings.HasPrefix(w.Body.String(), c.reason) {
					r.Errorf("%d %q, want %d %q", w.Code, w.Body, c.status, c.reason)
				}
				records := 1
				if c.status == 204 {
					records = 0
				}
				if text := r.log.String(); strings.Count(text, "\n") != records || strings.Contains(text, "eyJ") {
					r.Errorf("the log is %q, want %d records, without the token", text, records)
				}
				// nobody can have keys fetched by a token that would not do
				if n := s.fetches(); n != c.fetch {
					r.Errorf("the keys were fetched %d times, want %d", n, c.fetch)
				}
				if n := r.store.Claims.Load(); (n != 0) != (c.status == 204) {
					r.Errorf("%d claims", n)
				}
			})
		})
	}
	secured(t, func(r *rig, _ *certs) {
		r.want(r.push(job("ok")), 401)
		r.want(r.serve(with(post(job("ok")), "Authorization", "Basic eDp5")).Code, 401)
		two := post(job("ok"))
		two.Header["Authorization"] = []string{"Bearer " + sign(keys[0], rs256("k1"), good()), "Bearer x"}
		r.want(r.serve(two).Code, 401)
		r.want(r.serve(with(post(job("ok")), "Authorization", "bearer "+sign(keys[0], rs256("k1"), good()))).Code, 204)
	})
}

// The keys are fetched once for many requests, and again when the answer's time is over: two hours
// less the twenty minutes that it has spent in caches.
func TestKeysAreCached(t *testing.T) {
	keys := ours()
	secured(t, func(r *rig, c *certs) {
		token := func() string { return sign(keys[0], rs256("k1"), good()) }
		r.o.Auth = pubsubpush.OIDC{Audience: audience, ServiceAccount: account, Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			rigs.Takes(100 * time.Millisecond)
			return c.RoundTrip(r)
		})}}
		h := r.handler()
		var answers []<-chan int
		for range 20 {
			status, req := make(chan int, 1), with(post(job("ok")), "Authorization", "Bearer "+token())
			answers = append(answers, status)
			go func() { status <- serve(h, req) }()
		}
		for _, a := range answers {
			r.want(<-a, 204)
		}
		if n := c.fetches(); n != 1 {
			r.Errorf("20 requests at once had the keys fetched %d times", n)
		}
		rigs.Takes(100*time.Minute - 2*time.Second)
		r.want(r.answerFor(token()), 204)
		if n := c.fetches(); n != 0 {
			r.Errorf("fresh keys were fetched %d times", n)
		}
		rigs.Takes(3 * time.Second)
		r.want(r.answerFor(token()), 204)
		if n := c.fetches(); n != 1 {
			r.Errorf("old keys were fetched %d times", n)
		}
	})
}

func serve(h http.Handler, req *http.Request) int {
	w := newRecorder()
	h.ServeHTTP(w, req)
	return w.Code
}

// A key that is new is fetched at once, but strangers cannot have that done again and again.
func TestNewKey(t *testing.T) {
	keys := ours()
	secured(t, func(r *rig, c *certs) {
		r.want(r.answerFor(sign(keys[0], rs256("k1"), good())), 204)
		rigs.Takes(time.Minute)
		c.fetches()
		c.set(func(c *certs) { c.keys = map[string]*rsa.PrivateKey{"k2": keys[1]} })
		r.want(r.answerFor(sign(keys[1], rs256("k2"), good())), 204)
		r.want(r.answerFor(sign(keys[0], rs256("k1"), good())), 401) // withdrawn
		if n := c.fetches(); n != 1 {
			r.Errorf("the keys were fetched %d times, want once", n)
		}
		for range 100 {
			rigs.Takes(time.Second)
			r.want(r.answerFor(sign(keys[2], rs256("forged"), good())), 401)
		}
		if n := c.fetches(); n < 2 || n > 4 {
			r.Errorf("in 100 s of forged tokens the keys were fetched %d times", n)
		}
	})
}

// While the keys cannot be fetched, the old ones do for six hours more, and not for ever.
func TestKeysAreReused(t *testing.T) {
	keys := ours()
	secured(t, func(r *rig, c *certs) {
		known := func() int { return r.answerFor(sign(keys[0], rs256("k1"), good())) }
		r.want(known(), 204)
		c.set(func(c *certs) {
			c.fault = func(*http.Request) (*http.Response, error) { return nil, errors.New("no network") }
		})
		c.fetches()
		rigs.Takes(101 * time.Minute) // they are old
		for range 60 {
			r.want(known(), 204)
			rigs.Takes(time.Second)
		}
		if n := c.fetches(); n < 1 || n > 3 {
			r.Errorf("in a minute without network they were asked for %d times", n)
		}
		// a key that may be new is no forgery: Pub/Sub shall come again
		r.want(r.answerFor(sign(keys[1], rs256("k2"), good())), 503)
		rigs.Takes(6*time.Hour - 5*time.Minute)
		r.want(known(), 204)
		rigs.Takes(5 * time.Minute)
		r.want(known(), 503)
		c.set(func(c *certs) { c.fault = nil })
		rigs.Takes(time.Minute)
		r.want(known(), 204)
	})
}

// What the server of the keys may answer.
func TestKeyServer(t *testing.T) {
	keys := ours()
	small := newKey(1024)
	for _, c := range []struct {
		name   string
		fault  func(*http.Request) (*http.Response, error)
		status int
		took   time.Duration
	}{
		{"an error", func(*http.Request) (*http.Response, error) { return reply(500, nil, nil), nil }, 503, 0},
		{"no JSON", func(*http.Request) (*http.Response, error) { return reply(200, nil, []byte("<html>")), nil }, 503, 0},
		{"no keys", func(*http.Request) (*http.Response, error) { return reply(200, nil, []byte(`{"keys":[]}`)), nil }, 503, 0},
		{"bad keys", func(*http.Request) (*http.Response, error) {
			return reply(200, nil, []byte(`{"keys":[{"kid":"k1","kty":"RSA","n":"?","e":"AQAB"},{"kid":"k1","kty":"EC"},{"kid":"k1","kty":"RSA","n":"","e":""},
				{"kid":"k1","kty":"RSA","use":"sig","n":"`+b64(small.N.Bytes())+`","e":"AQAB"},{"kid":"k1","kty":"RSA","use":"enc","n":"`+b64(keys[0].N.Bytes())+`","e":"AQAB"},
				{"kid":"k1","kty":"RSA","n":"`+b64(keys[0].N.Bytes())+`","e":"AQ"}]}`)), nil
		}, 503, 0},
		{"too much", func(*http.Request) (*http.Response, error) {
			return reply(200, nil, append([]byte(`{"keys":[{"kid":"k1","kty":"RSA","n":"`+b64(keys[0].N.Bytes())+`","e":"AQAB"}]}`), bytes.Repeat([]byte(" "), 256<<10)...)), nil
		}, 503, 0},
		{"nothing for long", func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }, 503, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			secured(t, func(r *rig, s *certs) {
				if s.fault = c.fault; c.took > 0 {
					s.fault = nil
					r.o.Auth = pubsubpush.OIDC{Audience: audience, ServiceAccount: account, Client: &http.Client{Transport: roundTrip(c.fault)}}
				}
				begin := time.Now()
				r.want(r.answerFor(sign(keys[0], rs256("k1"), good())), c.status)
				r.took(begin, c.took, c.took)
				if text := r.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "error=") {
					r.Errorf("the log is %q", text)
				}
			})
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// How long the keys are taken without asking, as the answer says it.
func TestKeysAreFresh(t *testing.T) {
	keys := ours()
	for _, c := range []struct {
		control, age string
		want         time.Duration
	}{
		{"public, max-age=600", "", 10 * time.Minute},
		{"Max-Age=600", "300", 5 * time.Minute},
		{"no-store", "", time.Hour},
		{"", "", time.Hour},
		{"max-age=0", "", time.Minute},
		{"max-age=100", "99999999999", time.Minute},
		{"max-age=x", "", time.Hour},
		{"max-age=9223372036854775807", "", 24 * time.Hour},
		{"max-age=-5", "-99999", time.Minute},
	} {
		t.Run(c.control+" "+c.age, func(t *testing.T) {
			secured(t, func(r *rig, s *certs) {
				s.header = maps.Clone(http.Header{"Cache-Control": {c.control}, "Age": {c.age}})
				push := func() { r.want(r.answerFor(sign(keys[0], rs256("k1"), good())), 204) }
				push()
				rigs.Takes(c.want - time.Second)
				push()
				if n := s.fetches(); n != 1 {
					r.Errorf("fetched %d times within %v", n, c.want)
				}
				rigs.Takes(time.Second)
				push()
				if n := s.fetches(); n != 1 {
					r.Errorf("fetched %d times after %v", n, c.want)
				}
			})
		})
	}
}

// FuzzToken: no token of a stranger's panics or does.
func FuzzToken(f *testing.F) {
	key := newKey(2048)
	c := &certs{keys: map[string]*rsa.PrivateKey{"k1": key}}
	r := newRig(f, new(runs).Handle)
	r.o.Auth = pubsubpush.OIDC{Audience: audience, ServiceAccount: account, Client: &http.Client{Transport: c}}
	h := r.handler()
	f.Add(sign(newKey(2048), rs256("k1"), good()))
	f.Add(b64([]byte(`{"alg":"RS256","kid":"k1"}`)) + "." + b64([]byte(`{"exp":1e99}`)) + ".AA")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		req := post(nil)
		req.Header["Authorization"] = []string{"Bearer " + token}
		if code := serve(h, req); code != 401 && code != 403 {
			t.Errorf("%d", code)
		}
	})
}

// A redirect is not followed: it could lead to http, where whoever is on the way could answer with
// keys of theirs.
func TestKeysAreNotElsewhere(t *testing.T) {
	keys := ours()
	for _, to := range []string{"http://elsewhere.example/certs", "https://elsewhere.example/certs"} {
		secured(t, func(r *rig, c *certs) {
			there := 0
			r.o.Auth = pubsubpush.OIDC{Audience: audience, ServiceAccount: account, Client: &http.Client{Transport: roundTrip(func(q *http.Request) (*http.Response, error) {
				if q.URL.Host == "elsewhere.example" {
					there++
					return c.RoundTrip(q)
				}
				return reply(http.StatusFound, http.Header{"Location": {to}}, nil), nil
			})}}
			r.want(r.answerFor(sign(keys[0], rs256("k1"), good())), 503)
			if there != 0 {
				r.Errorf("%s was asked", to)
			}
		})
	}
}

// A server of keys that hangs holds up the first request that finds the keys old, and no other: the
// old ones do meanwhile.
func TestKeyServerHangs(t *testing.T) {
	keys := ours()
	secured(t, func(r *rig, c *certs) {
		known := func() int { return r.answerFor(sign(keys[0], rs256("k1"), good())) }
		r.want(known(), 204)
		c.set(func(c *certs) {
			c.fault = func(q *http.Request) (*http.Response, error) { <-q.Context().Done(); return nil, q.Context().Err() }
		})
		rigs.Takes(101 * time.Minute)
		begin := time.Now()
		r.want(known(), 204)
		r.took(begin, 5*time.Second, 5*time.Second)
		c.fetches()
		for range 100 {
			rigs.Takes(2 * time.Second)
			begin := time.Now()
			r.want(known(), 204)
			r.took(begin, 0, 0)
		}
		if n := c.fetches(); n < 4 || n > 7 {
			r.Errorf("in 200 s the keys were asked for %d times", n)
		}
		rigs.Takes(5 * time.Second) // the last fetch
	})
}
