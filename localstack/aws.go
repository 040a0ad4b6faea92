package localstack

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// awsSettings are the region and the keys to sign with: the environment's where that names the server as well.
func awsSettings(named bool) (region string, keys aws.Credentials) {
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

// awsHTTP is this process's client; a connection each for as many pollers as a test may have.
var awsHTTP = func() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy, t.MaxIdleConns, t.MaxIdleConnsPerHost = nil, 0, 256
	return &http.Client{Transport: t}
}()

// signer gives the SDK its keys.
func signer(keys aws.Credentials) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return keys, nil })
}

// ask returns what a server answers to a GET, nil when that is no success.
func ask(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	c := awsHTTP
	if req.URL.Scheme == "https" {
		c = http.DefaultClient
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil || res.StatusCode != http.StatusOK {
		return nil, err
	}
	return append([]byte{}, text...), nil
}
