package leansqs_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/internal/must"
)

// endpoints are what a client's endpoint and signature hang on. want is the host.
var endpoints = map[string]struct {
	set  func(*sqs.Options)
	want string
}{
	"plain":         {func(*sqs.Options) {}, "sqs.us-east-1.amazonaws.com"},
	"another":       {func(o *sqs.Options) { o.Region = "eu-central-1" }, "sqs.eu-central-1.amazonaws.com"},
	"China":         {func(o *sqs.Options) { o.Region = "cn-north-1" }, "sqs.cn-north-1.amazonaws.com.cn"},
	"FIPS":          {func(o *sqs.Options) { o.EndpointOptions.UseFIPSEndpoint = aws.FIPSEndpointStateEnabled }, "sqs-fips.us-east-1.amazonaws.com"},
	"FIPS region":   {func(o *sqs.Options) { o.Region = "fips-us-east-1" }, "sqs-fips.us-east-1.amazonaws.com"},
	"dual-stack":    {func(o *sqs.Options) { o.EndpointOptions.UseDualStackEndpoint = aws.DualStackEndpointStateEnabled }, "sqs.us-east-1.api.aws"},
	"VPC":           {func(o *sqs.Options) { o.BaseEndpoint = new("https://vpce-1-2.sqs.us-east-1.vpce.amazonaws.com") }, "vpce-1-2.sqs.us-east-1.vpce.amazonaws.com"},
	"path":          {func(o *sqs.Options) { o.BaseEndpoint = new("http://127.0.0.1:4566/some/path") }, "127.0.0.1:4566"},
	"plus in path":  {func(o *sqs.Options) { o.BaseEndpoint = new("http://127.0.0.1:4566/a+b") }, "127.0.0.1:4566"},
	"user":          {func(o *sqs.Options) { o.BaseEndpoint = new("http://user:secret@127.0.0.1:4566") }, "127.0.0.1:4566"},
	"query":         {func(o *sqs.Options) { o.BaseEndpoint = new("http://127.0.0.1:4566/?a=b") }, "127.0.0.1:4566"},
	"without HTTPS": {func(o *sqs.Options) { o.EndpointOptions.DisableHTTPS = true }, "sqs.us-east-1.amazonaws.com"},
	"app":           {func(o *sqs.Options) { o.AppID = "an-app" }, "sqs.us-east-1.amazonaws.com"},
	"session token": {func(o *sqs.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret", SessionToken: "token", AccountID: "123456789012"}, nil
		})
	}, "sqs.us-east-1.amazonaws.com"},
	"AWS_ENDPOINT_URL_SQS": {func(o *sqs.Options) {
		// Set by the config module, whose sources NewFromConfig asks.
		*o = sqs.NewFromConfig(aws.Config{Region: o.Region, Credentials: o.Credentials, HTTPClient: o.HTTPClient, ConfigSources: []any{environment{}}}).Options()
	}, "sqs.internal:8443"},
}

type environment struct{}

func (environment) GetServiceBaseEndpoint(_ context.Context, id string) (string, bool, error) {
	return "https://sqs.internal:8443", id == sqs.ServiceID, nil
}

// A request is the SDK's: address, headers, body and signature.
func TestRequests(t *testing.T) {
	for name, e := range endpoints {
		for op, do := range each {
			t.Run(name+"/"+op, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ps := both(t, always(200, "{}"), e.set)
					for kind, p := range ps {
						if _, err := do(t.Context(), p); err != nil || len(p.sent) != 1 {
							t.Fatal(kind, err, len(p.sent))
						}
					}
					sdk, lean := ps["sdk"].sent[0], ps["lean"].sent[0]
					if sdk.url != lean.url || sdk.host != lean.host || sdk.body != lean.body {
						t.Errorf("the SDK sends %s %s %s,\nwe %s %s %s", sdk.url, sdk.host, sdk.body, lean.url, lean.host, lean.body)
					}
					if a, b := bare(sdk.header), bare(lean.header); !reflect.DeepEqual(a, b) {
						t.Errorf("the SDK's headers are\n%v, ours\n%v", a, b)
					}
					if len(lean.header["Amz-Sdk-Invocation-Id"]) != 1 || len(lean.header.Get("Amz-Sdk-Invocation-Id")) != 36 {
						t.Error(lean.header)
					}
					if host := hostOf(t, lean.url); host != e.want {
						t.Errorf("the host is %s, not %s", host, e.want)
					}
					o := sqs.Options{Region: "us-east-1", Credentials: aws.CredentialsProviderFunc(keys)}
					e.set(&o)
					c, err := o.Credentials.Retrieve(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					sum := sha256.Sum256([]byte(lean.body))
					region := map[string]string{"another": "eu-central-1", "China": "cn-north-1"}[name]
					if region == "" {
						region = "us-east-1"
					}
					if name != "FIPS region" { // there the scope is the SDK's own, which the first comparison holds
						checkSignature(t, lean, c, hex.EncodeToString(sum[:]), region)
					}
				})
			})
		}
	}
}

func hostOf(t *testing.T, url string) string {
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil))
	return r.URL.Host
}

// Bodies with random characters are written and signed as by the SDK.
func TestRandomRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := both(t, always(200, "{}"))
		for seed := range uint64(200) {
			r := rand.New(rand.NewPCG(seed, 0))
			text := func() *string {
				b := make([]rune, r.IntN(40)+1)
				for i := range b {
					b[i] = rune(r.IntN([]int{128, 0x300, 0xd800, 0x1f000}[r.IntN(4)]))
				}
				return new(string(b))
			}
			var in sqs.SendMessageBatchInput
			in.QueueUrl = new(queue)
			for i := range r.IntN(10) + 1 {
				in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: new(fmt.Sprint(i)), MessageBody: text(), MessageGroupId: text(), DelaySeconds: r.Int32N(3)})
			}
			for kind, p := range ps {
				p.sent = nil
				if _, err := p.SendMessageBatch(t.Context(), &in); err != nil {
					t.Fatal(kind, err)
				}
			}
			sdk, lean := ps["sdk"].sent[0], ps["lean"].sent[0]
			if sdk.body != lean.body || !reflect.DeepEqual(bare(sdk.header), bare(lean.header)) {
				t.Fatalf("seed %d: the SDK sends\n%s\nwe\n%s", seed, sdk.body, lean.body)
			}
			sum := sha256.Sum256([]byte(lean.body))
			c, _ := keys(t.Context())
			checkSignature(t, lean, c, hex.EncodeToString(sum[:]), "us-east-1")
		}
	})
}
