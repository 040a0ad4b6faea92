package leansqs

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/encoding/httpbinding"
)

// This file owns the signature of a request. The SDK's adapter calls the signer, from many
// goroutines; only kept changes, which is atomic. It writes what the SDK's signer writes, with the
// key of the day kept, and without its fifty allocations. makePlan compares the two before the
// first call. A header of an unusual form is left to the SDK's signer.

// signer signs the requests of one address, by version 4 of AWS's signatures.
type signer struct {
	sdk  sqs.HTTPSignerV4
	path string // as it is signed
	kept atomic.Pointer[dayKey]
}

func newSigner(sdk sqs.HTTPSignerV4, u *url.URL) *signer {
	return &signer{sdk: sdk, path: httpbinding.EscapePath(cmp.Or(u.EscapedPath(), "/"), false)}
}

// dayKey signs for one pair of keys on one day.
type dayKey struct {
	access, secret, day, region, service string
	scope                                string
	rooms                                sync.Pool // of *room
}

// room is what one signature needs to work with.
type room struct {
	mac  hash.Hash
	text []byte
	sum  []byte
}

const (
	algorithm = "AWS4-HMAC-SHA256"
	terminal  = "aws4_request"
	stampForm = "20060102T150405Z"
)

// SignHTTP signs r as of that time.
func (s *signer) SignHTTP(ctx context.Context, c aws.Credentials, r *http.Request, payload, service, region string, at time.Time, more ...func(*v4.SignerOptions)) error {
	stamp := at.UTC().Format(stampForm)
	own := make([]string, 3)
	own[0] = stamp
	r.Header["X-Amz-Date"] = own[0:1:1]
	if c.SessionToken != "" {
		own[1] = c.SessionToken
		r.Header["X-Amz-Security-Token"] = own[1:2:2]
	}
	var space [24]line
	lines, usual := linesOf(space[:0], r)
	if !usual {
		return s.sdk.SignHTTP(ctx, c, r, payload, service, region, at, more...)
	}
	k := s.keyOf(c, stamp[:8], region, service)
	w := k.rooms.Get().(*room)
	own[2] = k.sign(w, lines, s.path, stamp, payload)
	k.rooms.Put(w)
	r.Header["Authorization"] = own[2:3:3]
	return nil
}

// line is a header that is signed.
type line struct{ name, value string }

// linesOf are the signed headers in order. It reports false where one has an unusual form.
func linesOf(lines []line, r *http.Request) (_ []line, usual bool) {
	lines = append(lines, line{"host", cmp.Or(r.Host, r.URL.Host)})
	if r.ContentLength > 0 {
		lines = append(lines, line{"content-length", strconv.FormatInt(r.ContentLength, 10)})
	}
	for name, values := range r.Header {
		low, signed := lower(name)
		if !signed {
			continue
		}
		if len(values) != 1 || strings.TrimSpace(values[0]) != values[0] || strings.Contains(values[0], "  ") {
			return nil, false
		}
		lines = append(lines, line{low, values[0]})
	}
	slices.SortFunc(lines, func(a, b line) int { return strings.Compare(a.name, b.name) })
	return lines, true
}

// lower is the header's name as it is signed. Some are not signed, because proxies change them.
func lower(name string) (low string, signed bool) {
	switch name {
	case "Authorization", "User-Agent", "X-Amzn-Trace-Id", "Expect", "Transfer-Encoding", "Content-Length":
		return "", false
	case "Amz-Sdk-Invocation-Id":
		return "amz-sdk-invocation-id", true
	case "Amz-Sdk-Request":
		return "amz-sdk-request", true
	case "Content-Type":
		return "content-type", true
	case "X-Amz-Date":
		return "x-amz-date", true
	case "X-Amz-Security-Token":
		return "x-amz-security-token", true
	case "X-Amz-Target":
		return "x-amz-target", true
	case "X-Amzn-Query-Mode":
		return "x-amzn-query-mode", true
	}
	return strings.ToLower(name), true
}

// keyOf is the key for these credentials on that day, the kept one where it is right.
func (s *signer) keyOf(c aws.Credentials, day, region, service string) *dayKey {
	k := s.kept.Load()
	if k != nil && k.access == c.AccessKeyID && k.secret == c.SecretAccessKey && k.day == day && k.region == region && k.service == service {
		return k
	}
	day = strings.Clone(day)
	k = &dayKey{
		access: c.AccessKeyID, secret: c.SecretAccessKey, day: day, region: region, service: service,
		scope: day + "/" + region + "/" + service + "/" + terminal,
	}
	key := []byte("AWS4" + c.SecretAccessKey)
	for _, part := range [...]string{day, region, service, terminal} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	k.rooms.New = func() any { return &room{mac: hmac.New(sha256.New, key)} }
	s.kept.Store(k)
	return k
}

// sign gives the value of Authorization.
func (k *dayKey) sign(w *room, lines []line, path, stamp, payload string) string {
	b := append(w.text[:0], http.MethodPost+"\n"...)
	b = append(b, path...)
	b = append(b, "\n\n"...) // no query
	for _, l := range lines {
		b = append(b, l.name...)
		b = append(b, ':')
		b = append(b, l.value...)
		b = append(b, '\n')
	}
	b = append(b, '\n')
	b = appendNames(b, lines)
	b = append(b, '\n')
	b = append(b, payload...)
	request := sha256.Sum256(b)

	b = append(b[:0], algorithm+"\n"...)
	b = append(b, stamp...)
	b = append(b, '\n')
	b = append(b, k.scope...)
	b = append(b, '\n')
	b = hex.AppendEncode(b, request[:])
	w.mac.Reset()
	w.mac.Write(b)
	w.sum = w.mac.Sum(w.sum[:0])

	b = append(b[:0], algorithm+" Credential="...)
	b = append(b, k.access...)
	b = append(b, '/')
	b = append(b, k.scope...)
	b = append(b, ", SignedHeaders="...)
	b = appendNames(b, lines)
	b = append(b, ", Signature="...)
	w.text = hex.AppendEncode(b, w.sum)
	return string(w.text)
}

func appendNames(b []byte, lines []line) []byte {
	for i, l := range lines {
		if i > 0 {
			b = append(b, ';')
		}
		b = append(b, l.name...)
	}
	return b
}
