package pubsubpush

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// This file owns the question who sends. Each request's own goroutine calls mayPush, before the
// body is read. Nothing is locked here: keys.go has Google's keys, under a lock of their own.

// Auth says who may push. It is [OIDC], [IAM] or [None].
type Auth interface {
	// checker completes the setting, and refuses what cannot be.
	checker() (checker, error)
}

// A checker answers nil for one who may push.
type checker interface {
	mayPush(r *http.Request) *refusal
}

// OIDC lets those push whose request has an OpenID Connect token of Google's for one service
// account. It is the subscription's push authentication. The token must be all of this: signed by
// Google with RS256, not expired (30 s of leeway), made for Audience, and for the verified address
// ServiceAccount. Anything else gets a 401, and the token of another account a 403.
type OIDC struct {
	// Audience is that of the subscription's push configuration; by default that is the endpoint's
	// URL. Required.
	Audience string
	// ServiceAccount is the address of the account that the subscription pushes as,
	// "name@project.iam.gserviceaccount.com". Required: any customer of Google's can have a token
	// with any audience, for an account of their own.
	ServiceAccount string
	// CertsURL is where the keys are, as a set of JSON Web Keys. Default: Google's. It must be
	// https, or http of this machine, as in a test. No redirect is followed.
	CertsURL string
	// Client fetches the keys: a few times a day, in at most 5 s and 256 KiB. nil = a client with
	// the system's proxy.
	Client *http.Client
}

// IAM believes each request, because the platform lets nobody through without permission: a Cloud
// Run service that does not allow unauthenticated calls, and whose invokers are the push's service
// account alone. It must not be reachable by another way.
type IAM struct{}

// None believes each request. Whoever reaches the endpoint can run jobs, and can have a job of a
// known key skipped. It is for tests, and for networks that let Pub/Sub through alone.
type None struct{}

func (IAM) checker() (checker, error)  { return anybody{}, nil }
func (None) checker() (checker, error) { return anybody{}, nil }

type anybody struct{}

func (anybody) mayPush(*http.Request) *refusal { return nil }

// googleCerts is where Google publishes the keys that it signs such tokens with.
const googleCerts = "https://www.googleapis.com/oauth2/v3/certs"

func (o OIDC) checker() (checker, error) {
	o.CertsURL = cmp.Or(o.CertsURL, googleCerts)
	u, err := url.Parse(o.CertsURL)
	switch {
	case o.Audience == "":
		return nil, errors.New("pubsubpush: OIDC.Audience is empty: a token that Google made for anybody would do")
	case o.ServiceAccount == "" || !strings.Contains(o.ServiceAccount, "@"):
		return nil, fmt.Errorf("pubsubpush: OIDC.ServiceAccount: %q is no address of a service account", o.ServiceAccount)
	case err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLocal(u.Hostname())):
		return nil, fmt.Errorf("pubsubpush: OIDC.CertsURL: %q is not of the form https://host/path", o.CertsURL)
	}
	client := http.Client{Transport: http.DefaultTransport}
	if o.Client != nil {
		client = *o.Client
	}
	// A redirect could lead to plain http, and whoever is on the way could answer with keys.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &tokens{o: o, keys: &keys{url: o.CertsURL, client: &client}}, nil
}

func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// tokens checks the tokens of requests.
type tokens struct {
	o    OIDC
	keys *keys
}

const (
	// maxToken bounds a token. Google's have about 1 KB.
	maxToken = 16 << 10
	// leeway is how far the clocks may be apart.
	leeway = 30 * time.Second
)

// claims are what a token says.
type claims struct {
	issuer, audience, email  string
	expires, issued, notTill int64
	verified                 bool
}

func (c *tokens) mayPush(r *http.Request) *refusal {
	hs := r.Header.Values("Authorization")
	if len(hs) != 1 {
		return unauthorized("the request has no token")
	}
	scheme, token, _ := strings.Cut(hs[0], " ")
	if !strings.EqualFold(scheme, "bearer") || len(token) > maxToken {
		return unauthorized("the request has no bearer token")
	}
	return c.verify(r.Context(), token)
}

// verify looks at the signature last: what is cheap comes first, and nobody can make it ask for
// keys by a token that would not do.
func (c *tokens) verify(ctx context.Context, token string) *refusal {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return unauthorized("the token is no signed JWT")
	}
	var alg, kid string
	var crit json.RawMessage
	var said claims
	if !decode(parts[0], members{"alg": &alg, "kid": &kid, "crit": &crit}) || !decode(parts[1], members{
		"iss": &said.issuer, "aud": &said.audience, "exp": &said.expires, "iat": &said.issued, "nbf": &said.notTill,
		"email": &said.email, "email_verified": &said.verified,
	}) {
		return unauthorized("the token cannot be read")
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	now := time.Now()
	switch {
	case err != nil:
		return unauthorized("the token cannot be read")
	case alg != "RS256" || crit != nil:
		return unauthorized("the token is signed in another way than RS256")
	case said.issuer != "accounts.google.com" && said.issuer != "https://accounts.google.com":
		return unauthorized("the token has another issuer than Google")
	case said.audience != c.o.Audience:
		return unauthorized("the token was made for another audience")
	case !now.Before(time.Unix(said.expires, 0).Add(leeway)):
		return unauthorized("the token has expired")
	case time.Unix(max(said.issued, said.notTill), 0).After(now.Add(leeway)):
		return unauthorized("the token was made in the future, or is for the future")
	}
	key, err := c.keys.get(ctx, kid)
	switch {
	case errors.Is(err, errUnknownKey):
		return unauthorized("the token is signed with an unknown key")
	case err != nil:
		no := refused(http.StatusServiceUnavailable, "Google's keys cannot be fetched")
		no.err = err
		return no
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) != nil {
		return unauthorized("the token's signature is wrong")
	}
	if !said.verified || said.email != c.o.ServiceAccount {
		return refused(http.StatusForbidden, "the token is of another service account, or of an unverified address")
	}
	return nil
}

// members are the names that are looked for in a part of a token, and where their values go.
type members map[string]any

// decode reads a part of a token. Names are exact, and none comes twice: encoding/json would take
// "EMAIL" for "email", and the last of two, and another reader of the same token would not.
func decode(part string, into members) bool {
	text, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return false
	}
	seen := make(map[string]bool)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return false
		}
		key, ok := name.(string)
		if !ok || seen[key] {
			return false
		}
		seen[key] = true
		value, ok := into[key]
		if !ok {
			value = new(json.RawMessage)
		}
		if d.Decode(value) != nil {
			return false
		}
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return false
	}
	_, err = d.Token()
	return errors.Is(err, io.EOF)
}
