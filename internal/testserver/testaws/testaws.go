// Package testaws gives a test the SQS or the DynamoDB that internal/testserver finds, with
// clients of the AWS SDK, and queues and tables of the test's own.
//
// The drivers' and stores' tests call it, and so does localstack, which brings the ways to
// start a server.
package testaws

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Settings are the region and the keys to sign with: the environment's where that names the
// server as well.
func Settings(named bool) (region string, keys aws.Credentials) {
	region, keys = "us-east-1", aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}
	if !named {
		return region, keys
	}
	region = cmp.Or(os.Getenv("AWS_REGION"), region)
	if id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"); id != "" && secret != "" {
		keys = aws.Credentials{AccessKeyID: id, SecretAccessKey: secret, SessionToken: os.Getenv("AWS_SESSION_TOKEN")}
	}
	return region, keys
}

// httpClient is this process's client; a connection each for as many pollers as a test may have.
var httpClient = func() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy, t.MaxIdleConns, t.MaxIdleConnsPerHost = nil, 0, 256
	return &http.Client{Transport: t}
}()

// signer gives the SDK its keys.
func signer(keys aws.Credentials) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return keys, nil })
}

// ask returns what a server answers to a GET, nil where it has nothing at that address. A
// server that fails says nothing about what it is, so that is an error.
func ask(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	c := httpClient
	if req.URL.Scheme == "https" {
		c = http.DefaultClient
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode >= http.StatusInternalServerError:
		return nil, fmt.Errorf("%s answers %s", url, res.Status)
	case res.StatusCode != http.StatusOK:
		return nil, nil
	}
	return append([]byte{}, text...), nil
}

// LocalStackName begins the version of a LocalStack.
const LocalStackName = "LocalStack "

// localStackVersion tells which LocalStack answers at the address, and whether it serves the
// service; empty where what answers is none.
func localStackVersion(ctx context.Context, url, service string) (string, error) {
	text, err := ask(ctx, url+"/_localstack/health")
	if err != nil {
		return "", err
	}
	var health struct {
		Version  string
		Services map[string]string
	}
	if json.Unmarshal(text, &health) != nil || health.Version == "" {
		return "", nil //nolint:nilerr // another server, which has no health in JSON
	}
	if state := health.Services[service]; state != "running" && state != "available" {
		return "", fmt.Errorf("LocalStack %s says that its %s is %q", health.Version, service, state)
	}
	return LocalStackName + health.Version, nil
}

const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// newName returns a name that nothing has yet, of at most limit letters. It tells the test and
// ends in base and suffix. It is not ok where base is empty, is longer with suffix than
// longest, or has a letter that is none of those.
func newName(test, base, suffix string, longest, limit int, letters string) (name string, ok bool) {
	foreign := func(r rune) bool { return !strings.ContainsRune(letters, r) }
	if base == "" || len(base)+len(suffix) > longest || strings.IndexFunc(base, foreign) >= 0 {
		return "", false
	}
	word := strings.Map(func(r rune) rune {
		if foreign(r) {
			return '-'
		}
		return r
	}, test)
	name = "onceq-" + strings.ToLower(rand.Text())[:10] + "-"
	base += suffix
	if room := limit - len(name) - len(base) - 1; room > 0 {
		name += word[:min(len(word), room)] + "-"
	}
	return name + base, true
}
