package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
)

// This file owns the forms that a body may have on its way: kept elsewhere (a claim check), sealed,
// zipped. Producers send through packed, and workers have unpacked as a middleware. All are values
// that many goroutines may use.

// form is what becomes of a body. key is the message's, which need not be there.
type form interface {
	pack(ctx context.Context, key string, body []byte) ([]byte, error)
	open(ctx context.Context, key string, body []byte) ([]byte, error)
}

// packed sends bodies in their form.
type packed struct {
	broker.Sender
	form form
}

func (s packed) Send(ctx context.Context, ms []broker.Outgoing) (ids []string, err error) {
	out := append([]broker.Outgoing(nil), ms...) // they are the caller's, who may send them again
	for i := range out {
		if out[i].Body, err = s.form.pack(ctx, keyOf(out[i].Meta), out[i].Body); err != nil {
			return nil, err // nothing was sent
		}
	}
	return s.Sender.Send(ctx, out)
}

// Limits: the form decides how large a body may be.
func (s packed) Limits() broker.Limits {
	l := s.Sender.Limits()
	l.MaxBody = 0
	return l
}

// unpacked gives handlers the body as it was sent. What cannot be unpacked for ever is a letter.
func unpacked(f form) onceq.Middleware {
	return func(h onceq.Handler) onceq.Handler {
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			body, err := f.open(ctx, keyOf(j.Message.Meta), j.Message.Body)
			if err != nil {
				return err
			}
			j.Message.Body = body // the handler's copy: a letter holds what came
			return h.Handle(ctx, j)
		})
	}
}

func keyOf(m *broker.Meta) string {
	if m == nil {
		return ""
	}
	return m.Key
}

// chain is several forms: the first is the innermost.
type chain []form

func (c chain) pack(ctx context.Context, key string, body []byte) (_ []byte, err error) {
	for i := 0; i < len(c) && err == nil; i++ {
		body, err = c[i].pack(ctx, key, body)
	}
	return body, err
}

func (c chain) open(ctx context.Context, key string, body []byte) (_ []byte, err error) {
	for i := len(c) - 1; i >= 0 && err == nil; i-- {
		body, err = c[i].open(ctx, key, body)
	}
	return body, err
}

// checked keeps bodies elsewhere that have more than above bytes. The pointer is the one of AWS's
// extended clients for SQS, so either side may be one of those.
type checked struct {
	objects objects
	bucket  string
	above   int
}

// objects is where bodies are kept.
type objects interface {
	put(ctx context.Context, bucket, name string, body []byte) error
	get(ctx context.Context, bucket, name string) ([]byte, error) // fs.ErrNotExist where it is gone
}

type pointer struct {
	Bucket string `json:"s3BucketName"`
	Name   string `json:"s3Key"`
}

const pointerClass = "software.amazon.payloadoffloading.PayloadS3Pointer"

// pack stores the object first. A name that nobody can guess, and that is new each time, needs no
// second look: a body that was stored and not sent is deleted by the lifecycle rule.
func (c checked) pack(ctx context.Context, _ string, body []byte) ([]byte, error) {
	if len(body) <= c.above {
		return body, nil
	}
	p := pointer{c.bucket, rand.Text()}
	if err := c.objects.put(ctx, p.Bucket, p.Name, body); err != nil {
		return nil, err
	}
	return json.Marshal([]any{pointerClass, p})
}

// open takes pointers into its own bucket alone. Otherwise who may send could have the worker read
// whatever it has the right to.
func (c checked) open(ctx context.Context, _ string, body []byte) ([]byte, error) {
	var class string
	var p pointer
	if json.Unmarshal(body, &[2]any{&class, &p}) != nil || class != pointerClass {
		return body, nil
	}
	if p.Bucket != c.bucket {
		return nil, onceq.Permanent(fmt.Errorf("claim check: the bucket %q is not %q", p.Bucket, c.bucket))
	}
	body, err := c.objects.get(ctx, p.Bucket, p.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, onceq.Permanent(fmt.Errorf("claim check: %s is gone: a lifecycle rule that is shorter than the queues' retention? %w", p.Name, err))
	}
	return body, err
}

// files keeps objects in a directory, a folder for each bucket.
type files string

func (f files) put(_ context.Context, bucket, name string, body []byte) error {
	if err := os.MkdirAll(filepath.Join(string(f), bucket), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(string(f), bucket, name), body, 0o600)
}

func (f files) get(_ context.Context, bucket, name string) ([]byte, error) {
	root, err := os.OpenRoot(filepath.Join(string(f), bucket)) // a pointer may say "../../etc/passwd"
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.ReadFile(name)
}

// bucket keeps objects in S3.
type bucket struct{ *s3.Client }

func (b bucket) put(ctx context.Context, in, name string, body []byte) error {
	_, err := b.PutObject(ctx, &s3.PutObjectInput{Bucket: &in, Key: &name, Body: bytes.NewReader(body)})
	return err
}

func (b bucket) get(ctx context.Context, in, name string) ([]byte, error) {
	o, err := b.GetObject(ctx, &s3.GetObjectInput{Bucket: &in, Key: &name})
	if gone := (*types.NoSuchKey)(nil); errors.As(err, &gone) {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	if err != nil {
		return nil, err
	}
	defer o.Body.Close()
	return io.ReadAll(o.Body)
}

// sealed encrypts: a nonce, and the body under AES-GCM. The key of the job is sealed in, so that
// nobody can give one job the body of another.
type sealed struct{ cipher.AEAD }

func (s sealed) pack(_ context.Context, key string, body []byte) ([]byte, error) {
	nonce := make([]byte, s.NonceSize(), s.NonceSize()+len(body)+s.Overhead())
	rand.Read(nonce)
	return s.Seal(nonce, nonce, body, []byte(key)), nil
}

func (s sealed) open(_ context.Context, key string, body []byte) ([]byte, error) {
	if len(body) < s.NonceSize() {
		return nil, onceq.Permanent(errors.New("sealed: the body is too short"))
	}
	clear, err := s.Open(nil, body[:s.NonceSize()], body[s.NonceSize():], []byte(key))
	if err != nil {
		return nil, onceq.Permanent(fmt.Errorf("sealed: %w", err))
	}
	return clear, nil
}

// zipped compresses with gzip. What is not zipped passes, as from producers of before.
type zipped struct{}

// mostUnzipped bounds what a small body may become.
const mostUnzipped = 64 << 20

func (zipped) pack(_ context.Context, _ string, body []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(body)
	err = errors.Join(err, z.Close())
	return b.Bytes(), err
}

func (zipped) open(_ context.Context, _ string, body []byte) ([]byte, error) {
	if !bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		return body, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, onceq.Permanent(err)
	}
	clear, err := io.ReadAll(io.LimitReader(z, mostUnzipped+1))
	switch {
	case err != nil:
		return nil, onceq.Permanent(err)
	case len(clear) > mostUnzipped:
		return nil, onceq.Permanent(fmt.Errorf("zipped: more than %d bytes", mostUnzipped))
	}
	return clear, nil
}
