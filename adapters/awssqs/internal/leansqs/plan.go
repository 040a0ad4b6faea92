package leansqs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// This file owns what New reads from the SDK before the first call: the plan of all requests, and
// the proof that our signature and our body are the SDK's. New calls it in its own goroutine.
// attempt.go uses the plan, which nobody changes any more, so nothing is locked.

// plan is what all requests of a client have in common. It is read from a request that the SDK
// itself makes, and that is never sent: so FIPS, dual-stack and private endpoints, the path of an
// endpoint and the User-Agent are as the SDK has them.
type plan struct {
	url             url.URL
	host            string
	headers         []field
	service, region string // of the signature
	signer          *signer
}

type field struct {
	name   string
	values []string
}

// own are the headers that each request has by itself.
var own = map[string]bool{
	"Authorization": true, "X-Amz-Date": true, "X-Amz-Security-Token": true, "X-Amz-Target": true,
	"Amz-Sdk-Invocation-Id": true, "Amz-Sdk-Request": true, "Content-Length": true,
}

// makePlan makes the request with keys that sign nothing which leaves the process.
func makePlan(o sqs.Options) (*plan, error) {
	caught := &catcher{}
	source := o.Credentials
	c := sqs.New(o, func(o *sqs.Options) {
		o.HTTPClient, o.Retryer, o.RetryMaxAttempts = caught, once(o.Retryer), 0
		o.Credentials = standIn{}
		if s, ok := source.(aws.CredentialProviderSource); ok {
			o.Credentials = sourced{standIn{}, s}
		}
	})
	in := &sqs.DeleteMessageBatchInput{
		QueueUrl: new("https://sqs.us-east-1.amazonaws.com/123456789012/q"),
		Entries:  []types.DeleteMessageBatchRequestEntry{{Id: new("0"), ReceiptHandle: new("r")}},
	}
	_, err := c.DeleteMessageBatch(context.Background(), in) //nolint:contextcheck // nothing waits
	r := caught.request
	if r == nil {
		return nil, fmt.Errorf("%w: it makes no request itself: %w", ErrUnfit, err)
	}
	if !bytes.Equal(caught.body, deleteBody(in)) {
		return nil, fmt.Errorf("%w: it writes requests in its own way", ErrUnfit)
	}
	p := &plan{url: *r.URL, host: r.Host}
	if r.URL.RawQuery != "" || r.URL.User != nil || strings.Contains(r.URL.EscapedPath(), "%") {
		return nil, fmt.Errorf("%w: the endpoint has an unusual form", ErrUnfit)
	}
	// Credential=KEY/DATE/REGION/SERVICE/aws4_request
	_, scope, _ := strings.Cut(r.Header.Get("Authorization"), algorithm+" Credential="+standInKey+"/")
	scope, _, _ = strings.Cut(scope, ",")
	parts := strings.Split(scope, "/")
	if len(parts) != 4 || parts[3] != terminal {
		return nil, fmt.Errorf("%w: the signature has an unusual form", ErrUnfit)
	}
	p.region, p.service = parts[1], parts[2]
	p.signer = newSigner(o.HTTPSignerV4, &p.url)
	if err := proves(p.signer, r, caught.body, p.service, p.region); err != nil {
		return nil, err
	}
	for name, values := range r.Header {
		if !own[name] {
			p.headers = append(p.headers, field{name, values})
		}
	}
	return p, nil
}

// proves signs the SDK's own request anew, and fails where the two signatures differ.
func proves(s *signer, signed *http.Request, body []byte, service, region string) error {
	at, err := time.Parse(stampForm, signed.Header.Get("X-Amz-Date"))
	if err != nil {
		return fmt.Errorf("%w: the request's date is %w", ErrUnfit, err)
	}
	sum := sha256.Sum256(body)
	c, _ := standIn{}.Retrieve(context.Background())
	r := signed.Clone(context.Background())
	for _, name := range [...]string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		r.Header.Del(name)
	}
	if err := s.SignHTTP(context.Background(), c, r, hex.EncodeToString(sum[:]), service, region, at); err != nil {
		return fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	if !maps.EqualFunc(r.Header, signed.Header, slices.Equal) {
		return fmt.Errorf("%w: its signer signs in its own way", ErrUnfit)
	}
	return nil
}

// once is a retryer of the same kind, which the User-Agent names, that never tries again.
func once(r aws.Retryer) aws.Retryer {
	if _, standard := r.(*retry.Standard); standard {
		return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts = 1 })
	}
	return aws.NopRetryer{}
}

const standInKey = "STANDIN"

// standIn are credentials that stand for the client's.
type standIn struct{}

func (standIn) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: standInKey, SecretAccessKey: standInKey, SessionToken: standInKey}, nil
}

// sourced tells what the client's credentials come from, which the SDK puts into its User-Agent.
type sourced struct {
	standIn
	aws.CredentialProviderSource
}

var errCaught = errors.New("leansqs: the request was caught")

// catcher keeps a request and sends none.
type catcher struct {
	mu      sync.Mutex
	request *http.Request
	body    []byte
}

func (c *catcher) Do(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request = r
	if b, err := io.ReadAll(r.Body); err == nil {
		c.body = b
	}
	return nil, errCaught
}
