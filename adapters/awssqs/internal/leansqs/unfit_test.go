package leansqs_test

import (
	"context"
	"errors"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/auth"
	smithyendpoints "github.com/aws/smithy-go/endpoints"
	"github.com/aws/smithy-go/metrics"
	"github.com/aws/smithy-go/middleware"
	"github.com/aws/smithy-go/tracing"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/onceq/onceq/adapters/awssqs/internal/leansqs"
)

// What would be passed over is named.
func TestUnfit(t *testing.T) {
	for why, set := range map[string]func(*sqs.Options){
		"middleware in APIOptions": func(o *sqs.Options) {
			o.APIOptions = append(o.APIOptions, func(*middleware.Stack) error { return nil })
		},
		"Interceptors":      func(o *sqs.Options) { o.Interceptors.AddBeforeSigning(interceptor{}) },
		"a ClientLogMode":   func(o *sqs.Options) { o.ClientLogMode = aws.LogRetries },
		"endpoint resolver": func(o *sqs.Options) { o.EndpointResolverV2 = resolver{} },
		"endpoint resolver of its own": func(o *sqs.Options) {
			//lint:ignore SA1019 some clients still have it
			o.EndpointResolver = sqs.EndpointResolverFromURL("http://127.0.0.1")
		},
		"no Credentials":     func(o *sqs.Options) { o.Credentials = aws.AnonymousCredentials{} },
		"AuthSchemeResolver": func(o *sqs.Options) { o.AuthSchemeResolver = schemes{} },
		"AuthSchemes":        func(o *sqs.Options) { o.AuthSchemes = []smithyhttp.AuthScheme{smithyhttp.NewAnonymousScheme()} },
		"a signer of its own": func(o *sqs.Options) {
			o.HTTPSignerV4 = struct{ *v4.Signer }{v4.NewSigner()}
		},
		"a Protocol":           func(o *sqs.Options) { o.Protocol = struct{ smithyhttp.ClientProtocol }{o.Protocol} },
		"a TracerProvider":     func(o *sqs.Options) { o.TracerProvider = struct{ tracing.NopTracerProvider }{} },
		"a MeterProvider":      func(o *sqs.Options) { o.MeterProvider = struct{ metrics.NopMeterProvider }{} },
		"makes no request":     func(o *sqs.Options) { o.Region = "" },
		"the adaptive retryer": func(o *sqs.Options) { o.Retryer = retry.NewAdaptiveMode() },
		"adaptive retryer":     func(o *sqs.Options) { o.Retryer = retry.AddWithMaxAttempts(retry.NewAdaptiveMode(), 5) },
		"the adaptive": func(o *sqs.Options) {
			o.Retryer = retry.AddWithErrorCodes(retry.AddWithMaxBackoffDelay(retry.NewAdaptiveMode(), time.Second), "x")
		},
		"an unusual form":   func(o *sqs.Options) { o.BaseEndpoint = new("https://host/a%2Fb") },
		"no request itself": func(o *sqs.Options) { o.BaseEndpoint = new("https://a b") },
	} {
		t.Run(why, func(t *testing.T) {
			o := sqs.New(sqs.Options{Region: "us-east-1", Credentials: aws.CredentialsProviderFunc(keys), HTTPClient: &server{}}, set).Options()
			_, err := leansqs.New(o, func(string) {})
			if !errors.Is(err, leansqs.ErrUnfit) || !strings.Contains(err.Error(), why) {
				t.Errorf("the answer is %v", err)
			}
		})
	}
	t.Run("Lambda", func(t *testing.T) {
		t.Setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
		o := sqs.New(sqs.Options{Region: "us-east-1", Credentials: aws.CredentialsProviderFunc(keys)}).Options()
		if _, err := leansqs.New(o, func(string) {}); !errors.Is(err, leansqs.ErrUnfit) {
			t.Error(err)
		}
	})
}

type interceptor struct{}

func (interceptor) BeforeSigning(context.Context, *smithyhttp.InterceptorContext) error { return nil }

type resolver struct{}

func (resolver) ResolveEndpoint(context.Context, sqs.EndpointParameters) (smithyendpoints.Endpoint, error) {
	return smithyendpoints.Endpoint{URI: url.URL{Scheme: "http", Host: "127.0.0.1"}}, nil
}

type schemes struct{}

func (schemes) ResolveAuthSchemes(context.Context, *sqs.AuthResolverParameters) ([]*auth.Option, error) {
	return nil, nil
}

// Each setting of a client was thought of: unfit heeds it, the plan holds it, or a request does. A
// new one, such as one for the compression of requests, has to be.
func TestSettingsOfAClient(t *testing.T) {
	known := strings.Fields(`APIOptions AppID BaseEndpoint ClientLogMode Credentials DefaultsMode DisableClockSkewCorrection
		DisableMessageChecksumValidation EndpointOptions EndpointResolver EndpointResolverV2 HTTPSignerV4 Logger MeterProvider Region
		RetryMaxAttempts RetryMode Retryer RuntimeEnvironment TracerProvider resolvedDefaultsMode Protocol HTTPClient Interceptors
		AuthSchemeResolver AuthSchemes AuthSchemePreference`)
	for f := range reflect.TypeFor[sqs.Options]().Fields() {
		if !slices.Contains(known, f.Name) {
			t.Errorf("a client has %s, which the lean transport may pass over", f.Name)
		}
	}
}
