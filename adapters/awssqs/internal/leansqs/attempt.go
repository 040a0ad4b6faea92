package leansqs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// This file owns one try of a call: its request, signed by itself, and its answer or error, which
// is the SDK's. The SDK's retry loop calls it. A call belongs to one goroutine, so nothing is
// locked.

// call is one logical call. It is the handler that the SDK's retry loop and its clock run.
type call struct {
	c          *Client
	op         *operation
	fresh      func() smithy.Deserializable // the empty answer
	scan       func(text string) bool       // reads a common answer; nil = there is no such way
	body       []byte
	invocation string
}

// eachAnew gives each try a request of its own: a signature, and what net/http does to a request,
// never outlive a try.
func eachAnew(in any) any {
	k := in.(*call)
	p := k.c.plan
	h := make(http.Header, len(p.headers)+8)
	for _, f := range p.headers {
		h[f.name] = f.values
	}
	h["X-Amz-Target"] = k.op.target
	h["Amz-Sdk-Invocation-Id"] = []string{k.invocation}
	t := &try{url: p.url}
	t.body.Reset(k.body)
	t.request = http.Request{
		Method: http.MethodPost, URL: &t.url, Host: p.host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: &t.body, ContentLength: int64(len(k.body)),
	}
	if k.c.again {
		// On a connection that the server has closed meanwhile net/http begins anew, if nothing was
		// written and it has the body again.
		t.request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(k.body)), nil }
	}
	t.wrapped.Request = &t.request
	return &t.wrapped
}

// try is what one try needs, in one piece of memory.
type try struct {
	wrapped smithyhttp.Request
	request http.Request
	url     url.URL
	body    reader
}

// reader is a body that needs no closing.
type reader struct{ bytes.Reader }

func (*reader) Close() error { return nil }

// HandleFinalize makes one try. The credentials are asked for each time, because they may have
// expired since the last one.
func (k *call) HandleFinalize(ctx context.Context, in middleware.FinalizeInput) (out middleware.FinalizeOutput, md middleware.Metadata, err error) {
	r := in.Request.(*smithyhttp.Request)
	identity, err := k.c.identities.GetIdentity(ctx, smithy.Properties{})
	if err != nil {
		return out, md, fmt.Errorf("get identity: %w", err)
	}
	if err := k.c.signer.SignRequest(ctx, r, identity, k.c.properties); err != nil {
		return out, md, fmt.Errorf("sign request: %w", err)
	}
	raw, md, err := k.c.timing.HandleDeserialize(ctx, middleware.DeserializeInput{Request: r}, k)
	res := raw.RawResponse.(*smithyhttp.Response)
	if err == nil {
		err = k.read(ctx, res)
	}
	if cerr := res.Body.Close(); err == nil && cerr != nil {
		// The answer is whole. The SDK says no more than this in its log.
		k.c.o.Logger.Logf("WARN", "failed to close HTTP response body: %v", cerr)
	}
	if err != nil {
		err = failed(res, &md, err)
	}
	return out, md, err
}

// HandleDeserialize sends the request. Its errors are those of the SDK's handler.
func (k *call) HandleDeserialize(ctx context.Context, in middleware.DeserializeInput) (out middleware.DeserializeOutput, md middleware.Metadata, err error) {
	k.c.count(k.op.name)
	res, err := k.c.o.HTTPClient.Do(in.Request.(*smithyhttp.Request).WithContext(ctx))
	if res == nil {
		res = &http.Response{Header: http.Header{}}
	}
	if res.Body == nil {
		res.Body = http.NoBody
	}
	if err != nil {
		err = &smithyhttp.RequestSendError{Err: err}
		if ctx.Err() != nil {
			err = &smithy.CanceledError{Err: ctx.Err()}
		}
	}
	out.RawResponse = &smithyhttp.Response{Response: res}
	return out, md, err
}

// read reads the answer. What the scanner does not know, every error and each odd answer among it,
// is read by the SDK.
func (k *call) read(ctx context.Context, res *smithyhttp.Response) error {
	out := k.fresh()
	if k.scan != nil && res.StatusCode == http.StatusOK {
		text, err := slurp(res)
		if err != nil {
			return &smithy.DeserializationError{Err: err}
		}
		if k.scan(text) {
			return nil
		}
		out = k.fresh()
		res.Body = struct {
			io.Reader
			io.Closer
		}{strings.NewReader(text), res.Body}
	}
	return k.c.o.Protocol.DeserializeResponse(ctx, k.op.schema, sqs.TypeRegistry, res, out)
}

// slurps are the buffers that answers are read into.
var slurps = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// slurp reads the whole body, to its end: net/http takes the connection back when it has seen that.
func slurp(res *smithyhttp.Response) (string, error) {
	const kept = 64 << 10 // a larger answer is rare, and its buffer would stay
	b := slurps.Get().(*bytes.Buffer)
	b.Reset()
	_, err := b.ReadFrom(res.Body)
	text := b.String()
	if b.Cap() <= kept {
		slurps.Put(b)
	}
	return text, err
}

// failed wraps the error in the answer, as the SDK does.
func failed(res *smithyhttp.Response, md *middleware.Metadata, err error) error {
	var id string
	for _, name := range [...]string{"X-Amzn-Requestid", "X-Amz-RequestId"} {
		if id = res.Header.Get(name); id != "" {
			awsmiddleware.SetRequestIDMetadata(md, id)
			break
		}
	}
	return &awshttp.ResponseError{ResponseError: &smithyhttp.ResponseError{Response: res, Err: err}, RequestID: id}
}

// newUUID names an invocation, in all of its tries.
func newUUID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	var s [36]byte
	hex.Encode(s[:], u[:4])
	hex.Encode(s[9:], u[4:6])
	hex.Encode(s[14:], u[6:8])
	hex.Encode(s[19:], u[8:10])
	hex.Encode(s[24:], u[10:])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}
