package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
)

func sealer() sealed {
	return sealed{must(cipher.NewGCM(must(aes.NewCipher([]byte("0123456789abcdef0123456789abcdef")))))}
}

// counting are objects, and how often they were read.
type counting struct {
	objects
	gets int
}

func (c *counting) get(ctx context.Context, bucket, name string) ([]byte, error) {
	c.gets++
	return c.objects.get(ctx, bucket, name)
}

// TestLettersHoldWhatCame: whatever the form, the handler has the clear text, and neither the
// letter nor its reason has any of it.
func TestLettersHoldWhatCame(t *testing.T) {
	server := s3Server(t)
	for name, f := range map[string]form{
		"files":      checked{files(t.TempDir()), "invoices", 0},
		"S3":         checked{bucket{server}, "invoices", 0},
		"sealed":     sealer(),
		"all of it":  chain{zipped{}, sealer(), checked{files(t.TempDir()), "invoices", 0}},
		"the sealed": chain{checked{files(t.TempDir()), "invoices", 0}, sealer()},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			_, dead, err := run(t.Context(), &out, f)
			require.NoError(t, err)
			require.Contains(t, out.String(), `invoice-1: 400024 bytes, "card 4111 1111 1111 1"…`)
			ms, err := dead.Receive(t.Context(), broker.ReceiveOptions{Max: 10})
			require.NoError(t, err)
			require.Len(t, ms, 1)
			letter := fmt.Sprintf("%s %+v %+v", ms[0].Body, ms[0].Attributes, *ms[0].Meta.Dead)
			require.NotContains(t, letter, "4222")
			require.NotContains(t, letter, "nobody")
			body, err := f.open(t.Context(), "invoice-2", ms[0].Body)
			require.NoError(t, err, "a replay of it can be opened")
			require.True(t, strings.HasPrefix(string(body), "nobody's card 4222"))
		})
	}
}

// TestNothingIsFetchedForADuplicate: the claim comes before the fetch, and a letter's copy of a
// message costs none either.
func TestNothingIsFetchedForADuplicate(t *testing.T) {
	o := &counting{objects: files(t.TempDir())}
	f := checked{o, "invoices", 0}
	queue, dead, err := run(t.Context(), io.Discard, f)
	require.NoError(t, err)
	require.Equal(t, 2, o.gets)
	require.NotNil(t, dead)
	d, err := queue.Depth(t.Context())
	require.NoError(t, err)
	require.Equal(t, broker.Depth{}, d)
}

// TestBodies: small ones and those of before pass; what somebody else wrote does not.
func TestBodies(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("s"), 0o600))
	c := checked{files(dir), "invoices", 10}
	small, err := c.pack(ctx, "k", []byte("small"))
	require.NoError(t, err)
	require.Equal(t, "small", string(small))
	for _, plain := range []string{"small", `{"cents":1}`, `["a",{}]`, `[1,2]`, ""} {
		got, err := chain{zipped{}, c}.open(ctx, "k", []byte(plain))
		require.NoError(t, err)
		require.Equal(t, plain, string(got))
	}
	big, err := c.pack(ctx, "k", []byte("larger than ten bytes"))
	require.NoError(t, err)
	other, err := c.pack(ctx, "k", []byte("larger than ten bytes"))
	require.NoError(t, err)
	require.NotEqual(t, big, other, "nobody guesses a name")
	for name, body := range map[string]string{
		"another bucket": `["` + pointerClass + `",{"s3BucketName":"salaries","s3Key":"x"}]`,
		"gone":           `["` + pointerClass + `",{"s3BucketName":"invoices","s3Key":"x"}]`,
	} {
		_, err := c.open(ctx, "k", []byte(body))
		require.Equal(t, onceq.ClassPermanent, onceq.ClassOf(err), "%s: %v", name, err)
	}
	_, err = c.open(ctx, "k", []byte(`["`+pointerClass+`",{"s3BucketName":"invoices","s3Key":"../secret"}]`))
	require.Error(t, err)

	s := sealer()
	one, err := s.pack(ctx, "k", []byte("clear"))
	require.NoError(t, err)
	require.NotContains(t, string(one), "clear")
	got, err := s.open(ctx, "k", one)
	require.NoError(t, err)
	require.Equal(t, "clear", string(got))
	_, err = s.open(ctx, "another job", one)
	require.Error(t, err, "a body sealed for one job opens for another")
	for i := range one {
		bad := append([]byte(nil), one...)
		bad[i] ^= 1
		_, err := s.open(ctx, "k", bad)
		require.Equal(t, onceq.ClassPermanent, onceq.ClassOf(err))
	}
	_, err = s.open(ctx, "k", []byte("x"))
	require.Error(t, err)
	bomb, err := zipped{}.pack(ctx, "k", make([]byte, mostUnzipped+1))
	require.NoError(t, err)
	_, err = zipped{}.open(ctx, "k", bomb)
	require.ErrorContains(t, err, "more than")
}

// TestPointerOfAWSsClients: the pointer is written, and read, as AWS's extended clients do.
func TestPointerOfAWSsClients(t *testing.T) {
	c := checked{bucket{s3Server(t)}, "b", 0}
	got, err := c.pack(t.Context(), "", []byte("body"))
	require.NoError(t, err)
	var parts []json.RawMessage
	require.NoError(t, json.Unmarshal(got, &parts))
	require.Len(t, parts, 2)
	require.JSONEq(t, `"software.amazon.payloadoffloading.PayloadS3Pointer"`, string(parts[0]))
	var p map[string]string
	require.NoError(t, json.Unmarshal(parts[1], &p))
	require.Equal(t, "b", p["s3BucketName"])
	body, err := c.open(t.Context(), "", []byte(`["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b","s3Key":"`+p["s3Key"]+`"}]`))
	require.NoError(t, err)
	require.Equal(t, "body", string(body))
	_, err = c.open(t.Context(), "", []byte(`["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b","s3Key":"none"}]`))
	require.Equal(t, onceq.ClassPermanent, onceq.ClassOf(err), "%v", err)
}

// s3Server is as much of S3 as two calls need.
func s3Server(t *testing.T) *s3.Client {
	t.Helper()
	var mu sync.Mutex
	kept := map[string][]byte{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPut {
			kept[r.URL.Path], _ = io.ReadAll(r.Body)
			return
		}
		body, ok := kept[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>gone</Message></Error>`)
			return
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s3.New(s3.Options{
		BaseEndpoint: &s.URL, HTTPClient: s.Client(), Region: "us-east-1", UsePathStyle: true,
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
}
