package leansqs

import (
	"fmt"
	"os"
	"reflect"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/metrics"
	"github.com/aws/smithy-go/tracing"
)

// unfit says what the client carries that this package would pass over, nil where there is nothing.
//
// A retryer of the user's own is not among it, because the SDK's loop asks it here as well. The
// adaptive one is, because nothing here tests how it holds calls back.
func unfit(o *sqs.Options) error {
	usual := sqs.New(sqs.Options{Region: "us-east-1", Credentials: standIn{}}).Options()
	for _, c := range [...]struct {
		odd bool
		why string
	}{
		{len(o.APIOptions) > 0, "the client has middleware in APIOptions"},
		{anyInterceptor(o), "the client has Interceptors"},
		{o.ClientLogMode != 0, "the client has a ClientLogMode"},
		//lint:ignore SA1019 some clients still have the old one
		{o.EndpointResolver != nil || !alike(o.EndpointResolverV2, usual.EndpointResolverV2), "the client has an endpoint resolver of its own"},
		{o.RetryMode == aws.RetryModeAdaptive || isAdaptive(reflect.ValueOf(o.Retryer), 0), "the client has the adaptive retryer"},
		{o.Credentials == nil, "the client has no Credentials"},
		{!alike(o.AuthSchemeResolver, usual.AuthSchemeResolver), "the client has an AuthSchemeResolver of its own"},
		{!usualScheme(o, &usual), "the client has AuthSchemes of its own"},
		{!isSigner(o.HTTPSignerV4), "the client has a signer of its own"},
		{!alike(o.Protocol, usual.Protocol) || o.Protocol.ID() != usual.Protocol.ID(), "the client has a Protocol of its own"},
		{!isNop(o.TracerProvider), "the client has a TracerProvider"},
		{!isNopMeter(o.MeterProvider), "the client has a MeterProvider"},
		{os.Getenv("AWS_LAMBDA_FUNCTION_NAME") != "", "in a Lambda function the SDK passes the trace's id on"},
	} {
		if c.odd {
			return fmt.Errorf("%w: %s", ErrUnfit, c.why)
		}
	}
	return nil
}

// alike reports whether both are of one type.
func alike(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

func anyInterceptor(o *sqs.Options) bool {
	for _, list := range reflect.ValueOf(o.Interceptors).Fields() {
		if list.Len() > 0 {
			return true
		}
	}
	return false
}

func usualScheme(o, usual *sqs.Options) bool {
	return len(o.AuthSchemes) == 1 && alike(o.AuthSchemes[0], usual.AuthSchemes[0]) &&
		o.AuthSchemes[0].SchemeID() == usual.AuthSchemes[0].SchemeID() &&
		alike(o.AuthSchemes[0].Signer(), usual.AuthSchemes[0].Signer())
}

// isAdaptive looks also into the SDK's wrappers of a retryer. AWS_MAX_ATTEMPTS, for one, puts a
// wrapper around the adaptive retryer, and nothing but the wrapper's unexported fields tells of it.
func isAdaptive(v reflect.Value, depth int) bool {
	const deepest = 8
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.Type() == reflect.TypeFor[*retry.AdaptiveMode]() {
			return true
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || depth == deepest {
		return false
	}
	for _, f := range v.Fields() {
		if f.Kind() == reflect.Interface && isAdaptive(f, depth+1) {
			return true
		}
	}
	return false
}

func isSigner(s sqs.HTTPSignerV4) bool {
	_, ok := s.(*v4.Signer)
	return ok
}

func isNop(p tracing.TracerProvider) bool {
	_, ok := p.(*tracing.NopTracerProvider)
	return ok
}

func isNopMeter(p metrics.MeterProvider) bool {
	_, ok := p.(metrics.NopMeterProvider)
	return ok
}
